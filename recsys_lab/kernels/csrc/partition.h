// Ids put into buckets of neighbouring rows, each bucket in the order of the ids; then, bucket by bucket, into one run a row.
// The outcome depends on the ids alone, never on the number of threads.
#pragma once
#include <omp.h>

#include <bit>
#include <vector>

#include "lookups.h"
#include "scratch.h"

constexpr int64_t BUCKET_IDS = 1024;      // wished for
constexpr int64_t MOST_BUCKETS = 1 << 14;  // by this wish; more only where there are very many rows
constexpr int MOST_ROW_BITS = 16;         // rows of a bucket, so that a table over them stays in the second-level cache

struct Buckets {
    int row_bits = 0;     // a bucket is this many low bits of the row
    int source_bits = 0;  // a key is (row's low bits << source_bits) | source
    int64_t count = 0;
    std::vector<int64_t> begin;  // [count + 1] into the keys
};

inline int bits_for(int64_t most) { return most <= 0 ? 1 : std::bit_width((uint64_t)most); }

inline Buckets plan_buckets(int64_t rows, int64_t n, int64_t sources) {
    Buckets b;
    const int64_t wished = std::min(MOST_BUCKETS, n / BUCKET_IDS);
    b.row_bits = MOST_ROW_BITS;
    while (b.row_bits > 0 && ((rows - 1) >> b.row_bits) + 1 < wished) --b.row_bits;
    b.source_bits = bits_for(sources - 1);
    b.count = ((rows - 1) >> b.row_bits) + 1;
    return b;
}

// Calls f(position, row, source) for the ids [from, to).
template <class Id, class F>
INLINE void for_ids(const Lookups& l, int64_t from, int64_t to, F&& f) {
    const Id* ids = (const Id*)l.ids;
    if (l.offsets && !l.weights) {
        for_bags(l, from, to, [&](int64_t begin, int64_t stop, int64_t base, int64_t source) {
            for (int64_t i = begin; i < stop; ++i) f(i, (int64_t)ids[i] + base, source);
        });
    } else {
        for_features(l, from, to, [&](int64_t begin, int64_t stop, int64_t base) {
            if (l.weights || !l.source) { for (int64_t i = begin; i < stop; ++i) f(i, (int64_t)ids[i] + base, i); }
            else if (l.wide_source) { for (int64_t i = begin; i < stop; ++i) f(i, (int64_t)ids[i] + base, ((const int64_t*)l.source)[i]); }
            else { for (int64_t i = begin; i < stop; ++i) f(i, (int64_t)ids[i] + base, (int64_t)((const int32_t*)l.source)[i]); }
        });
    }
}

// Fills `keys` [n] and `b.begin`. An id or source out of range is noted, and then nothing is filled.
template <class Key, class Id>
void partition(const Lookups& l, int64_t rows, int64_t sources, Buckets& b, Key* keys, int threads, FirstBad& bad) {
    static thread_local Scratch<int64_t> counts_of_threads;
    int64_t* counts = counts_of_threads.at_least((size_t)threads * b.count);
    b.begin.resize(b.count + 1);
#pragma omp parallel num_threads(threads)
    {
        const int64_t me = omp_get_thread_num(), all = omp_get_num_threads(), from = l.n * me / all, to = l.n * (me + 1) / all;
        int64_t* mine = counts + me * b.count;
        std::fill(mine, mine + b.count, 0);
        const Id* ids = (const Id*)l.ids;
        for_features(l, from, to, [&](int64_t begin, int64_t stop, int64_t base) {
            for (int64_t i = begin; i < stop; ++i) {
                const int64_t row = (int64_t)ids[i] + base;
                if ((uint64_t)row >= (uint64_t)rows) { bad.note(i); continue; }
                ++mine[row >> b.row_bits];
            }
        });
#pragma omp barrier
#pragma omp single
        {
            int64_t at = 0;
            for (int64_t k = 0; k < b.count; ++k) {
                b.begin[k] = at;
                for (int64_t t = 0; t < all; ++t) {
                    const int64_t here = counts[t * b.count + k];
                    counts[t * b.count + k] = at;
                    at += here;
                }
            }
            b.begin[b.count] = at;
        }
        if (!bad.any()) {
            const Key mask = (Key)((Key(1) << b.row_bits) - 1);
            for_ids<Id>(l, from, to, [&](int64_t i, int64_t row, int64_t source) {
                if ((uint64_t)source >= (uint64_t)sources) { bad.note(i); return; }
                keys[mine[row >> b.row_bits]++] = (Key)((Key(row) & mask) << b.source_bits | (Key)source);
            });
        }
    }
}

constexpr int64_t TAIL = 256;  // rows to come that stand behind those of a bucket

// The runs of a bucket: row[u] has the sources [begin[u], begin[u + 1]) of `source`, in the order of the ids.
struct Runs {
    uint32_t *row, *begin, *source, *place;  // [n + TAIL], [n + 2], [n], [n]
    int64_t count = 0, n = 0;

    // Puts the rows that will be updated after these behind them; the last one again and again where there are no more.
    void follow(const Runs* next) {
        const int64_t more = next ? std::min(next->count, TAIL) : 0;
        std::copy(next ? next->row : row, (next ? next->row : row) + more, row + count);
        std::fill(row + count + more, row + count + TAIL, row[count + more - 1]);
    }
};

// `head`: zero for every row of a bucket, and left so.
template <class Key>
INLINE void group(const Key* keys, int64_t n, int64_t first_row, int source_bits, uint32_t* head, Runs& r) {
    uint32_t runs = 0;
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t row = (uint32_t)(keys[i] >> source_bits);
        const uint32_t seen = head[row], u = seen ? seen : ++runs;  // counted from 1
        head[row] = u;
        r.row[u - 1] = row;
        r.begin[u + 1] = seen ? r.begin[u + 1] + 1 : 1;  // how many
        r.place[i] = u;
    }
    r.begin[0] = r.begin[1] = 0;
    for (uint32_t u = 1; u <= runs; ++u) {
        head[r.row[u - 1]] = 0;
        r.row[u - 1] += (uint32_t)first_row;
        r.begin[u + 1] += r.begin[u];  // begin[u]: where the next source of run u goes
    }
    const Key mask = (Key)((Key(1) << source_bits) - 1);
    for (int64_t i = 0; i < n; ++i) r.source[r.begin[r.place[i]]++] = (uint32_t)(keys[i] & mask);
    r.count = runs;
    r.n = n;
}
