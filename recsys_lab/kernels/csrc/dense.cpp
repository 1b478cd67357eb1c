// What lies between the matrix products of a dense part: the ways back through a ReLU and through a layer with one output. Each sum has
// one order, whatever the number of threads.
#include <omp.h>

#include <algorithm>
#include <vector>

#include "formats.h"

namespace {

template <class Format>
INLINE void put(void* p, int64_t at, f32v x, int n = LANES) { Format::store(Matrix{p, nullptr}, at, x, n); }

constexpr int64_t BLOCKS = 16;  // of rows, each summed by itself

// parts [BLOCKS, cols]: their sum, block after block, in a format.
template <class Format>
void write_sums(std::vector<float>& parts, int64_t cols, void* to) {
    for (int64_t block = 1; block < BLOCKS; ++block)
        for (int64_t c = 0; c < cols; ++c) parts[c] += parts[block * cols + c];
    for (int64_t c = 0; c < cols; c += LANES) {
        const int n = lanes(cols, c);
        put<Format>(to, c, load_f32(parts.data() + c, n), n);
    }
}

// LANES of a gradient, zero where the ReLU gave nothing. Returned widened, and stored as they came.
INLINE f32v masked(const float* grad, const float* made, float* out, int n) {
    const f32v g = as_float(as_bits(load_f32(grad, n)) & (u32v)(load_f32(made, n) > f32v{}));
    store_f32(out, g, n);
    return g;
}
INLINE u16v masked(const uint16_t* grad, const uint16_t* made, int n) {
    typedef int16_t i16v __attribute__((vector_size(2 * LANES)));
    return load_u16(grad, n) & (u16v)((i16v)load_u16(made, n) > i16v{});  // a BF16 number's sign is that of its bits
}
INLINE f32v masked(const uint16_t* grad, const uint16_t* made, uint16_t* out, int n) {
    const u16v g = masked(grad, made, n);
    store_u16(out, g, n);
    return from_bf16(g);
}
INLINE f32v masked(const uint16_t* grad, const uint16_t* made, float* out, int n) {  // stored widened
    const f32v g = from_bf16(masked(grad, made, n));
    store_f32(out, g, n);
    return g;
}

// Rows [row, stop): out = the gradient where made is above zero, else 0; each column is added to its sum.
template <class Element, class Out>
void add_masked(const Element* grad, const Element* made, int64_t row, int64_t stop, int64_t cols, Out* out, float* sum) {
    const int64_t whole = cols / LANES * LANES;
    const int rest = (int)(cols - whole);
    for (; row < stop; ++row) {
        const Element *g = grad + row * cols, *m = made + row * cols;
        Out* o = out + row * cols;
        for (int64_t c = 0; c < whole; c += LANES) store_f32(sum + c, load_f32(sum + c, LANES) + masked(g + c, m + c, o + c, LANES), LANES);
        if (rest) store_f32(sum + whole, load_f32(sum + whole, rest) + masked(g + whole, m + whole, o + whole, rest), rest);
    }
}

}  // namespace

// grad, made [rows, cols] (made: what the ReLU gave) -> out: the gradient where made is above zero, else 0; and the sum of each of its
// columns [cols], in FP32 by blocks of rows, rounded once.
template <class Format, class Element, class Out>
void relu_backward_in(const Element* grad, const Element* made, int64_t rows, int64_t cols, Out* out, void* sums, int threads) {
    std::vector<float> parts(BLOCKS * cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t block = 0; block < BLOCKS; ++block)
        add_masked(grad, made, rows * block / BLOCKS, rows * (block + 1) / BLOCKS, cols, out, parts.data() + block * cols);
    write_sums<Format>(parts, cols, sums);
}

// LANES rows by as many columns, which `rows` and `cols` have whole, of the matrix from [rows, cols] to the transpose [cols, rows].
INLINE void turn_block(const float* from, int64_t row, int64_t column, int64_t rows, int64_t cols, float* to) {
    f32v g[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i) g[i] = load_f32(from + (row + i) * cols + column, LANES);
    turn(g);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i) store_f32(to + (column + i) * rows + row, g[i], LANES);
}
// Twice as many of both in BF16: pairs of rows are FP32's size. What is not there is neither read nor written. Whole lines go past the
// caches, which would read each from memory before it is written: that takes four times as long.
INLINE void turn_block(const uint16_t* from, int64_t row, int64_t column, int64_t rows, int64_t cols, uint16_t* to) {
    constexpr int SIDE = 2 * LANES;
    const int high = (int)std::min<int64_t>(SIDE, rows - row), wide = (int)std::min<int64_t>(SIDE, cols - column);
#if WIDE_MASKS
    auto first = [](int n) { return n < SIDE ? (1u << n) - 1 : ~0u; };
    const __m512i left = Split16::every(0, SIDE), right = Split16::every(LANES, SIDE);
    auto line = [&](int i) { return i < high ? _mm512_maskz_loadu_epi16(first(wide), from + (row + i) * cols + column) : _mm512_setzero_si512(); };
    f32v pairs[2][LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i) {
        const __m512i even = line(2 * i), odd = line(2 * i + 1);
        pairs[0][i] = (f32v)_mm512_permutex2var_epi16(even, left, odd);
        pairs[1][i] = (f32v)_mm512_permutex2var_epi16(even, right, odd);
    }
    const bool lines = high == SIDE && ((uintptr_t)to | 2 * rows) % 64 == 0;
    for (int half = 0; half < 2; ++half) {
        turn(pairs[half]);
        uint16_t* line = to + (column + half * LANES) * rows + row;
        for (int i = 0; i < std::min(LANES, wide - half * LANES); ++i, line += rows)
            if (lines) _mm512_stream_si512((__m512i*)line, (__m512i)pairs[half][i]);
            else _mm512_mask_storeu_epi16(line, first(high), (__m512i)pairs[half][i]);
    }
    _mm_sfence();
#else
    for (int i = 0; i < high; ++i)
        for (int c = 0; c < wide; ++c) to[(column + c) * rows + row + i] = from[(row + i) * cols + column + c];
#endif
}

// The same, and `turned` [cols, rows], the gradient's transpose: of a slab of rows at a time, which wait in a core's cache for it.
template <class Format, class Element>
void relu_backward_turned_in(const Element* grad, const Element* made, int64_t rows, int64_t cols, Element* out, Element* turned, void* sums,
                             int threads) {
    constexpr int64_t SIDE = LANES * sizeof(float) / sizeof(Element), SLAB = 4 * SIDE;
    const int64_t tiles = (rows + SIDE - 1) / SIDE;
    std::vector<float> parts(BLOCKS * cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t block = 0; block < BLOCKS; ++block) {
        const int64_t past = std::min(rows, tiles * (block + 1) / BLOCKS * SIDE);
        for (int64_t first = tiles * block / BLOCKS * SIDE; first < past; first += SLAB) {
            const int64_t stop = std::min(past, first + SLAB);
            add_masked(grad, made, first, stop, cols, out, parts.data() + block * cols);
            for (int64_t c = 0; c < cols; c += SIDE)
                for (int64_t row = first; row < stop; row += SIDE) turn_block(out, row, c, rows, cols, turned);
        }
    }
    write_sums<Format>(parts, cols, sums);
}

// In FP32 sixteen divides rows and columns.
extern "C" void relu_backward_turned(const void* grad, const void* made, int64_t rows, int64_t cols, int bf16, void* out, void* turned, void* sums,
                                     int threads) {
    if (bf16)
        relu_backward_turned_in<Bf16>((const uint16_t*)grad, (const uint16_t*)made, rows, cols, (uint16_t*)out, (uint16_t*)turned, sums, threads);
    else
        relu_backward_turned_in<Fp32>((const float*)grad, (const float*)made, rows, cols, (float*)out, (float*)turned, sums, threads);
}

// x [rows, cols], grad [rows], weight [cols] -> of_x [rows, cols], grad times weight; and of_weight [cols], x transposed times grad, in FP32
// by blocks of rows, rounded once.
template <class Format>
void to_one_backward_in(const Matrix& x, const Matrix& grad, const Matrix& weight, int64_t rows, int64_t cols, const Matrix& of_x, void* of_weight,
                        int threads) {
    std::vector<float> parts(BLOCKS * cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t block = 0; block < BLOCKS; ++block) {
        float* sum = parts.data() + block * cols;
        for (int64_t row = rows * block / BLOCKS; row < rows * (block + 1) / BLOCKS; ++row) {
            const f32v g = all(Format::load(grad, row, 1)[0]);
            for (int64_t c = 0; c < cols; c += LANES) {
                const int n = lanes(cols, c);
                Format::store(of_x, row * cols + c, Format::load(weight, c, n) * g, n);
                store_f32(sum + c, multiply_add(Format::load(x, row * cols + c, n), g, load_f32(sum + c, n)), n);
            }
        }
    }
    write_sums<Format>(parts, cols, of_weight);
}

extern "C" void to_one_backward(void* x, void* grad, void* weight, int64_t rows, int64_t cols, int bf16, void* of_x, void* of_weight, int threads) {
    auto in = [&]<class Format>() {
        to_one_backward_in<Format>({x, nullptr}, {grad, nullptr}, {weight, nullptr}, rows, cols, {of_x, nullptr}, of_weight, threads);
    };
    if (bf16) in.template operator()<Bf16>();
    else in.template operator()<Fp32>();
}

extern "C" void relu_backward(const void* grad, const void* made, int64_t rows, int64_t cols, int bf16, void* out, void* sums, int threads) {
    if (bf16)
        relu_backward_in<Bf16>((const uint16_t*)grad, (const uint16_t*)made, rows, cols, (uint16_t*)out, sums, threads);
    else
        relu_backward_in<Fp32>((const float*)grad, (const float*)made, rows, cols, (float*)out, sums, threads);
}

extern "C" void relu_backward_widened(const uint16_t* grad, const uint16_t* made, int64_t rows, int64_t cols, float* out, void* sums, int threads) {
    relu_backward_in<Bf16>(grad, made, rows, cols, out, sums, threads);
}
