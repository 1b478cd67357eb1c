// A batch cut into sections: neighbouring features whose rows no other feature has. A thread updates a section by itself, where they share
// out evenly: what it makes of one (its gradient bag by bag, its ids by bucket) it then reads from its own caches.
#pragma once
#include <omp.h>

#include <vector>

#include "lookups.h"

constexpr int64_t SECTION_IDS = 4096;  // at least

struct Section {
    Lookups l;                  // its features; positions are still those of the whole batch
    int64_t first_feature;
    int64_t from, to;           // its ids
    int64_t low = 0, past = 0;  // its rows are among [low, past)
    int64_t n() const { return to - from; }
};

// Whether sections share out evenly among threads that take the next one when they are done.
inline bool even(const std::vector<Section>& sections, int64_t n, int threads) {
    std::vector<int64_t> taken(threads);
    for (const Section& s : sections) *std::min_element(taken.begin(), taken.end()) += s.n();
    return 8 * threads * *std::max_element(taken.begin(), taken.end()) <= 9 * n;
}

struct Extent {
    int64_t low = INT64_MAX, high = INT64_MIN;
    Extent with(Extent other) const { return {std::min(low, other.low), std::max(high, other.high)}; }
};

// The smallest and the largest of ids [from, to).
template <class Id>
INLINE Extent extent(const Id* ids, int64_t from, int64_t to) {
    Id low = ids[from], high = ids[from];
    for (int64_t i = from; i < to; ++i) {
        const Id id = ids[i];
        low = id < low ? id : low;
        high = id > high ? id : high;
    }
    return {low, high};
}

// The rows of each feature; of all together, if they have no first rows. An id that is out of range is noted.
template <class Id>
std::vector<Extent> extents(const Lookups& l, int64_t rows, int threads, FirstBad& bad) {
    const int64_t features = l.offsets && l.first_rows ? l.features : 1;
    std::vector<Extent> found(threads * features);
    const Id* ids = (const Id*)l.ids;
#pragma omp parallel num_threads(threads)
    {
        const int64_t me = omp_get_thread_num(), all = omp_get_num_threads();
        for_features(l, l.n * me / all, l.n * (me + 1) / all, [&](int64_t from, int64_t to, int64_t base, int64_t feature) {
            const Extent of = extent(ids, from, to);
            if (of.low < -base || of.high >= rows - base)  // an id may be so large that a sum would overflow
                for (int64_t i = from; i < to; ++i) if ((int64_t)ids[i] < -base || (int64_t)ids[i] >= rows - base) bad.note(i);
            found[me * features + feature] = {of.low + base, of.high + base};
        });
    }
    for (int64_t i = features; i < (int64_t)found.size(); ++i) found[i % features] = found[i % features].with(found[i]);
    found.resize(features);
    return found;
}

// A row of the gradient that is none is noted.
template <class Source>
void check_sources(const Source* sources, int64_t n, int64_t rows, int threads, FirstBad& bad) {
#pragma omp parallel for num_threads(threads)
    for (int64_t i = 0; i < n; ++i) if ((uint64_t)sources[i] >= (uint64_t)rows) bad.note(i);
}

// Features [first, past) with rows [low, high].
inline Section section_of(const Lookups& l, int64_t first, int64_t past, Extent rows) {
    if (first == 0 && past == l.features) return {l, 0, 0, l.n, rows.low, rows.high + 1};
    Section s{l, first, l.offsets[first * l.samples], l.offsets[past * l.samples], rows.low, rows.high + 1};
    s.l.features = past - first;
    s.l.offsets += first * l.samples;
    s.l.first_rows += first;
    return s;
}

// All sections, in order; one of all features, if they do not share out evenly or cannot be cut. What is out of range is noted, and then
// there are none.
template <class Id>
std::vector<Section> sections_of(const Lookups& l, int64_t rows, int64_t gradient_rows, int threads, FirstBad& bad) {
    const std::vector<Extent> of = extents<Id>(l, rows, threads, bad);
    if (l.source && l.wide_source) check_sources((const int64_t*)l.source, l.n, gradient_rows, threads, bad);
    else if (l.source) check_sources((const int32_t*)l.source, l.n, gradient_rows, threads, bad);
    if (bad.any()) return {};
    const int64_t features = of.size();
    std::vector<Extent> after(features + 1);  // features [f, ...) together
    for (int64_t f = features; f-- > 0;) after[f] = after[f + 1].with(of[f]);
    const Section whole = section_of(l, 0, l.features, after[0]);
    if (l.weights) return {whole};
    std::vector<Section> found;
    Extent here;
    int64_t first = 0;
    const int64_t wished = std::max(SECTION_IDS, l.n / (4 * threads));
    for (int64_t f = 0; f < features - 1; ++f) {
        here = here.with(of[f]);
        const int64_t n = l.offsets[(f + 1) * l.samples] - l.offsets[first * l.samples];
        if (n < wished || here.high >= after[f + 1].low) continue;
        found.push_back(section_of(l, first, f + 1, here));
        first = f + 1;
        here = {};
    }
    if (first == 0) return {whole};
    if (Section last = section_of(l, first, features, after[first]); last.n()) found.push_back(last);
    return threads > 1 && !even(found, l.n, threads) ? std::vector<Section>{whole} : found;
}
