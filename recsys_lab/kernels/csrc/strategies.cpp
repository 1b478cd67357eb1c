// Algorithms 2, 3 and 4 of the CPU DLRM paper as they stand there, for plain SGD: w += -lr * g for every occurrence by itself.
// They are here to be compared with update.cpp, which sums first.
#include <omp.h>

#include <cstdlib>

#include "gradient.h"
#include "optimizers.h"
#include "partition.h"

namespace {

constexpr int64_t ROWS_AHEAD = 16;

// Rows of the gradient that ids take, one by one.
template <class Id, class F>
void each(const Lookups& l, int64_t rows, int64_t from, int64_t to, FirstBad& bad, F&& f) {
    for_ids<Id>(l, from, to, [&](int64_t i, int64_t row, int64_t source) {
        if ((uint64_t)row >= (uint64_t)rows) bad.note(i); else f(i, row, (uint32_t)source);
    });
}

template <class Format>
INLINE void step(const Table& t, const Rule& r, int64_t row, const float* g) {
    for (int64_t c = 0; c < t.dim; c += LANES) {
        const int n = lanes(t.dim, c);
        const int64_t at = row * t.dim + c;
        Format::store(t.matrix, at, Format::load(t.matrix, at, n) - load_f32(g + c, LANES) * r.lr, n);
    }
}

INLINE void atomic_subtract(float* p, float change) {
    uint32_t seen = __atomic_load_n((uint32_t*)p, __ATOMIC_RELAXED), want;
    do {
        float w;
        std::memcpy(&w, &seen, 4);
        w -= change;
        std::memcpy(&want, &w, 4);
    } while (!__atomic_compare_exchange_n((uint32_t*)p, &seen, want, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

template <class Id>
void strategy(const Table& t, const Lookups& l, const Gradient& gradient, const Rule& r, int which, int threads, FirstBad& bad) {
    const int64_t padded = (t.dim + LANES - 1) / LANES * LANES;
    const Sum sum{t.dim, l, gradient};
    each<Id>(l, t.rows, 0, l.n, bad, [](int64_t, int64_t, uint32_t) {});
    if (bad.any()) return;
    if (which == 0) {  // algorithm 2, then 3, serially
        float* every = (float*)std::malloc(4 * std::max<int64_t>(1, l.n * padded));
        each<Id>(l, t.rows, 0, l.n, bad, [&](int64_t i, int64_t, uint32_t s) { sum.of(&s, 1, 1, every + i * padded); });
        with_format(t.format, [&]<class Format>() {
            each<Id>(l, t.rows, 0, l.n, bad, [&](int64_t i, int64_t row, uint32_t) { step<Format>(t, r, row, every + i * padded); });
        });
        std::free(every);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        const int64_t me = omp_get_thread_num(), all = omp_get_num_threads();
        static thread_local Scratch<float> memory;
        float* g = memory.at_least(padded);
        const Id* ids = (const Id*)l.ids;
        if (which == 1) {  // algorithm 3: ids are shared out, FP32 only
            float* weight = (float*)t.matrix.weight;
            const int64_t stop = l.n * (me + 1) / all;
            each<Id>(l, t.rows, l.n * me / all, stop, bad, [&](int64_t i, int64_t row, uint32_t s) {
                if (i + ROWS_AHEAD < stop) ask((const char*)weight + (row - ids[i] + ids[i + ROWS_AHEAD]) * t.dim * 4, t.dim * 4);
                sum.of(&s, 1, 1, g);
                for (int64_t c = 0; c < t.dim; ++c) atomic_subtract(weight + row * t.dim + c, g[c] * r.lr);
            });
        } else {  // algorithm 4: rows are shared out, every thread goes over all ids
            const int64_t first = t.rows * me / all, past = t.rows * (me + 1) / all;
            with_format(t.format, [&]<class Format>() {
                each<Id>(l, t.rows, 0, l.n, bad, [&](int64_t i, int64_t row, uint32_t s) {
                    if (i + ROWS_AHEAD < l.n) {
                        const int64_t ahead = row - ids[i] + ids[i + ROWS_AHEAD];
                        if (ahead >= first && ahead < past) {
                            const int64_t bytes = t.dim * Format::bytes, low_bytes = t.dim * Format::low_bytes;
                            ask((const char*)t.matrix.weight + ahead * bytes, bytes);
                            if (low_bytes) ask((const char*)t.matrix.low + ahead * low_bytes, low_bytes);
                        }
                    }
                    if (row < first || row >= past) return;
                    sum.of(&s, 1, 1, g);
                    step<Format>(t, r, row, g);
                });
            });
        }
    }
}

}  // namespace

// `which`: 0 reference, 1 atomic, 2 race-free. -1, or the first position whose id is out of range; then nothing was changed.
extern "C" int64_t update_by(const Table* t, const Lookups* l, const Gradient* g, const Rule* r, int which, int threads) {
    FirstBad bad;
    const Gradient gradient = l->offsets ? by_bag(*t, *l, *g, threads) : *g;
    if (l->wide_ids) strategy<int64_t>(*t, *l, gradient, *r, which, threads, bad);
    else strategy<int32_t>(*t, *l, gradient, *r, which, threads, bad);
    return bad.result();
}
