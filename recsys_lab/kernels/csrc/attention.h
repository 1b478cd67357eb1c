// What attention over sequences of any length is made of: products by tiles of registers, exponentials, random bits, rows and columns
// exchanged. Each sum has one order, which depends on no thread and no width of registers.
#pragma once
#include <algorithm>
#include <cstring>

#include "formats.h"
#include "scratch.h"

constexpr int ROWS = 6, BESIDE = 2;    // of a tile of sums: its rows, and its registers beside one another
constexpr int PAIR = BESIDE * LANES;   // its columns
constexpr int64_t BLOCK = 96;          // rows or columns of the square that a backward pass has in memory; ROWS and PAIR divide it
constexpr int PARTS = 16 / LANES;      // registers of a sum that has sixteen parts on every machine

struct Rows {
    const float* at;
    int64_t step;  // from a row to the next
    const float* operator[](int64_t row) const { return at + row * step; }
};
// The left factor of a product: its number at (row, k) is at[row * row_step + k * step].
struct Left {
    const float* at;
    int64_t row_step, step;
};
// The right one: its registers at (k, column c) begin at[c / PAIR * pair_step + k * step + c % PAIR].
struct Right {
    const float* at;
    int64_t step, pair_step;
};

// Numbers one by one: a struct would pass through memory, and be read there before all of it is written.
template <int R, int C>
void tile(const float* a, int64_t a_row, int64_t a_step, const float* b, int64_t b_step, int64_t depth, float* out, int64_t out_step, bool add) {
    f32v sum[R][C];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) sum[r][c] = add ? load_all<f32v>(out + r * out_step + c * LANES) : f32v{};
    for (int64_t k = 0; k < depth; ++k, a += a_step, b += b_step) {
        f32v right[C];
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) right[c] = load_all<f32v>(b + c * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const f32v left = all(a[r * a_row]);
#pragma GCC unroll 2
            for (int c = 0; c < C; ++c) sum[r][c] = multiply_add(left, right[c], sum[r][c]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) store_f32(out + r * out_step + c * LANES, sum[r][c], LANES);
}
template <int R>
INLINE void tiles(Left a, Right b, int64_t depth, float* out, int64_t out_step, int64_t registers, bool add) {
    for (; registers >= BESIDE; registers -= BESIDE, b.at += b.pair_step, out += PAIR)
        tile<R, BESIDE>(a.at, a.row_step, a.step, b.at, b.step, depth, out, out_step, add);
    if (registers) tile<R, 1>(a.at, a.row_step, a.step, b.at, b.step, depth, out, out_step, add);
}
// out [rows, registers] = a b, or that added to it. Up to ROWS rows.
inline void product(int64_t rows, Left a, Right b, int64_t depth, float* out, int64_t out_step, int64_t registers, bool add = false) {
    switch (rows) {
        case 1: return tiles<1>(a, b, depth, out, out_step, registers, add);
        case 2: return tiles<2>(a, b, depth, out, out_step, registers, add);
        case 3: return tiles<3>(a, b, depth, out, out_step, registers, add);
        case 4: return tiles<4>(a, b, depth, out, out_step, registers, add);
        case 5: return tiles<5>(a, b, depth, out, out_step, registers, add);
        case 6: return tiles<6>(a, b, depth, out, out_step, registers, add);
    }
}

INLINE int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// LANES rows of as many columns, or `n` of `wide`, turned into LANES rows that are PAIR apart.
INLINE void turned(Rows rows, int64_t first, int n, int64_t column, int wide, float* to) {
    f32v x[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i) x[i] = i < n ? load_f32(rows[first + i] + column, wide) : f32v{};
    turn(x);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i)
        if (i < wide) store_f32(to + i * PAIR, x[i], LANES);
}
// rows [n, dim] -> their transpose as the right factor of a product, PAIR columns after PAIR columns. Columns beyond `n` are zero up to a
// register's end.
inline Right transposed(Rows rows, int64_t n, int64_t dim, Scratch<float>& memory) {
    float* to = memory.at_least(up(n, PAIR) * dim);
    for (int64_t j = 0; j < n; j += LANES)
        for (int64_t c = 0; c < dim; c += LANES) {
            const int high = lanes(n, j), wide = lanes(dim, c);
            float* at = to + j / PAIR * PAIR * dim + c * PAIR + j % PAIR;
            if (high == LANES && wide == LANES) turned(rows, j, LANES, c, LANES, at);
            else turned(rows, j, high, c, wide, at);
        }
    return {to, PAIR, PAIR * dim};
}
// The columns from `column` on, which PAIR divides.
INLINE Right from_column(Right b, int64_t column) { return {b.at + column / PAIR * b.pair_step, b.step, b.pair_step}; }

// Rows in whole registers: where they are, or copied with zeros beyond `dim`.
inline Rows whole(Rows rows, int64_t n, int64_t dim, Scratch<float>& memory) {
    if (dim % LANES == 0) return rows;
    const int64_t wide = up(dim, LANES);
    float* to = memory.at_least(n * wide);
    for (int64_t i = 0; i < n; ++i)
        for (int64_t c = 0; c < dim; c += LANES) store_f32(to + i * wide + c, load_f32(rows[i] + c, lanes(dim, c)), LANES);
    return {to, wide};
}
INLINE Right as_right(Rows rows, int64_t first) { return {rows[first], rows.step, PAIR}; }
INLINE Left as_left(Rows rows, int64_t first) { return {rows[first], rows.step, 1}; }

INLINE f32v larger(f32v a, f32v b) { return b > a ? b : a; }
INLINE float largest(f32v x) {
#pragma GCC unroll 4
    for (int w = LANES / 2; w; w /= 2) x = larger(x, __builtin_shuffle(x, LANE ^ w));
    return x[0];
}
// Of a sum in sixteen parts.
INLINE float total(const f32v (&part)[PARTS]) {
    f32v x = PARTS == 2 ? part[0] + part[PARTS - 1] : part[0];
    if (PARTS == 1) x += __builtin_shuffle(x, LANE ^ 8);
#pragma GCC unroll 3
    for (int w = 4; w; w /= 2) x += __builtin_shuffle(x, LANE ^ w);
    return x[0];
}

// e^x, at most 2 units in the last place off; what is below -87.3 or above 87.3 counts as that. x = n log 2 + r, and e^r by its series with the
// coefficients of Cephes' expf.
INLINE f32v exponential(f32v x) {
    x = x < -87.3f ? all(-87.3f) : x;
    x = x > 87.3f ? all(87.3f) : x;
    const f32v magic = all(12582912.f);  // 1.5 times 2^23: adding it rounds to a whole number
    const f32v whole = multiply_add(x, all(1.44269504f), magic), n = whole - magic;
    const f32v r = multiply_add(n, all(2.12194440e-4f), multiply_add(n, all(-0.693359375f), x));
    f32v p = multiply_add(all(1.9875691500e-4f), r, all(1.3981999507e-3f));
    p = multiply_add(p, r, all(8.3334519073e-3f));
    p = multiply_add(p, r, all(4.1665795894e-2f));
    p = multiply_add(p, r, all(1.6666665459e-1f));
    p = multiply_add(p, r, all(5.0000001201e-1f));
    p = multiply_add(p, r * r, r) + 1.f;
    return p * as_float((as_bits(whole) - as_bits(magic) + 127u) << 23);
}

// Random bits of a number's place: Threefry-2x32 with 13 rounds (Salmon et al. 2011). A counter of two words gives two.
struct Bits {
    uint32_t low, high;  // the key
    INLINE void of(u32v& x, u32v& y) const {
        const uint32_t keys[3] = {low, high, 0x1BD11BDAu ^ low ^ high};
        constexpr int TURNS[8] = {13, 15, 26, 6, 17, 29, 16, 24};
        x += keys[0], y += keys[1];
#pragma GCC unroll 13
        for (int round = 0; round < 13; ++round) {
            const int left = TURNS[round % 8];
            x += y;
            y = (y << left | y >> (32 - left)) ^ x;
            if (round % 4 == 3) {
                const uint32_t at = round / 4 + 1;
                x += keys[at % 3], y += keys[(at + 1) % 3] + at;
            }
        }
    }
};
