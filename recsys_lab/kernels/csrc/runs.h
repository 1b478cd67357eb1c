// A full bucket: its ids are sorted into one run a row before any thread begins with it, as threads share it.
#pragma once
#include <cstdint>

#include "formats.h"

// The runs of a bucket with more ids than a usual one: row[u] has the sources [begin[u], begin[u + 1]) of `source`, in the order of the ids.
struct Runs {
    uint32_t *row, *begin, *source, *place;  // [n], [n + 2], [n], [n]
    int64_t count = 0, n = 0;
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
