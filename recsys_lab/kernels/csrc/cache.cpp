// Which rows of a table are in memory, in which slots, and which row leaves when a slot is needed.
//
// What leaves is the row with the least key: how many batches read it (LFU) or when the last one did (LRU); of equal ones the lowest row.
// Keys only grow. So a heap may hold old ones: a row whose key has grown since is put back with its own when it comes up, and the first
// that comes up with its own is the least. Rows of batches in flight are pinned, and are put back when they are released.
//
// A row that leaves is written where the file is free, from where the last one was: what leaves together lies together, however its rows are
// numbered. The file has a quarter more places than rows, so that free ones are near.
//
// A call to take is followed by one to move before the next take; only `cache_release` may come from another thread meanwhile.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <vector>

#include "record_file.h"

namespace {

// Of `where`: slot + 1, or never written, or about to get a slot, or in the file at `place`.
constexpr int32_t NEVER = 0, COMING = -1;
constexpr int32_t at_place(int64_t place) { return (int32_t)(-2 - place); }
constexpr int64_t place_of(int32_t where) { return -2 - (int64_t)where; }
constexpr bool is_in_file(int32_t where) { return where <= -2; }
enum Count { HITS, MISSES, MADE, ROWS_READ, ROWS_WRITTEN, COUNTS };
enum List { HELD, MADE_ROWS, MADE_SLOTS, LEFT_ROWS, LEFT_SLOTS, READ_ROWS, READ_SLOTS, LISTS };

// Zero from the start, without a page being touched.
template <class T>
struct Zeros {
    T* at;
    explicit Zeros(int64_t n) : at((T*)std::calloc(std::max<int64_t>(1, n), sizeof(T))) {}
    ~Zeros() { std::free(at); }
    T& operator[](int64_t i) const { return at[i]; }
    Zeros(const Zeros&) = delete;
};

// All of a slot lies in a quarter of a line of memory: a batch touches slots in no order.
struct Slot {
    uint32_t row;
    uint32_t pins : 30, dirty : 1, queued : 1;
    uint32_t seen;  // by the take with this number
    int32_t place;  // of the row's record in the file, + 1; 0: it has none
};
static_assert(sizeof(Slot) == 16);

// Ids whose row, and whose slot, are asked for before they are needed.
constexpr int64_t ROWS_AHEAD = 32, SLOTS_AHEAD = 16;

struct Cache {
    const int64_t rows, slots, places;
    const bool lfu;
    std::mutex lock;
    Zeros<int32_t> where;               // [rows]
    Zeros<uint32_t> key;                // [rows] of LFU, [slots] of LRU
    Zeros<Slot> at_slot;                // [slots]
    Zeros<uint64_t> full;               // [places] bits
    std::vector<uint64_t> heap;         // key << 32 | row, the least first
    int64_t used = 0, pinned = 0;       // slots
    int64_t next = 0;                   // place
    uint32_t now = 0;
    std::vector<int64_t> lists[LISTS];
    std::vector<Place> missing, leaving, reading;
    int64_t counts[COUNTS] = {};

    Cache(int64_t rows, int64_t slots, bool lfu, int64_t places)
        : rows(rows), slots(slots), places(places), lfu(lfu), where(rows), key(lfu ? rows : slots), at_slot(slots),
          full((places + 63) / 64) {}

    // The next free place, which then is not. There are more places than rows.
    int64_t fill_place() {
        for (;; ++next) {
            if (next >= places) next = 0;
            if (!(next & 63) && full[next >> 6] == ~0ull) { next += 63; continue; }
            if (!(full[next >> 6] >> (next & 63) & 1)) break;
        }
        full[next >> 6] |= 1ull << (next & 63);
        return next++;
    }
    void free_place(int64_t at) { full[at >> 6] &= ~(1ull << (at & 63)); }

    uint64_t key_of(int64_t slot) const {
        const uint32_t row = at_slot[slot].row;
        return (uint64_t)key[lfu ? row : slot] << 32 | row;
    }
    void queue(uint64_t entry) { heap.push_back(entry); std::push_heap(heap.begin(), heap.end(), std::greater<>()); }
    // In place of the first entry, which was less.
    void queue_in_place_of_first(uint64_t entry) {
        const size_t n = heap.size();
        size_t at = 0;
        for (size_t child; (child = 2 * at + 1) < n; at = child) {
            child += child + 1 < n && heap[child + 1] < heap[child];
            if (entry <= heap[child]) break;
            heap[at] = heap[child];
        }
        heap[at] = entry;
    }
    void hold(int64_t slot) {
        Slot& s = at_slot[slot];
        lists[HELD].push_back(slot);
        s.seen = now;
        if (s.pins++ == 0) ++pinned;
    }
    void release(int64_t slot) {
        Slot& s = at_slot[slot];
        if (--s.pins) return;
        --pinned;
        if (!s.queued) { s.queued = 1; queue(key_of(slot)); }
    }

    // There is a row that is not pinned.
    int64_t evict() {
        for (;;) {
            const uint64_t entry = heap.front();
            const int64_t row = entry & 0xffffffff, slot = where[row] - 1;
            Slot& s = at_slot[slot];
            if (const uint64_t own = key_of(slot); !s.pins && own != entry) { queue_in_place_of_first(own); continue; }
            std::pop_heap(heap.begin(), heap.end(), std::greater<>());
            heap.pop_back();
            s.queued = 0;
            if (s.pins) continue;
            if (s.dirty) {
                if (s.place) free_place(s.place - 1);
                const int64_t at = fill_place();
                where[row] = at_place(at);
                leaving.push_back({at, slot});
                lists[LEFT_ROWS].push_back(row);
                lists[LEFT_SLOTS].push_back(slot);
            } else {
                where[row] = s.place ? at_place(s.place - 1) : NEVER;
            }
            return slot;
        }
    }

    // Where the coming rows are, and what their slots hold.
    template <class Id>
    void ask(const Id* ids, int64_t i, int64_t n) const {
        if (i + ROWS_AHEAD >= n) return;
        if (const uint64_t row = (uint64_t)ids[i + ROWS_AHEAD]; row < (uint64_t)rows) __builtin_prefetch(where.at + row);
        const uint64_t next = (uint64_t)ids[i + SLOTS_AHEAD];
        if (next < (uint64_t)rows && where[next] > 0) __builtin_prefetch(at_slot.at + where[next] - 1, 1);
    }

    template <class Id>
    int64_t take(const Id* ids, int64_t n, int32_t* out, int64_t* needed) {
        ++now;
        for (auto& list : lists) list.clear();
        missing.clear(); leaving.clear(); reading.clear();
        int64_t bad = -1;
        for (int64_t i = 0; i < n && bad < 0; ++i) {
            ask(ids, i, n);
            if ((uint64_t)ids[i] >= (uint64_t)rows) { bad = i; break; }
            int32_t& at = where[ids[i]];
            if (at > 0) { if (at_slot[at - 1].seen != now) hold(at - 1); }
            else if (at != COMING) { missing.push_back({(int64_t)ids[i], at}); at = COMING; }
        }
        *needed = pinned + (int64_t)missing.size();
        if (bad >= 0 || *needed > slots) {
            for (const Place& m : missing) where[m.row] = (int32_t)m.slot;
            for (const int64_t slot : lists[HELD]) { at_slot[slot].seen = 0; release(slot); }
            return bad;
        }
        counts[HITS] += lists[HELD].size();
        counts[MISSES] += missing.size();
        std::sort(missing.begin(), missing.end(), [](const Place& a, const Place& b) { return a.row < b.row; });
        for (const Place& m : missing) {
            const int64_t slot = used < slots ? used++ : evict();
            const bool from_file = is_in_file((int32_t)m.slot);
            where[m.row] = (int32_t)slot + 1;
            Slot& s = at_slot[slot];
            s.row = (uint32_t)m.row;
            s.dirty = 0;
            s.place = from_file ? (int32_t)place_of((int32_t)m.slot) + 1 : 0;
            hold(slot);
            if (from_file) {
                reading.push_back({s.place - 1, slot});
                lists[READ_ROWS].push_back(m.row);
                lists[READ_SLOTS].push_back(slot);
            } else {
                lists[MADE_ROWS].push_back(m.row);
                lists[MADE_SLOTS].push_back(slot);
            }
        }
        for (const int64_t slot : lists[HELD])
            if (lfu) ++key[at_slot[slot].row]; else key[slot] = now;
        for (auto* moving : {&leaving, &reading})
            std::sort(moving->begin(), moving->end(), [](const Place& a, const Place& b) { return a.row < b.row; });
        for (int64_t i = 0; i < n; ++i) out[i] = where[ids[i]] - 1;
        counts[MADE] += lists[MADE_ROWS].size();
        counts[ROWS_READ] += reading.size();
        counts[ROWS_WRITTEN] += leaving.size();
        return -1;
    }
};

}  // namespace

extern "C" {

// `places`: of records in the file, more than `rows`.
Cache* cache_new(int64_t rows, int64_t slots, int lfu, int64_t places) { return new Cache(rows, slots, lfu != 0, places); }
void cache_free(Cache* c) { delete c; }

// Slots for the rows of a batch, pinned. -1, or the first position whose id is out of range. `needed`: how many slots the batches in flight
// take; where that is more than there are, or an id is out of range, nothing has changed.
int64_t cache_take(Cache* c, const void* ids, int64_t n, int wide, int32_t* out, int64_t* needed) {
    std::lock_guard guard(c->lock);
    return wide ? c->take((const int64_t*)ids, n, out, needed) : c->take((const int32_t*)ids, n, out, needed);
}

// Writes back what leaves, then reads what comes. As `transfer`.
int cache_move(Cache* c, int fd, const Part* parts, int64_t count, int in_flight) {
    const int failed = transfer(fd, true, c->leaving.data(), c->leaving.size(), parts, count, in_flight);
    return failed ? failed : transfer(fd, false, c->reading.data(), c->reading.size(), parts, count, in_flight);
}

// Of the last take: HELD, MADE_ROWS (never written: the caller fills their slots), MADE_SLOTS; what left changed, and what the file has.
int64_t cache_list(Cache* c, int which, const int64_t** at) {
    *at = c->lists[which].data();
    return c->lists[which].size();
}

// Ends what a take began. `moved`: the rows in these slots have changed.
void cache_release(Cache* c, const int64_t* held, int64_t n, int moved) {
    std::lock_guard guard(c->lock);
    for (int64_t i = 0; i < n; ++i) {
        if (i + SLOTS_AHEAD < n) __builtin_prefetch(c->at_slot.at + held[i + SLOTS_AHEAD], 1);
        if (moved) c->at_slot[held[i]].dirty = 1;
        c->release(held[i]);
    }
}

// Of each row its slot, or -1: in the file, or -2: never written.
void cache_where(Cache* c, const int64_t* rows, int64_t n, int64_t* out) {
    std::lock_guard guard(c->lock);
    for (int64_t i = 0; i < n; ++i) {
        const int32_t at = c->where[rows[i]];
        out[i] = at > 0 ? at - 1 : at == NEVER ? -2 : -1;
    }
}

// Of each row that has no slot, where its record is in the file. `write`: those that were never written get a place; else they have -1.
void cache_places(Cache* c, const int64_t* rows, int64_t n, int write, int64_t* out) {
    std::lock_guard guard(c->lock);
    for (int64_t i = 0; i < n; ++i) {
        int32_t& at = c->where[rows[i]];
        if (at == NEVER && write) at = at_place(c->fill_place());
        out[i] = is_in_file(at) ? place_of(at) : -1;
    }
}

// The rows in these slots have been written from outside.
void cache_wrote(Cache* c, const int64_t* slots, int64_t n) {
    std::lock_guard guard(c->lock);
    for (int64_t i = 0; i < n; ++i) c->at_slot[slots[i]].dirty = 1;
}

void cache_counts(Cache* c, int64_t* out) { std::copy(c->counts, c->counts + COUNTS, out); }

// Records at `rows` of the file, which rise, from or to `records`.
int transfer_records(int fd, int write, const int64_t* rows, int64_t n, char* records, int64_t record, int in_flight) {
    std::vector<Place> places(n);
    for (int64_t i = 0; i < n; ++i) places[i] = {rows[i], i};
    const Part part{records, record};
    return transfer(fd, write != 0, places.data(), n, &part, 1, in_flight);
}

}
