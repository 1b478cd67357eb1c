// The processor's tiles for BF16 products (AMX): eight registers of sixteen rows of 64 bytes.
#pragma once
#include <cstdint>

#include "formats.h"
#if defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__linux__)
#define TILES 1
#else
#define TILES 0
#endif

#if TILES
constexpr int TILE = 16;            // rows of a tile, and its columns: pairs of BF16 numbers, or FP32 sums
constexpr int PANEL = 2 * TILE;     // BF16 numbers in a row of a tile
constexpr int PAIRS = TILE * TILE;  // of a tile

// In memory of its own: the compiler believes that the instruction reads its first eight bytes alone.
struct Layout {
    uint8_t palette = 1, start = 0, none[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {TILE, TILE, TILE, TILE, TILE, TILE, TILE, TILE};
};
inline const Layout LAYOUT;

// Two by two tiles of products: sums 0 to 3, of the left operand's tiles 4 and 5 and the right one's 6 and 7.
INLINE void multiply_tiles(const void* a0, const void* a1, int64_t a_bytes, const void* b0, const void* b1, int64_t b_bytes) {
    _tile_loadd(4, a0, a_bytes);
    _tile_loadd(6, b0, b_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b1, b_bytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a1, a_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}
INLINE void clear_sums() { _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3); }
INLINE void store_sums(float* s0, float* s1, float* s2, float* s3, int64_t bytes) {
    _tile_stored(0, s0, bytes);
    _tile_stored(1, s1, bytes);
    _tile_stored(2, s2, bytes);
    _tile_stored(3, s3, bytes);
}
INLINE void memory_is_read() { asm volatile("" ::: "memory"); }  // the compiler does not know that a tile is loaded from memory
#endif
