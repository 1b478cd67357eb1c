// Ids put into buckets of neighbouring rows, each bucket in the order of the ids. The outcome depends on the ids alone, never on the
// number of threads.
#pragma once
#include <omp.h>

#include <bit>
#include <utility>
#include <vector>

#include "scratch.h"
#include "sections.h"

constexpr int64_t BUCKET_IDS = 1024;       // wished for, if their rows are
constexpr int64_t BUCKET_BYTES = 1 << 18;  // no more
constexpr int64_t MOST_BUCKETS = 1 << 14;  // by this wish; more only where there are very many rows
constexpr int MOST_ROW_BITS = 16;          // rows of a bucket, so that a table over them stays in the second-level cache

struct Buckets {
    int row_bits = 0;     // a bucket is this many low bits of the row
    int source_bits = 0;  // a key is (row's low bits << source_bits) | source
    int64_t count = 0;
    std::vector<int64_t> begin;  // [count + 1] into the keys
};

inline int bits_for(int64_t most) { return most <= 0 ? 1 : std::bit_width((uint64_t)most); }

inline Buckets plan_buckets(int64_t rows, int64_t row_bytes, int64_t n, int64_t sources) {
    Buckets b;
    const int64_t ids = std::clamp<int64_t>(BUCKET_BYTES / std::max<int64_t>(1, row_bytes), 64, BUCKET_IDS);
    const int64_t wished = std::min(MOST_BUCKETS, n / ids);
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
        for_features(l, from, to, [&](int64_t begin, int64_t stop, int64_t base, int64_t) {
            if (l.weights || !l.source) { for (int64_t i = begin; i < stop; ++i) f(i, (int64_t)ids[i] + base, i); }
            else if (l.wide_source) { for (int64_t i = begin; i < stop; ++i) f(i, (int64_t)ids[i] + base, ((const int64_t*)l.source)[i]); }
            else { for (int64_t i = begin; i < stop; ++i) f(i, (int64_t)ids[i] + base, (int64_t)((const int32_t*)l.source)[i]); }
        });
    }
}

// The ids [at, to) of a batch, bag by bag. `left`: of this bag.
struct Bags {
    const Lookups* l = nullptr;
    int64_t at = 0, to = 0, bag = 0, left = 0, base = 0;
    Bags() = default;
    INLINE Bags(const Lookups& of, int64_t from, int64_t past) : l(&of), at(from), to(past) {
        bag = std::upper_bound(of.offsets, of.offsets + of.features * of.samples + 1, from) - of.offsets - 1;
        if (at < to) enter();
    }
    INLINE void enter() {
        left = std::min(l->offsets[bag + 1], to) - at;
        if (l->first_rows) base = l->first_rows[bag / l->samples];
    }
    INLINE void pass(int64_t n) {
        at += n;
        left -= n;
        while (left == 0 && at < to) { ++bag; enter(); }
    }
};

// Where an id goes. `of`: by bucket, where its next one goes.
template <class Key>
struct Put {
    Key* keys;
    int64_t low;
    int row_bits, source_bits;
    INLINE int64_t bucket(int64_t row) const { return (row - low) >> row_bits; }
    INLINE void operator()(int64_t* of, int64_t row, int64_t source) const {
        row -= low;
        int64_t& at = of[row >> row_bits];
        __builtin_prefetch(keys + at + 64 / sizeof(Key), 1, 3);
        const Key mask = (Key)((Key(1) << row_bits) - 1);
        keys[at++] = (Key)((Key(row) & mask) << source_bits | (Key)source);
    }
};

// Calls first(row, source) and second(row, source) for the ids [from, middle) and [middle, to) in turns: where most ids are of one bucket,
// each waits for the one before it in its half alone.
template <class Id, class F, class G>
INLINE void for_halves(const Lookups& l, int64_t from, int64_t middle, int64_t to, F&& first, G&& second) {
    const Id* ids = (const Id*)l.ids;
    Bags a(l, from, middle), b(l, middle, to);
    while (a.at < a.to && b.at < b.to) {
        const int64_t n = std::min(a.left, b.left);
        const Id *of_a = ids + a.at, *of_b = ids + b.at;
        for (int64_t i = 0; i < n; ++i) {
            first((int64_t)of_a[i] + a.base, a.bag);
            second((int64_t)of_b[i] + b.base, b.bag);
        }
        a.pass(n);
        b.pass(n);
    }
    for (; a.at < a.to; a.pass(a.left)) for (int64_t i = 0; i < a.left; ++i) first((int64_t)ids[a.at + i] + a.base, a.bag);
    for (; b.at < b.to; b.pass(b.left)) for (int64_t i = 0; i < b.left; ++i) second((int64_t)ids[b.at + i] + b.base, b.bag);
}

// Fills `keys` [n] and `b.begin`, with the rows of the section counted from its lowest.
template <class Key, class Id>
void partition(const Section& s, Buckets& b, Key* keys, int threads) {
    static thread_local Scratch<int64_t> counts_of_threads;
    int64_t* counts = counts_of_threads.at_least((size_t)2 * threads * b.count);
    b.begin.resize(b.count + 1);
    const bool bags = s.l.offsets && !s.l.weights;
#pragma omp parallel num_threads(threads)
    {
        const int64_t me = omp_get_thread_num(), all = omp_get_num_threads();
        const int64_t from = s.from + s.n() * me / all, to = s.from + s.n() * (me + 1) / all, middle = from + (to - from) / 2, low = s.low;
        const Put<Key> put{keys, low, b.row_bits, b.source_bits};
        int64_t *const mine = counts + 2 * me * b.count, *const rest = mine + b.count;  // of the first half, or of all; of the second
        std::fill(mine, rest + b.count, 0);
        auto count = [&](int64_t* of, int64_t row) __attribute__((always_inline)) { ++of[put.bucket(row)]; };
        if (bags) {
            for_halves<Id>(s.l, from, middle, to, [&](int64_t row, int64_t) __attribute__((always_inline)) { count(mine, row); },
                           [&](int64_t row, int64_t) __attribute__((always_inline)) { count(rest, row); });
        } else {
            for_ids<Id>(s.l, from, to, [&](int64_t, int64_t row, int64_t) __attribute__((always_inline)) { count(mine, row); });
        }
#pragma omp barrier
#pragma omp single
        {
            int64_t at = 0;
            for (int64_t k = 0; k < b.count; ++k) {
                b.begin[k] = at;
                for (int64_t half = 0; half < 2 * all; ++half) at += std::exchange(counts[half * b.count + k], at);
            }
            b.begin[b.count] = at;
        }
        if (bags) {
            for_halves<Id>(s.l, from, middle, to, [&](int64_t row, int64_t source) __attribute__((always_inline)) { put(mine, row, source); },
                           [&](int64_t row, int64_t source) __attribute__((always_inline)) { put(rest, row, source); });
        } else {
            for_ids<Id>(s.l, from, to, [&](int64_t, int64_t row, int64_t source) __attribute__((always_inline)) { put(mine, row, source); });
        }
    }
}
