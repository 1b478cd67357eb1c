// The dots of dots_bf16.h and their way back, in the processor's tiles (AMX).
#pragma once
#include "dots_bf16.h"
#include "tile.h"

#if TILES
namespace {

// x: `rows` vectors, a multiple of PANEL, in rows of `wide`, another. turned: room for as much -> square [rows, rows]: dots of all panels on
// the diagonal and above it.
void tile_dots(const uint16_t* x, int64_t count, int64_t rows, int64_t wide, float* turned, float* square) {
    const int64_t chunks = wide / PANEL;
    for (int64_t j = 0; j < count; j += TILE)  // tile by tile [chunks, PAIRS]: pairs of numbers change sides
        for (int64_t d = 0; d < chunks; ++d) {
            f32v pairs[TILE];
            for (int i = 0; i < TILE; ++i) pairs[i] = load_f32((const float*)(x + (j + i) * wide + d * PANEL), LANES);
            turn(pairs);
            for (int i = 0; i < TILE; ++i) store_f32(turned + (j / TILE * chunks + d) * PAIRS + i * TILE, pairs[i], LANES);
        }
    memory_is_read();
    for (int64_t i = 0; i < rows; i += PANEL)
        for (int64_t j = i; j < rows; j += PANEL) {
            clear_sums();
            const uint16_t *upper = x + i * wide, *lower = upper + TILE * wide;
            const float *left = turned + j / TILE * chunks * PAIRS, *right = left + chunks * PAIRS;
            for (int64_t d = 0; d < chunks; ++d)
                multiply_tiles(upper + d * PANEL, lower + d * PANEL, wide * 2, left + d * PAIRS, right + d * PAIRS, 64);
            float* at = square + i * rows + j;
            store_sums(at, at + TILE, at + TILE * rows, at + TILE * rows + TILE, rows * 4);
        }
}

// y = g x with g [rows, step] and x [rows / 2, wide, 2], its rows in pairs: `count` rows of y to the vectors of `sample`, `lead` added to
// the first of them.
void tile_back(const uint16_t* x, const uint16_t* g, const uint16_t* lead, int64_t rows, int64_t step, int64_t wide, const Vectors& v,
                      int64_t sample, void* const* out, const int64_t* out_steps) {
    alignas(64) float y[4][PAIRS];
    memory_is_read();
    for (int64_t i = 0; i < v.count; i += PANEL)
        for (int64_t col = 0; col < v.dim; col += PANEL) {
            clear_sums();
            for (int64_t k = 0; k < rows; k += PANEL) {
                const uint16_t *a = g + i * step + k, *b = x + k * wide + col * 2;
                multiply_tiles(a, a + TILE * step, step * 2, b, b + PANEL, wide * 4);
            }
            store_sums(y[0], y[1], y[2], y[3], 64);
            memory_is_read();
            for (int64_t r = 0; r < std::min<int64_t>(PANEL, v.count - i); ++r) {
                const float *left = y[r / TILE * 2] + r % TILE * TILE, *right = left + PAIRS;
                f32v first = load_f32(left, LANES), second = load_f32(right, LANES);
                if (lead && i + r == 0) {
                    first += from_bf16(load_u16(lead + col, LANES));
                    second += from_bf16(load_u16(lead + col + TILE, LANES));
                }
                store_bf16((uint16_t*)out[i + r] + sample * out_steps[i + r] + col, rounded(first, second), v.dim - col);
            }
        }
}

struct Tiles {
    static constexpr int BLOCK = PANEL;
    float* turned;
    Tiles(int64_t rows, int64_t wide) {
        static thread_local Scratch<float> memory;
        turned = memory.at_least(rows * wide / 2);
        std::fill(turned, turned + rows * wide / 2, 0.f);
        _tile_loadconfig(&LAYOUT);
    }
    ~Tiles() { _tile_release(); }
    void dots(const uint16_t* x, int64_t count, int64_t rows, int64_t wide, float* square) const { tile_dots(x, count, rows, wide, turned, square); }
    void back(const uint16_t* x, const uint16_t* g, const uint16_t* lead, int64_t rows, int64_t step, int64_t wide, const Vectors& v,
              int64_t sample, void* const* out, const int64_t* out_steps) const {
        tile_back(x, g, lead, rows, step, wide, v, sample, out, out_steps);
    }
};

}  // namespace
#endif
