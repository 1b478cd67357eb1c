// Records of one size in a file, read and written in batches with several requests in flight.
#pragma once
#include <cstdint>

// What a record is put together from: `bytes` of each slot, which lie one after the other from `base`. Mirrored by native_cache.py's Part.
extern "C" struct Part {
    char* base;
    int64_t bytes;
};

// Record `row` of the file, and the slot that it goes to or comes from.
struct Place {
    int64_t row, slot;
};

constexpr int TRUNCATED = -1;

// Places in rising order of their rows. Neighbours travel in one request, and when written also records less than a page apart. 0; an errno;
// or TRUNCATED.
int transfer(int fd, bool write, const Place* places, int64_t n, const Part* parts, int64_t count, int in_flight);
