// What a batch looks up: ids, and which row of the gradient (or of the output) each belongs to. Mirrored by native.py's Lookups.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "formats.h"

extern "C" struct Lookups {
    const void* ids;            // [n] int32 or int64
    int64_t n;
    const int64_t* offsets;     // [features * samples + 1], bags feature by feature; or null
    int64_t features, samples;
    const int64_t* first_rows;  // [features]: added to the ids of a feature; or null
    const void* source;         // [n] int32 or int64: the gradient's row of each id, where there are no offsets; null: its own
    const float* weights;       // [n] factor of each id; or null
    int32_t wide_ids, wide_source;
};

extern "C" struct Table {
    Matrix matrix;
    int64_t rows, dim;
    int32_t format;
};

constexpr int64_t FINE = -1;

// The first position whose id is out of range, over all threads.
struct FirstBad {
    std::atomic<int64_t> at{INT64_MAX};
    void note(int64_t position) {
        int64_t seen = at.load(std::memory_order_relaxed);
        while (position < seen && !at.compare_exchange_weak(seen, position)) {}
    }
    bool any() const { return at.load() != INT64_MAX; }
    int64_t result() const { return any() ? at.load() : FINE; }
};

// Where a line is asked for: into the first-level cache, into the second alone, or to be written.
enum class To { first, second, write };
template <To to>
INLINE void ask_line(const void* p) {
    if constexpr (to == To::write) __builtin_prefetch(p, 1, 3);
    else __builtin_prefetch(p, 0, to == To::first ? 3 : 2);
}

// Rows at random are asked for ahead of their use: all lines of a row at once, so many rows ahead that the processor never runs out of
// lines to wait for. The compiler knows how many lines: a loop over them takes as long as the row does.
constexpr int64_t rows_ahead(int64_t row_bytes) { return std::clamp<int64_t>((1 << 14) / std::max<int64_t>(1, row_bytes), 8, 128); }
template <int BYTES>  // of a row, or of a block of its columns
struct Ahead {
    static constexpr int lines = BYTES < 64 ? 1 : BYTES / 64;
    static constexpr int64_t rows = rows_ahead(BYTES);
    // `apart`: whether it may reach into one line more, as rows that are no whole lines do.
    template <To to = To::first>
    static INLINE void ask(const void* p, bool apart) {
#pragma GCC unroll 16
        for (int k = 0; k < lines; ++k) ask_line<to>((const char*)p + 64 * k);
        if (apart) ask_line<to>((const char*)p + BYTES - 1);
    }
};

// The same for any number of bytes.
template <To to = To::first>
INLINE void ask(const void* p, int64_t bytes) {
    if (bytes == 512) { Ahead<512>::ask<to>(p, false); return; }  // the usual widths
    if (bytes == 256) { Ahead<256>::ask<to>(p, false); return; }
    if (bytes == 128) { Ahead<128>::ask<to>(p, false); return; }
    for (int64_t at = 0; at < bytes; at += 64) ask_line<to>((const char*)p + at);
    if (bytes % 64 != 0) ask_line<to>((const char*)p + bytes - 1);
}

// Calls f(begin, stop, base, bag) for the ids [from, to) bag by bag.
template <class F>
INLINE void for_bags(const Lookups& l, int64_t from, int64_t to, F&& f) {
    if (from >= to) return;
    const int64_t bags = l.features * l.samples;
    int64_t bag = std::upper_bound(l.offsets, l.offsets + bags + 1, from) - l.offsets - 1;
    int64_t feature = bag / l.samples, left = l.samples - bag % l.samples;  // bags of this feature
    for (int64_t at = from; at < to; ++bag) {
        const int64_t stop = std::min(l.offsets[bag + 1], to);
        if (stop > at) f(at, stop, l.first_rows ? l.first_rows[feature] : 0, bag);
        at = std::max(at, stop);
        if (--left == 0) { left = l.samples; ++feature; }
    }
}

// Calls f(begin, stop, base, feature) for the ids [from, to), feature by feature.
template <class F>
INLINE void for_features(const Lookups& l, int64_t from, int64_t to, F&& f) {
    if (from >= to) return;
    if (!l.offsets || !l.first_rows) { f(from, to, (int64_t)0, (int64_t)0); return; }
    for (int64_t i = 0; i < l.features; ++i) {
        const int64_t begin = std::max(from, l.offsets[i * l.samples]), stop = std::min(to, l.offsets[(i + 1) * l.samples]);
        if (begin < stop) f(begin, stop, l.first_rows[i], i);
    }
}
