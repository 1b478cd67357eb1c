// A full bucket: its ids are sorted into one run a row before any thread begins with it, as threads share it.
#pragma once
#include <cstdint>

#include "formats.h"

// The runs of a bucket with more ids than a usual one: row[u] has the sources [begin[u], begin[u + 1]) of `source`, in the order of the ids.
struct Runs {
    uint32_t *row, *begin, *source;  // [n], [n + 1], [n]
    int64_t count = 0, n = 0;
};

// By counting: the rows of a bucket, 1 << row_bits, are few beside its ids. `head`: a place for each, zero, and left so.
template <class Key>
INLINE void group(const Key* keys, int64_t n, int64_t first_row, int row_bits, int source_bits, uint32_t* head, Runs& r) {
    const uint32_t rows = (uint32_t)1 << row_bits;
    for (int64_t i = 0; i < n; ++i) ++head[keys[i] >> source_bits];
    uint32_t runs = 0, at = 0;
    for (uint32_t row = 0; row < rows && at < n; ++row) {
        const uint32_t many = head[row];
        head[row] = at;  // where its next source goes
        r.row[runs] = (uint32_t)first_row + row;
        r.begin[runs] = at;
        at += many;
        runs += many != 0;
    }
    r.begin[runs] = at;
    const Key mask = (Key)((Key(1) << source_bits) - 1);
    for (int64_t i = 0; i < n; ++i) r.source[head[keys[i] >> source_bits]++] = (uint32_t)(keys[i] & mask);
    std::memset(head, 0, rows * sizeof *head);
    r.count = runs;
    r.n = n;
}
