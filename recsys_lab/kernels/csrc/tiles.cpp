// The product by weights of a BF16 layer, gradient^T input, in the processor's tiles (AMX). A tile product wants the rows of one operand in
// pairs, and those of the other transposed as well. Both are laid out so, a piece at a time, where the second-level cache holds them.
//
// A sum has one order, whatever the number of threads: rows 32 at a time.
#include <omp.h>

#include "lookups.h"
#include "scratch.h"
#include "tile.h"
#if TILES
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if TILES
namespace {

constexpr int ROWS = 2 * TILE;  // of the operands, that a tile product sums over
constexpr int STEPS = 8;        // tile products one after the other before the next piece: a panel of them stays in the first-level cache
constexpr int PANELS = 16;      // of each operand in a piece

// A matrix [rows, columns] whose rows lie `stride` elements apart.
struct Operand {
    const uint16_t* data;
    int64_t stride, rows, columns;
    int64_t panels() const { return (columns + PANEL - 1) / PANEL; }
};

// Of one thread: a piece of each operand, and the sums of all pairs of their panels.
struct Piece {
    alignas(64) uint32_t gradient[PANELS][STEPS][2][PAIRS], input[PANELS][STEPS][2][PAIRS];
    alignas(64) float sums[PANELS][PANELS][4][PAIRS];
};

// `steps` times ROWS rows of `panels` panels, from row `row` and panel `panel` on: two tiles each. What the matrix does not have is zero.
template <bool transposed>
void lay_out(const Operand& of, int64_t row, int steps, int64_t panel, int panels, uint32_t to[PANELS][STEPS][2][PAIRS]) {
    const __m512i first = Split16::every(0, PANEL), second = Split16::every(TILE, PANEL);  // pairs of the left half, and of the right
    for (int step = 0; step < steps; ++step, row += ROWS)
        for (int p = 0; p < panels; ++p) {
            const int64_t column = (panel + p) * PANEL, left = of.columns - column;
            const __mmask32 here = left >= PANEL ? ~0u : (1u << left) - 1;
            auto line = [&](int64_t r) { return r < of.rows ? _mm512_maskz_loadu_epi16(here, of.data + r * of.stride + column) : _mm512_setzero_si512(); };
            f32v tiles[2][TILE];  // of pairs: 32 bits that `turn` moves as they are
            for (int i = 0; i < TILE; ++i) {
                const __m512i even = line(row + 2 * i), odd = line(row + 2 * i + 1);
                tiles[0][i] = (f32v)_mm512_permutex2var_epi16(even, first, odd);
                tiles[1][i] = (f32v)_mm512_permutex2var_epi16(even, second, odd);
            }
            for (int half = 0; half < 2; ++half) {
                if constexpr (transposed) turn(tiles[half]);
                for (int i = 0; i < TILE; ++i) store_f32((float*)to[p][step][half] + TILE * i, tiles[half][i], LANES);
            }
        }
}

// Prefetches the next piece of an operand while this one is multiplied: 128 bytes of it a call.
struct Coming {
    const char* at;
    int64_t row_bytes, lines;  // lines: pairs of them, in all rows
    int64_t done = 0;
    Coming(const Operand& of, int64_t row, int64_t panel) : at((const char*)(of.data + row * of.stride + panel * PANEL)), row_bytes(of.stride * 2),
        lines(std::clamp<int64_t>(of.rows - row, 0, STEPS * ROWS) * PANELS / 2) {}
    INLINE void ask() {
        if (done >= lines) return;
        const char* line = at + done / (PANELS / 2) * row_bytes + done % (PANELS / 2) * 128;
        ask_line<To::second>(line);
        ask_line<To::second>(line + 64);
        ++done;
    }
};

// Adds to the sums of one pair of panels, or begins them.
INLINE void multiply(const uint32_t a[STEPS][2][PAIRS], const uint32_t b[STEPS][2][PAIRS], int steps, bool begin, float sums[4][PAIRS], Coming& one, Coming& other) {
    if (begin) clear_sums();
    else { _tile_loadd(0, sums[0], 64); _tile_loadd(1, sums[1], 64); _tile_loadd(2, sums[2], 64); _tile_loadd(3, sums[3], 64); }
    for (int step = 0; step < steps; ++step) {
        multiply_tiles(a[step][0], a[step][1], 64, b[step][0], b[step][1], 64);
        one.ask();
        other.ask();
    }
    store_sums(sums[0], sums[1], sums[2], sums[3], 64);
}

// The sums of one pair of panels, rounded, to out [rows, columns].
INLINE void write(const float sums[4][PAIRS], int64_t panel_row, int64_t panel_column, int64_t rows, int64_t columns, uint16_t* out) {
    for (int tile = 0; tile < 4; ++tile) {
        const int64_t row = panel_row * PANEL + tile / 2 * TILE, column = panel_column * PANEL + tile % 2 * TILE;
        if (column >= columns) continue;
        for (int64_t r = row; r < std::min<int64_t>(row + TILE, rows); ++r)
            store_u16(out + r * columns + column, to_bf16(load_f32(sums[tile] + (r - row) * TILE, LANES)), lanes(columns, column));
    }
}

void by_weights(const Operand& gradient, const Operand& input, int64_t part, int64_t parts, uint16_t* out) {
    static thread_local Scratch<Piece> kept;
    Piece& piece = *kept.at_least(1);
    const bool by_row = gradient.panels() >= input.panels();  // of the result
    auto cut = [&](int64_t panels, bool mine, int64_t k) { return mine ? panels * k / parts : k == part ? 0 : panels; };
    const int64_t row_stop = cut(gradient.panels(), by_row, part + 1), column_stop = cut(input.panels(), !by_row, part + 1);
    for (int64_t row = cut(gradient.panels(), by_row, part); row < row_stop; row += PANELS)
        for (int64_t column = cut(input.panels(), !by_row, part); column < column_stop; column += PANELS) {
            const int rows = (int)std::min<int64_t>(PANELS, row_stop - row), columns = (int)std::min<int64_t>(PANELS, column_stop - column);
            for (int64_t at = 0; at < gradient.rows; at += STEPS * ROWS) {
                const int steps = (int)std::min<int64_t>(STEPS, (gradient.rows - at + ROWS - 1) / ROWS);
                lay_out<true>(gradient, at, steps, row, rows, piece.gradient);
                lay_out<false>(input, at, steps, column, columns, piece.input);
                memory_is_read();
                Coming next_gradient(gradient, at + STEPS * ROWS, row), next_input(input, at + STEPS * ROWS, column);
                for (int c = 0; c < columns; ++c)
                    for (int r = 0; r < rows; ++r)
                        multiply(piece.gradient[r], piece.input[c], steps, at == 0, piece.sums[c][r], next_gradient, next_input);
            }
            for (int c = 0; c < columns; ++c)
                for (int r = 0; r < rows; ++r) write(piece.sums[c][r], row + r, column + c, gradient.columns, input.columns, out);
        }
}

}  // namespace
#endif

// Whether the processor has tiles, and the system lets this process use them.
extern "C" int tiles_allowed() {
#if TILES
    constexpr int REQUEST = 0x1023, TILE_DATA = 18;  // arch_prctl(2): ARCH_REQ_XCOMP_PERM
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
#else
    return 0;
#endif
}

// gradient [rows, outputs] and input [rows, inputs], BF16, whose rows lie so many elements apart: gradient^T input to out [outputs, inputs].
extern "C" void product_by_weights(const void* gradient, int64_t gradient_stride, const void* input, int64_t input_stride, int64_t rows,
                                   int64_t outputs, int64_t inputs, void* out, int threads) {
#if TILES
#pragma omp parallel num_threads(threads)
    {
        _tile_loadconfig(&LAYOUT);
        by_weights({(const uint16_t*)gradient, gradient_stride, rows, outputs}, {(const uint16_t*)input, input_stride, rows, inputs},
                   omp_get_thread_num(), omp_get_num_threads(), (uint16_t*)out);
        _tile_release();
    }
#endif
}
