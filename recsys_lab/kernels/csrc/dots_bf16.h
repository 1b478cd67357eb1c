// In BF16, where the processor multiplies pairs of it and adds them in FP32: dot products of all pairs of vectors, and the way back. No
// number is widened.
#pragma once
#include <algorithm>

#include "formats.h"
#include "scratch.h"

#if defined(__AVX512BF16__) && WIDE_MASKS
#define BF16_DOTS 1
#else
#define BF16_DOTS 0
#endif

// Vectors as dense.py hands them over: `count` of them, each [samples, dim] with `steps` elements from one row to the next.
extern "C" struct Vectors {
    void* const* at;
    const int64_t* steps;
    int64_t count, dim, samples;
    int32_t bf16;
    int32_t lead;   // whether the first vector itself stands before the dots: `out` has dim more columns
    int32_t tiles;  // whether BF16 vectors may be multiplied in tiles
    int32_t past;   // whether FP32 gradients go past the caches: each begins with a line of them, and ends with one
};

constexpr int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
constexpr int64_t pairs_of(int64_t count) { return count * (count - 1) / 2; }

#if BF16_DOTS
namespace {

constexpr int TWICE = 2 * LANES;  // BF16 numbers of a vector register
INLINE __m512i load_bf16(const uint16_t* p, int64_t n) {
    return n >= TWICE ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi16((__mmask32)((1ull << n) - 1), p);
}
INLINE void store_bf16(uint16_t* p, __m512i x, int64_t n) {
    if (n >= TWICE) _mm512_storeu_si512(p, x);
    else _mm512_mask_storeu_epi16(p, (__mmask32)((1ull << n) - 1), x);
}
INLINE void copy_bf16(const uint16_t* from, int64_t n, uint16_t* to) {  // `to` is written in whole registers, beyond n with zeros
    for (int64_t i = 0; i < n; i += TWICE) _mm512_storeu_si512(to + i, load_bf16(from + i, n - i));
}
INLINE f32v add_dots(f32v total, __m512i a, __m512i b) { return (f32v)_mm512_dpbf16_ps((__m512)total, (__m512bh)a, (__m512bh)b); }
INLINE __m512i rounded(f32v first, f32v second) { return (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first); }

// Sixteen sums at once: lane k of the result is the sum of s[k]'s lanes.
INLINE f32v sums(f32v* s) {
#pragma GCC unroll 4
    for (int w = 8; w; w /= 2) {
        const i32v upper = (LANE & w) != 0;  // all ones there
        const i32v own = LANE | (upper & LANES), other = (LANE ^ w) | (upper & LANES);
#pragma GCC unroll 8
        for (int i = 0; i < w; ++i) s[i] = __builtin_shuffle(s[i], s[i + w], own) + __builtin_shuffle(s[i], s[i + w], other);
    }
    return s[0];
}

// x: `four` vectors, a multiple of four, in rows of `wide`, a multiple of 32 -> square [four, four]: dots of all blocks of 4 x 4 on the
// diagonal and above it.
INLINE void bf16_dots(const uint16_t* x, int64_t four, int64_t wide, float* square) {
    for (int64_t i = 0; i < four; i += 4)
        for (int64_t j = i; j < four; j += 4) {
            f32v s[16] = {};
            for (int64_t d = 0; d < wide; d += TWICE) {
                __m512i a[4];
#pragma GCC unroll 4
                for (int p = 0; p < 4; ++p) a[p] = _mm512_loadu_si512(x + (i + p) * wide + d);
#pragma GCC unroll 4
                for (int q = 0; q < 4; ++q) {
                    const __m512i b = _mm512_loadu_si512(x + (j + q) * wide + d);
#pragma GCC unroll 4
                    for (int p = 0; p < 4; ++p) s[4 * p + q] = add_dots(s[4 * p + q], a[p], b);
                }
            }
            const f32v found = sums(s);
#pragma GCC unroll 4
            for (int p = 0; p < 4; ++p) _mm_storeu_ps(square + (i + p) * four + j, _mm512_extractf32x4_ps((__m512)found, p));
        }
}

// y_i = sum over j of g_ij x_j, for ROWS of i and as many columns as COLUMNS lanes. g: rows of `step`, symmetric, its diagonal and its
// column `count` zero. x: rows 2 k and 2 k + 1 interleaved, [count / 2 up, wide, 2].
template <int ROWS, int COLUMNS>
INLINE void bf16_back(const uint16_t* x, const uint16_t* g, const uint16_t* lead, int64_t step, int64_t wide, const Vectors& v, int64_t sample,
                      int64_t col, void* const* out, const int64_t* out_steps) {
    for (int64_t i = 0; i < v.count; i += ROWS) {
        f32v y[ROWS][COLUMNS] = {};
        int64_t row[ROWS];
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; ++r) row[r] = std::min(i + r, v.count - 1);
        if (i == 0 && lead)
            for (int k = 0; k < COLUMNS; ++k) y[0][k] = from_bf16(load_u16(lead + col + k * LANES, LANES));
        for (int64_t j = 0; j < v.count; j += 2) {
            __m512i pair[ROWS];
#pragma GCC unroll 12
            for (int r = 0; r < ROWS; ++r) {
                int32_t both;
                std::memcpy(&both, g + row[r] * step + j, sizeof both);
                pair[r] = _mm512_set1_epi32(both);
            }
#pragma GCC unroll 8
            for (int k = 0; k < COLUMNS; ++k) {
                const __m512i b = _mm512_loadu_si512(x + j * wide + (col + k * LANES) * 2);
#pragma GCC unroll 12
                for (int r = 0; r < ROWS; ++r) y[r][k] = add_dots(y[r][k], pair[r], b);
            }
        }
#pragma GCC unroll 12
        for (int r = ROWS - 1; r >= 0; --r) {  // the first one last: spare rows are that one again, without `lead`
            uint16_t* to = (uint16_t*)out[row[r]] + sample * out_steps[row[r]] + col;
#pragma GCC unroll 4
            for (int k = 0; k < COLUMNS; k += 2) {
                const int64_t n = v.dim - col - k * LANES;
                store_bf16(to + k * LANES, rounded(y[r][k], y[r][k + 1]), n);
            }
        }
    }
}

// How the dots of one sample are multiplied, and the way back: in vector registers. x has as many rows as a multiple of BLOCK.
struct Registers {
    static constexpr int BLOCK = 4;
    Registers(int64_t, int64_t) {}
    INLINE void dots(const uint16_t* x, int64_t, int64_t rows, int64_t wide, float* square) const { bf16_dots(x, rows, wide, square); }
    INLINE void back(const uint16_t* x, const uint16_t* g, const uint16_t* lead, int64_t, int64_t step, int64_t wide, const Vectors& v,
                     int64_t sample, void* const* out, const int64_t* out_steps) const {
        int64_t col = 0;
        for (; col + 8 * LANES <= wide; col += 8 * LANES) bf16_back<3, 8>(x, g, lead, step, wide, v, sample, col, out, out_steps);
        for (; col + 4 * LANES <= wide; col += 4 * LANES) bf16_back<6, 4>(x, g, lead, step, wide, v, sample, col, out, out_steps);
        for (; col < wide; col += 2 * LANES) bf16_back<6, 2>(x, g, lead, step, wide, v, sample, col, out, out_steps);
    }
};

template <class Unit>
void bf16_forward(const Vectors& v, uint16_t* out, int64_t out_step, int threads) {
    const int64_t count = v.count, rows = up(count, Unit::BLOCK), wide = up(v.dim, TWICE), pairs = pairs_of(count), before = v.lead ? v.dim : 0;
#pragma omp parallel num_threads(threads)
    {
        static thread_local Scratch<uint16_t> x_memory, found_memory;
        static thread_local Scratch<float> square_memory;
        uint16_t *x = x_memory.at_least(rows * wide), *found = found_memory.at_least(pairs + TWICE);
        float* square = square_memory.at_least(rows * rows + TWICE);
        std::fill(x + count * wide, x + rows * wide, 0);
        const Unit unit(rows, wide);
#pragma omp for schedule(static)
        for (int64_t s = 0; s < v.samples; ++s) {
            for (int64_t f = 0; f < count; ++f) copy_bf16((const uint16_t*)v.at[f] + s * v.steps[f], v.dim, x + f * wide);
            unit.dots(x, count, rows, wide, square);
            uint16_t* next = found;  // each row ends in numbers that the next one overwrites
            for (int64_t i = 0; i + 1 < count; next += count - 1 - i++)
                for (int64_t j = i + 1; j < count; j += TWICE) {
                    const float* from = square + i * rows + j;
                    _mm512_storeu_si512(next + j - i - 1, rounded(load_f32(from, LANES), load_f32(from + LANES, LANES)));
                }
            uint16_t* to = out + s * out_step;
            for (int64_t d = 0; d < before; d += TWICE) store_bf16(to + d, _mm512_loadu_si512(x + d), before - d);
            for (int64_t p = 0; p < pairs; p += TWICE) store_bf16(to + before + p, _mm512_loadu_si512(found + p), pairs - p);
        }
    }
}

template <class Unit>
void bf16_backward(const Vectors& v, const uint16_t* grad, int64_t grad_step, void* const* out, const int64_t* out_steps, int threads) {
    const int64_t count = v.count, rows = up(count, Unit::BLOCK), wide = up(v.dim, TWICE), pairs = pairs_of(count), before = v.lead ? v.dim : 0;
    const int64_t step = up(count, TWICE) + TWICE;
    const __m512i low = Split16::every(0, TWICE), high = Split16::every(LANES, TWICE);
#pragma omp parallel num_threads(threads)
    {
        static thread_local Scratch<uint16_t> memories[4];
        uint16_t *x = memories[0].at_least(rows * wide), *g = memories[1].at_least(rows * step);
        uint16_t *triangle = memories[2].at_least(pairs + TWICE), *first = memories[3].at_least(wide), *lead = v.lead ? first : nullptr;
        std::fill(x, x + rows * wide, 0);  // what is beyond the vectors stays so
        std::fill(g, g + rows * step, 0);
        const Unit unit(rows, wide);
#pragma omp for schedule(static)
        for (int64_t s = 0; s < v.samples; ++s) {
            for (int64_t f = 0; f < count; f += 2) {
                const uint16_t* a = (const uint16_t*)v.at[f] + s * v.steps[f];
                const uint16_t* b = f + 1 < count ? (const uint16_t*)v.at[f + 1] + s * v.steps[f + 1] : nullptr;
                for (int64_t d = 0; d < wide; d += TWICE) {
                    const __m512i one = load_bf16(a + d, v.dim - d), other = b ? load_bf16(b + d, v.dim - d) : __m512i{};
                    _mm512_storeu_si512(x + f * wide + d * 2, _mm512_permutex2var_epi16(one, low, other));
                    _mm512_storeu_si512(x + f * wide + d * 2 + TWICE, _mm512_permutex2var_epi16(one, high, other));
                }
            }
            copy_bf16(grad + s * grad_step, before, first);
            copy_bf16(grad + s * grad_step + before, pairs, triangle);
            const uint16_t* next = triangle;
            for (int64_t i = 0; i < count; next += count - 1 - i++) {
                for (int64_t j = i + 1; j < count; j += TWICE) _mm512_storeu_si512(g + i * step + j, load_bf16(next + j - i - 1, count - j));
                for (int64_t j = i + 1; j < count; ++j) g[j * step + i] = next[j - i - 1];
            }
            unit.back(x, g, lead, rows, step, wide, v, s, out, out_steps);
        }
    }
}

}  // namespace
#endif
