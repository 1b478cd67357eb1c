// Dot products of all pairs of a few short vectors, and the way back. Each sum has one order, whatever the number of threads.
#include <omp.h>

#include <algorithm>
#include <type_traits>

#include "dots_tiles.h"

namespace {

INLINE float sum(f32v x) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)x);
#else
    float total = 0;
    for (int i = 0; i < LANES; ++i) total += x[i];
    return total;
#endif
}
template <class Format>
INLINE f32v get(const void* p, int64_t at, int n = LANES) { return Format::load(Matrix{const_cast<void*>(p), nullptr}, at, n); }
template <class Format>
INLINE void put(void* p, int64_t at, f32v x, int n = LANES) { Format::store(Matrix{p, nullptr}, at, x, n); }

// Whether vectors are FP32 in whole lanes already.
template <class Format>
INLINE bool in_place(const Vectors& v) { return std::is_same_v<Format, Fp32> && v.dim % LANES == 0; }

// The vectors of one sample as FP32, in whole lanes: where they are, or copied to `x` with zeros beyond `dim`.
template <class Format>
INLINE void gather(const Vectors& v, int64_t wide, int64_t sample, float* x, const float** at) {
    for (int64_t f = 0; f < v.count; ++f) {
        if (in_place<Format>(v)) { at[f] = (const float*)v.at[f] + sample * v.steps[f]; continue; }
        at[f] = x + f * wide;
        for (int64_t d = 0; d < wide; d += LANES)
            store_f32(x + f * wide + d, get<Format>(v.at[f], sample * v.steps[f] + d, lanes(v.dim, d)), LANES);
    }
}

// `n` numbers of a format to FP32, or the other way.
template <class Format>
void read(const void* from, int64_t at, int64_t n, float* to) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int left = lanes(n, i);
        store_f32(to + i, get<Format>(from, at + i, left), left);
    }
}
template <class Format>
void write(const float* from, int64_t n, void* to, int64_t at) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int left = lanes(n, i);
        put<Format>(to, at + i, load_f32(from + i, left), left);
    }
}

// Of all pairs i < j, row by row: four j at a time.
void dots(const float* const* x, int64_t count, int64_t wide, float* found) {
    for (int64_t i = 0; i < count; ++i) {
        const float* a = x[i];
        int64_t j = i + 1;
        for (; j + 4 <= count; j += 4, found += 4) {
            const float *b0 = x[j], *b1 = x[j + 1], *b2 = x[j + 2], *b3 = x[j + 3];
            f32v s0 = {}, s1 = {}, s2 = {}, s3 = {};
            for (int64_t d = 0; d < wide; d += LANES) {
                const f32v v = load_f32(a + d, LANES);
                s0 = multiply_add(v, load_f32(b0 + d, LANES), s0);
                s1 = multiply_add(v, load_f32(b1 + d, LANES), s1);
                s2 = multiply_add(v, load_f32(b2 + d, LANES), s2);
                s3 = multiply_add(v, load_f32(b3 + d, LANES), s3);
            }
            found[0] = sum(s0), found[1] = sum(s1), found[2] = sum(s2), found[3] = sum(s3);
        }
        for (; j < count; ++j) {
            f32v s = {};
            for (int64_t d = 0; d < wide; d += LANES) s = multiply_add(load_f32(a + d, LANES), load_f32(x[j] + d, LANES), s);
            *found++ = sum(s);
        }
    }
}

// y_i = sum over j of g_ij x_j, with g symmetric and its diagonal zero, and for i = 0 `lead` before them unless it is null: for ROWS of i at
// a time, and as many columns from `col` on as COLUMNS lanes.
template <int COLUMNS, bool past>
INLINE void back_columns(const float* const* x, const float* g, const float* lead, int64_t count, int64_t col, float* const* y) {
    constexpr int ROWS = 3;
    for (int64_t i = 0; i < count; i += ROWS) {
        f32v sum[ROWS][COLUMNS] = {};
        int64_t row[ROWS];
#pragma GCC unroll 3
        for (int r = 0; r < ROWS; ++r) row[r] = std::min(i + r, count - 1);
        if (i == 0 && lead)
            for (int k = 0; k < COLUMNS; ++k) sum[0][k] = load_f32(lead + col + k * LANES, LANES);
        for (int64_t j = 0; j < count; ++j) {
            f32v v[COLUMNS];
#pragma GCC unroll 8
            for (int k = 0; k < COLUMNS; ++k) v[k] = load_f32(x[j] + col + k * LANES, LANES);
#pragma GCC unroll 3
            for (int r = 0; r < ROWS; ++r) {
                const f32v factor = all(g[row[r] * count + j]);
#pragma GCC unroll 8
                for (int k = 0; k < COLUMNS; ++k) sum[r][k] = multiply_add(factor, v[k], sum[r][k]);
            }
        }
#pragma GCC unroll 3
        for (int r = ROWS - 1; r >= 0; --r)  // the first one last: rows beyond the last are that one again, without `lead`
#pragma GCC unroll 8
            for (int k = 0; k < COLUMNS; ++k) store_f32<past>(y[row[r]] + col + k * LANES, sum[r][k], LANES);
    }
}

template <class Format>
void forward(const Vectors& v, void* out, int64_t out_step, int threads) {
    const int64_t wide = up(v.dim, LANES), pairs = pairs_of(v.count), before = v.lead ? v.dim : 0;
#pragma omp parallel num_threads(threads)
    {
        static thread_local Scratch<float> x_memory, found_memory;
        static thread_local Scratch<const float*> at_memory;
        float *x = x_memory.at_least(v.count * wide), *found = found_memory.at_least(pairs);
        const float** at = at_memory.at_least(v.count);
#pragma omp for schedule(static)
        for (int64_t s = 0; s < v.samples; ++s) {
            gather<Format>(v, wide, s, x, at);
            dots(at, v.count, wide, found);
            write<Format>(at[0], before, out, s * out_step);
            write<Format>(found, pairs, out, s * out_step + before);
        }
    }
}

template <class Format>
void backward(const Vectors& v, const void* grad, int64_t grad_step, void* const* out, const int64_t* out_steps, int threads) {
    const int64_t count = v.count, wide = up(v.dim, LANES), pairs = pairs_of(count), before = v.lead ? v.dim : 0;
#pragma omp parallel num_threads(threads)
    {
        static thread_local Scratch<float> memories[5];
        float *x = memories[0].at_least(count * wide), *y = memories[1].at_least(count * wide), *g = memories[2].at_least(count * count);
        float *triangle = memories[3].at_least(pairs), *first = memories[4].at_least(wide), *lead = v.lead ? first : nullptr;
        static thread_local Scratch<const float*> at_memory;
        static thread_local Scratch<float*> to_memory;
        const float** at = at_memory.at_least(count);
        float** to = to_memory.at_least(count);
        for (int64_t i = 0; i < count; ++i) g[i * count + i] = 0;
#pragma omp for schedule(static)
        for (int64_t s = 0; s < v.samples; ++s) {
            gather<Format>(v, wide, s, x, at);
            for (int64_t f = 0; f < count; ++f) to[f] = in_place<Format>(v) ? (float*)out[f] + s * out_steps[f] : y + f * wide;
            read<Format>(grad, s * grad_step, before, first);
            read<Format>(grad, s * grad_step + before, pairs, triangle);
            const float* next = triangle;
            for (int64_t i = 0; i < count; ++i)
                for (int64_t j = i + 1; j < count; ++j) g[i * count + j] = g[j * count + i] = *next++;
            auto back = [&]<bool past>() {
                int64_t d = 0;
                if (WIDE_MASKS)  // so many registers
                    for (; d + 8 * LANES <= wide; d += 8 * LANES) back_columns<8, past>(at, g, lead, count, d, to);
                for (; d + 4 * LANES <= wide; d += 4 * LANES) back_columns<4, past>(at, g, lead, count, d, to);
                for (; d < wide; d += LANES) back_columns<1, past>(at, g, lead, count, d, to);
            };
            if (in_place<Format>(v) && v.past) back.template operator()<true>();
            else back.template operator()<false>();
            if (in_place<Format>(v)) continue;
            for (int64_t f = 0; f < count; ++f) write<Format>(y + f * wide, v.dim, out[f], s * out_steps[f]);
        }
        if (v.past) past_is_written();
    }
}

void forward_of_bf16(const Vectors& v, void* out, int64_t out_step, int threads) {
#if TILES
    if (v.tiles) return bf16_forward<Tiles>(v, (uint16_t*)out, out_step, threads);
#endif
#if BF16_DOTS
    bf16_forward<Registers>(v, (uint16_t*)out, out_step, threads);
#else
    forward<Bf16>(v, out, out_step, threads);
#endif
}
void backward_of_bf16(const Vectors& v, const void* grad, int64_t grad_step, void* const* out, const int64_t* out_steps, int threads) {
#if TILES
    if (v.tiles) return bf16_backward<Tiles>(v, (const uint16_t*)grad, grad_step, out, out_steps, threads);
#endif
#if BF16_DOTS
    bf16_backward<Registers>(v, (const uint16_t*)grad, grad_step, out, out_steps, threads);
#else
    backward<Bf16>(v, grad, grad_step, out, out_steps, threads);
#endif
}

}  // namespace

// -> out [samples, (dim +) count (count - 1) / 2], its rows `out_step` apart: the strict upper triangle row by row, summed in FP32.
extern "C" void pair_dots(const Vectors* v, void* out, int64_t out_step, int threads) {
    if (v->bf16) forward_of_bf16(*v, out, out_step, threads);
    else forward<Fp32>(*v, out, out_step, threads);
}

// grad: laid out as `out` above, its rows `grad_step` apart -> out, laid out like the vectors: the gradient of each.
extern "C" void pair_dots_backward(const Vectors* v, const void* grad, int64_t grad_step, void* const* out, const int64_t* out_steps, int threads) {
    if (v->bf16) backward_of_bf16(*v, grad, grad_step, out, out_steps, threads);
    else backward<Fp32>(*v, grad, grad_step, out, out_steps, threads);
}
