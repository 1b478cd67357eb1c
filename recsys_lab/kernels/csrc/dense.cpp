// What lies between the matrix products of a dense part: dot products of all pairs of a few short vectors, and the way back through a
// ReLU. Each sum has one order, whatever the number of threads.
#include <omp.h>

#include <vector>

#include "formats.h"

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

// The vectors of one sample as FP32, one after another in `wide` = whole lanes; lanes beyond `dim` are zero.
template <class Format>
void gather(const void* const* vectors, const int64_t* steps, int64_t count, int64_t dim, int64_t wide, int64_t sample, float* x) {
    for (int64_t f = 0; f < count; ++f)
        for (int64_t d = 0; d < wide; d += LANES) {
            const int n = dim - d < LANES ? (int)(dim - d) : LANES;
            store_f32(x + f * wide + d, get<Format>(vectors[f], sample * steps[f] + d, n), LANES);
        }
}

// `n` numbers of a format to FP32, or the other way.
template <class Format>
void read(const void* from, int64_t at, int64_t n, float* to) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int left = n - i < LANES ? (int)(n - i) : LANES;
        store_f32(to + i, get<Format>(from, at + i, left), left);
    }
}
template <class Format>
void write(const float* from, int64_t n, void* to, int64_t at) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int left = n - i < LANES ? (int)(n - i) : LANES;
        put<Format>(to, at + i, load_f32(from + i, left), left);
    }
}

// Of all pairs i < j, row by row: four j at a time.
void dots(const float* x, int64_t count, int64_t wide, float* found) {
    for (int64_t i = 0; i < count; ++i) {
        const float* a = x + i * wide;
        int64_t j = i + 1;
        for (; j + 4 <= count; j += 4, found += 4) {
            const float* b = x + j * wide;
            f32v s0 = {}, s1 = {}, s2 = {}, s3 = {};
            for (int64_t d = 0; d < wide; d += LANES) {
                const f32v v = load_f32(a + d, LANES);
                s0 = multiply_add(v, load_f32(b + d, LANES), s0);
                s1 = multiply_add(v, load_f32(b + wide + d, LANES), s1);
                s2 = multiply_add(v, load_f32(b + 2 * wide + d, LANES), s2);
                s3 = multiply_add(v, load_f32(b + 3 * wide + d, LANES), s3);
            }
            found[0] = sum(s0), found[1] = sum(s1), found[2] = sum(s2), found[3] = sum(s3);
        }
        for (; j < count; ++j) {
            f32v s = {};
            for (int64_t d = 0; d < wide; d += LANES) s = multiply_add(load_f32(a + d, LANES), load_f32(x + j * wide + d, LANES), s);
            *found++ = sum(s);
        }
    }
}

// y_i = sum over j of g_ij x_j, with g symmetric and its diagonal zero: for three i, and for as many columns as COLUMNS lanes.
template <int COLUMNS>
INLINE void back_columns(const float* x, const float* g, int64_t count, int64_t wide, float* y) {
    for (int64_t i = 0; i < count; i += 3) {
        const int64_t second = i + 1 < count ? i + 1 : i, third = i + 2 < count ? i + 2 : i;
        const float *g0 = g + i * count, *g1 = g + second * count, *g2 = g + third * count;
        f32v y0[COLUMNS] = {}, y1[COLUMNS] = {}, y2[COLUMNS] = {};
        for (int64_t j = 0; j < count; ++j) {
            const f32v a = all(g0[j]), b = all(g1[j]), c = all(g2[j]);
#pragma GCC unroll 8
            for (int k = 0; k < COLUMNS; ++k) {
                const f32v v = load_f32(x + j * wide + k * LANES, LANES);
                y0[k] = multiply_add(a, v, y0[k]), y1[k] = multiply_add(b, v, y1[k]), y2[k] = multiply_add(c, v, y2[k]);
            }
        }
#pragma GCC unroll 8
        for (int k = 0; k < COLUMNS; ++k) {
            store_f32(y + third * wide + k * LANES, y2[k], LANES);
            store_f32(y + second * wide + k * LANES, y1[k], LANES);
            store_f32(y + i * wide + k * LANES, y0[k], LANES);
        }
    }
}
void back(const float* x, const float* g, int64_t count, int64_t wide, float* y) {
    int64_t d = 0;
    for (; d + 4 * LANES <= wide; d += 4 * LANES) back_columns<4>(x + d, g, count, wide, y + d);
    for (; d < wide; d += LANES) back_columns<1>(x + d, g, count, wide, y + d);
}

// Sixteen of a gradient, zero where the ReLU gave nothing. Returned widened, and stored as they came.
INLINE f32v masked(const float* grad, const float* made, float* out, int n) {
    const f32v g = as_float(as_bits(load_f32(grad, n)) & (u32v)(load_f32(made, n) > f32v{}));
    store_f32(out, g, n);
    return g;
}
INLINE f32v masked(const uint16_t* grad, const uint16_t* made, uint16_t* out, int n) {
    typedef int16_t i16v __attribute__((vector_size(32)));
    const u16v g = load_u16(grad, n) & (u16v)((i16v)load_u16(made, n) > i16v{});  // a BF16 number's sign is that of its bits
    store_u16(out, g, n);
    return from_bf16(g);
}

template <class Call>
void with_fp32_or_bf16(int bf16, Call&& call) {
    bf16 ? call.template operator()<Bf16>() : call.template operator()<Fp32>();
}

// Sixteen rows of sixteen numbers, turned in place: blocks of 8, 4, 2 and 1 change sides.
INLINE void turn(f32v* r) {
    typedef int32_t i32v __attribute__((vector_size(64)));
    const i32v lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#pragma GCC unroll 4
    for (int w = 8; w; w /= 2) {
        const i32v upper = (lane & w) != 0;  // all ones there
        const i32v first = (lane & ~upper) | (((lane ^ w) + LANES) & upper), second = ((lane ^ w) & ~upper) | ((lane + LANES) & upper);
#pragma GCC unroll 16
        for (int i = 0; i < LANES; ++i)
            if (!(i & w)) {
                const f32v a = r[i], b = r[i | w];
                r[i] = __builtin_shuffle(a, b, first), r[i | w] = __builtin_shuffle(a, b, second);
            }
    }
}

}  // namespace

// vectors: `count` of them, each [samples, dim] with `steps` elements from one row to the next -> out [samples, count (count - 1) / 2]:
// the strict upper triangle row by row, summed in FP32. Out's rows are `out_step` apart.
extern "C" void pair_dots(const void* const* vectors, const int64_t* steps, int64_t count, int64_t dim, int64_t samples, int bf16, void* out,
                          int64_t out_step, int threads) {
    const int64_t wide = (dim + LANES - 1) / LANES * LANES, pairs = count * (count - 1) / 2;
    with_fp32_or_bf16(bf16, [&]<class Format>() {
#pragma omp parallel num_threads(threads)
        {
            std::vector<float> x(count * wide), found(pairs);
#pragma omp for schedule(static)
            for (int64_t s = 0; s < samples; ++s) {
                gather<Format>(vectors, steps, count, dim, wide, s, x.data());
                dots(x.data(), count, wide, found.data());
                write<Format>(found.data(), pairs, out, s * out_step);
            }
        }
    });
}

// grad [samples, count (count - 1) / 2], its rows `grad_step` apart -> out [samples, count, dim]: the gradient of each vector.
extern "C" void pair_dots_backward(const void* const* vectors, const int64_t* steps, int64_t count, int64_t dim, int64_t samples, int bf16,
                                   const void* grad, int64_t grad_step, void* out, int threads) {
    const int64_t wide = (dim + LANES - 1) / LANES * LANES, pairs = count * (count - 1) / 2;
    with_fp32_or_bf16(bf16, [&]<class Format>() {
#pragma omp parallel num_threads(threads)
        {
            std::vector<float> x(count * wide), y(count * wide), triangle(pairs), g(count * count);
#pragma omp for schedule(static)
            for (int64_t s = 0; s < samples; ++s) {
                gather<Format>(vectors, steps, count, dim, wide, s, x.data());
                read<Format>(grad, s * grad_step, pairs, triangle.data());
                const float* next = triangle.data();
                for (int64_t i = 0; i < count; ++i)
                    for (int64_t j = i + 1; j < count; ++j) g[i * count + j] = g[j * count + i] = *next++;
                back(x.data(), g.data(), count, wide, y.data());
                for (int64_t f = 0; f < count; ++f) write<Format>(y.data() + f * wide, dim, out, (s * count + f) * dim);
            }
        }
    });
}

// grad, made [rows, cols] (made: what the ReLU gave) -> out: the gradient where made is above zero, else 0; and the sum of each of its
// columns [cols], in FP32 by blocks of rows, rounded once.
template <class Format, class Element>
void relu_backward_in(const Element* grad, const Element* made, int64_t rows, int64_t cols, Element* out, void* sums, int threads) {
    constexpr int64_t BLOCKS = 16;
    const int64_t whole = cols / LANES * LANES;
    const int rest = (int)(cols - whole);
    std::vector<float> parts(BLOCKS * cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t block = 0; block < BLOCKS; ++block) {
        float* sum = parts.data() + block * cols;
        for (int64_t row = rows * block / BLOCKS; row < rows * (block + 1) / BLOCKS; ++row) {
            const Element *g = grad + row * cols, *m = made + row * cols;
            Element* o = out + row * cols;
            for (int64_t c = 0; c < whole; c += LANES) store_f32(sum + c, load_f32(sum + c, LANES) + masked(g + c, m + c, o + c, LANES), LANES);
            if (rest) store_f32(sum + whole, load_f32(sum + whole, rest) + masked(g + whole, m + whole, o + whole, rest), rest);
        }
    }
    for (int64_t block = 1; block < BLOCKS; ++block)
        for (int64_t c = 0; c < cols; ++c) parts[c] += parts[block * cols + c];
    write<Format>(parts.data(), cols, sums, 0);
}

// The same in FP32, of rows and columns that sixteen divides; and `turned` [cols, rows], the gradient's transpose.
extern "C" void relu_backward_turned(const float* grad, const float* made, int64_t rows, int64_t cols, float* out, float* turned, float* sums,
                                     int threads) {
    constexpr int64_t BLOCKS = 16;
    const int64_t tiles = rows / LANES;
    std::vector<float> parts(BLOCKS * cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t block = 0; block < BLOCKS; ++block)
        for (int64_t row = tiles * block / BLOCKS * LANES; row < tiles * (block + 1) / BLOCKS * LANES; row += LANES)
            for (int64_t c = 0; c < cols; c += LANES) {
                float* sum = parts.data() + block * cols + c;
                f32v g[LANES], total = load_f32(sum, LANES);
#pragma GCC unroll 16
                for (int i = 0; i < LANES; ++i) {
                    const int64_t at = (row + i) * cols + c;
                    g[i] = masked(grad + at, made + at, out + at, LANES);
                    total += g[i];
                }
                store_f32(sum, total, LANES);
                turn(g);
#pragma GCC unroll 16
                for (int i = 0; i < LANES; ++i) store_f32(turned + (c + i) * rows + row, g[i], LANES);
            }
    for (int64_t block = 1; block < BLOCKS; ++block)
        for (int64_t c = 0; c < cols; ++c) parts[c] += parts[block * cols + c];
    write<Fp32>(parts.data(), cols, sums, 0);
}

extern "C" void relu_backward(const void* grad, const void* made, int64_t rows, int64_t cols, int bf16, void* out, void* sums, int threads) {
    if (bf16)
        relu_backward_in<Bf16>((const uint16_t*)grad, (const uint16_t*)made, rows, cols, (uint16_t*)out, sums, threads);
    else
        relu_backward_in<Fp32>((const float*)grad, (const float*)made, rows, cols, (float*)out, sums, threads);
}
