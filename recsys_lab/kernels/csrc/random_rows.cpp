// Random rows, for benchmarks: how fast memory lets a loop read, or read and write, the rows of a list, when it does nothing else.
#include <omp.h>

#include "lookups.h"

// Calls f(row) for this thread's share of `rows`, and ahead(row) so many rows before it.
template <class F, class Ahead>
INLINE void for_rows(const int64_t* rows, int64_t n, int64_t distance, F&& f, Ahead&& ahead) {
    const int64_t me = omp_get_thread_num(), all = omp_get_num_threads(), stop = n * (me + 1) / all;
    for (int64_t i = n * me / all; i < stop; ++i) {
        if (i + distance < stop) ahead(rows[i + distance]);
        f(rows[i]);
    }
}

// WIDTH: floats of a row where the compiler knows them, so that it has a sum for each vector of a row; else 0.
template <int WIDTH, To to>
float read_rows(const float* p, int64_t width, const int64_t* rows, int64_t n, int64_t distance, int threads) {
    if (WIDTH) width = WIDTH;
    float total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        constexpr int SUMS = WIDTH ? WIDTH / LANES : 1;
        f32v sums[SUMS] = {};
        for_rows(rows, n, distance, [&](int64_t row) __attribute__((always_inline)) {
#pragma GCC unroll 8
            for (int64_t col = 0; col < width; col += LANES) sums[WIDTH ? col / LANES : 0] += load_f32(p + row * width + col, lanes(width, col));
        }, [&](int64_t row) __attribute__((always_inline)) { ask<to>(p + row * width, width * 4); });
        for (const f32v& sum : sums) for (int i = 0; i < LANES; ++i) total += sum[i];
    }
    return total;
}

// What is added to row i of the list: `factor` times row source[i] of `rows`, which are as wide as all parts of a row. Or nothing, and rows are
// multiplied.
struct Added { const float* rows; const int64_t* source; };

template <int WIDTH>
void update_rows(float* p, float* q, int64_t width, const int64_t* rows, int64_t n, float factor, Added added, int64_t distance, int64_t near, int threads) {
    if (WIDTH) width = WIDTH;
    constexpr int64_t GRADIENTS_AHEAD = 8;
    const int64_t wide = q ? 2 * width : width;
#pragma omp parallel num_threads(threads)
    {
        const int64_t me = omp_get_thread_num(), all = omp_get_num_threads(), stop = n * (me + 1) / all;
        auto ask_row = [&]<To to>(int64_t row) __attribute__((always_inline)) {
            ask<to>(p + row * width, width * 4);
            if (q) ask<to>(q + row * width, width * 4);
        };
        for (int64_t i = n * me / all; i < stop; ++i) {
            if (i + distance < stop) { if (near) ask_row.template operator()<To::second>(rows[i + distance]); else ask_row.template operator()<To::write>(rows[i + distance]); }
            if (near && i + near < stop) ask_row.template operator()<To::write>(rows[i + near]);
            const float* gradient = added.rows ? added.rows + added.source[i] * wide : nullptr;
            if (gradient && i + GRADIENTS_AHEAD < stop) ask(added.rows + added.source[i + GRADIENTS_AHEAD] * wide, wide * 4);
            for (float* table : {p, q}) {
                if (!table) continue;
#pragma GCC unroll 8
                for (int64_t col = 0; col < width; col += LANES) {
                    float* at = table + rows[i] * width + col;
                    const int some = lanes(width, col);
                    const f32v old = load_f32(at, some);
                    store_f32(at, gradient ? old + load_f32(gradient + (table == q ? width : 0) + col, some) * factor : old * factor, some);
                }
            }
        }
    }
}

template <To to>
float read_rows(const float* p, int64_t width, const int64_t* rows, int64_t n, int64_t distance, int threads) {
    return (width == 64 ? read_rows<64, to> : width == 32 ? read_rows<32, to> : read_rows<0, to>)(p, width, rows, n, distance, threads);
}

// The sum of rows of `width` floats. Each row is asked for `distance` rows before it is read; if `second`, into the second-level cache alone.
extern "C" float random_read(const float* p, int64_t width, const int64_t* rows, int64_t n, int64_t distance, int second, int threads) {
    return (second ? read_rows<To::second> : read_rows<To::first>)(p, width, rows, n, distance, threads);
}

// Multiplies rows of `width` floats in place, or adds to them; of `q`, if there is one, the same rows. Each is asked for `distance` rows before,
// to be written; or, where `near` is not 0, into the second-level cache, and `near` rows before to be written.
extern "C" void random_update(float* p, float* q, int64_t width, const int64_t* rows, int64_t n, float factor, const float* gradient,
                              const int64_t* source, int64_t distance, int64_t near, int threads) {
    (width == 64 ? update_rows<64> : width == 32 ? update_rows<32> : update_rows<0>)(p, q, width, rows, n, factor, {gradient, source}, distance, near, threads);
}

// Puts memory out of all caches. Whether it can.
extern "C" int evict(const void* p, int64_t bytes) {
#if defined(__x86_64__)
    for (int64_t at = 0; at < bytes; at += 64) _mm_clflush((const char*)p + at);
    _mm_mfence();
    return 1;
#else
    return 0;
#endif
}
