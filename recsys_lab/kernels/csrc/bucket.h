// A usual bucket while its runs are found and while they are applied. One step looks at one id; so the steps of the next bucket stand
// between the rows of this one, where the processor would wait for memory.
#pragma once
#include <cstdint>

#include "formats.h"

constexpr int64_t MOST_IDS = 4096;  // of a usual bucket

struct Bucket {
    const void* keys = nullptr;  // 32 or 64 bits each: see partition.h
    bool wide = false;
    int source_bits = 0;
    int64_t n = 0, first_row = 0, rows = 0;
    int64_t seen = 0;   // ids that were looked at
    int64_t count = 0;  // runs so far: run u is the ids first[u], next[first[u]], ..., in their order
    uint32_t row[MOST_IDS];
    uint16_t first[MOST_IDS], last[MOST_IDS], next[MOST_IDS];  // next: 0 after the last

    void begin(const void* of = nullptr, bool wide_keys = false, int bits = 0, int64_t ids = 0, int64_t from = 0, int64_t count_of_rows = 0) {
        keys = of; wide = wide_keys; source_bits = bits; n = ids; first_row = from; rows = count_of_rows;
        seen = count = 0;
    }
    INLINE uint64_t key(int64_t i) const { return wide ? ((const uint64_t*)keys)[i] : ((const uint32_t*)keys)[i]; }
    INLINE uint32_t source(int64_t i) const { return (uint32_t)(key(i) & (((uint64_t)1 << source_bits) - 1)); }
    // `head`: for each row of a bucket the run that it may have; what an earlier bucket left there does no harm.
    INLINE void step(uint16_t* head) {
        const int64_t i = seen++;
        const uint32_t in_bucket = (uint32_t)(key(i) >> source_bits), place = (uint32_t)first_row + in_bucket;
        const int64_t run = head[in_bucket];
        next[i] = 0;
        if ((run < count) & (row[run] == place)) {
            next[last[run]] = (uint16_t)i;
            last[run] = (uint16_t)i;
        } else {
            head[in_bucket] = (uint16_t)count;
            row[count] = place;
            first[count] = last[count] = (uint16_t)i;
            ++count;
        }
    }
};
