// The backward pass and the update in one: the gradient of a row is summed over all its occurrences, then the row is read and
// written once. Nothing as large as the gradient of every look-up is made.
//
// Threads take features whose rows are theirs alone, one by one; or, where that would share them out unevenly, buckets of neighbouring
// rows: no two threads share a row, and clustered ids make no thread wait. What one bucket holds too much of is cut: rows among the threads,
// and a row with more than PIECE occurrences into pieces, each summed in the order of the ids, and the pieces one after the other. That
// order is the same for any number of threads.
#include <omp.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "bucket.h"
#include "gradient.h"
#include "optimizers.h"
#include "runs.h"
#include "sorter.h"

namespace {

constexpr int64_t BYTES_AHEAD = 1 << 13;  // of rows that are asked for before they are needed
// Some processors are slow to fetch a line for writing. There rows are fetched into the second-level cache first, so many bytes ahead, and
// are asked for writing when they lie there.
constexpr int64_t BYTES_READ_AHEAD = 1 << 14, BYTES_NEAR = 1 << 11;
constexpr int64_t PAGES_BYTES = 1 << 15;  // pages of 4 KiB whose addresses stand in one line of memory
constexpr int64_t PAGES_AT_ONCE = 8, ROWS_BETWEEN = 64;
constexpr int64_t ROWS_TO_SORT = 4;       // between two parts of the next section's sorting
constexpr int64_t GRADIENTS_AHEAD = 8;    // rows of the gradient
constexpr int64_t PIECE = 4096;  // torch_embedding.PIECE
static_assert(PIECE == MOST_IDS);
constexpr int64_t SLICE = 1024;  // occurrences of the rows that a thread takes at once out of a full bucket

struct ThreadMemory {
    Bucket buckets[2];
    Scratch<uint32_t> head;         // of full buckets
    Scratch<uint16_t> usual_head;
    Scratch<float> sum;
};
struct Slice { const Runs* runs; int64_t from, to; };
struct Hot { int64_t row; const uint32_t* source; int64_t n, first_piece; };

// What the scheduling below needs to know of a format and an optimizer.
struct Updater {
    const Table& t;
    const Rule& rule;
    Sum sum;
    int64_t padded, row_bytes, rows_ahead, rows_near;  // rows_near: 0 where rows are asked for writing at once
    void (*rows)(const Updater&, const Runs&, int64_t, int64_t, float*);
    void (*bucket)(const Updater&, const Bucket&, Bucket&, uint16_t*, float*, Later&);
    void (*apply)(const Table&, const Rule&, int64_t, float*);
};

template <class Format, class Optimizer>
void apply_row(const Table& t, const Rule& rule, int64_t row, float* g) { Optimizer::template apply<Format>(t, rule, row, g); }

// Calls f.template operator()<BYTES>(at) for each part of a row: where it lies, and its bytes an element.
template <class Format, class Optimizer, class F>
INLINE void for_parts(const Table& t, const Rule& rule, int64_t row, F&& f) {
    auto part = [&]<int BYTES>(const void* base) __attribute__((always_inline)) { f.template operator()<BYTES>((const char*)base + row * t.dim * BYTES); };
    part.template operator()<Format::bytes>(t.matrix.weight);
    if constexpr (Format::low_bytes > 0) part.template operator()<Format::low_bytes>(t.matrix.low);
    if constexpr (Optimizer::states > 0) part.template operator()<4>(rule.state);
    if constexpr (Optimizer::states > 1) part.template operator()<4>(rule.squares);
}

// Asks for all that belongs to a row.
template <class Format, class Optimizer, To to>
INLINE void ask_row(const Table& t, const Rule& rule, int64_t row) {
    for_parts<Format, Optimizer>(t, rule, row, [&]<int BYTES>(const char* at) __attribute__((always_inline)) { ::ask<to>(at, t.dim * BYTES); });
    if constexpr (std::is_same_v<Optimizer, RowWiseAdagrad>) ask_line<to>(rule.state + row);
}

// Calls of(ahead, ask) for each distance from which rows are asked for; ask(t, rule, row) does so.
template <class Format, class Optimizer, class F>
INLINE void ask_rows(const Updater& all, F&& of) {
    auto ask = [&]<To to>(int64_t ahead) __attribute__((always_inline)) {
        of(ahead, [](const Table& t, const Rule& rule, int64_t row) __attribute__((always_inline)) { ask_row<Format, Optimizer, to>(t, rule, row); });
    };
    if (all.rows_near) {
        ask.template operator()<To::second>(all.rows_ahead);
        ask.template operator()<To::write>(all.rows_near);
    } else {
        ask.template operator()<To::write>(all.rows_ahead);
    }
}

// Asks for the first line of each part of a row, and so for where its page lies.
template <class Format, class Optimizer>
INLINE void ask_page(const Table& t, const Rule& rule, int64_t row) {
    for_parts<Format, Optimizer>(t, rule, row, []<int BYTES>(const char* at) __attribute__((always_inline)) { __builtin_prefetch(at, 0, 3); });
}

// The pages of a bucket, in groups. Where a page is 4 KiB to the processor (in a virtual machine whose host has no larger ones, whatever the
// guest asks for), finding it takes as long as memory does for each first one of eight, and holds up what stands behind it: unless many are
// looked for at once. Nothing is asked for where rows are too few for that.
template <class Format, class Optimizer>
struct Pages {
    static constexpr int64_t widest = std::max({Format::bytes, Format::low_bytes, Optimizer::states > 0 ? 4 : 0});
    const int64_t rows;  // of PAGES_BYTES
    int64_t next, past;
    INLINE Pages(const Table& t, const Bucket& b) : rows(std::max<int64_t>(1, PAGES_BYTES / (widest * t.dim))), next(b.first_row) {
        past = next + (b.rows / rows * PAGES_AT_ONCE <= b.n ? b.rows : 0);
    }
    INLINE void ask_group(const Table& t, const Rule& rule) {
        if (next >= past) return;
#pragma GCC unroll 8
        for (int64_t k = 0; k < PAGES_AT_ONCE; ++k) ask_page<Format, Optimizer>(t, rule, next + k * rows);
        next += PAGES_AT_ONCE * rows;
    }
};

// Bytes of a row that an update moves.
template <class Format, class Optimizer>
int64_t bytes_of_row(int64_t dim) { return dim * (Format::bytes + Format::low_bytes + 4 * Optimizer::states); }

// All rows of `now`, while `then` finds its own and `later` is done in parts. DIM: the table's where the compiler is to know it, so that the sum of a
// row stays in registers; else 0, and `memory` has room for it.
template <class Format, class Optimizer, int64_t DIM>
void update_bucket(const Updater& all, const Bucket& now, Bucket& then, uint16_t* head, float* memory, Later& later) {
    alignas(64) float own[DIM ? DIM : 1];
    float* g = DIM ? own : memory;
    Table t = all.t;
    if (DIM) t.dim = DIM;
    const Rule rule = all.rule;
    const Sum sum{t.dim, all.sum.l, all.sum.g};
    uint32_t sources[MOST_IDS];
    Pages<Format, Optimizer> pages(t, then);
    for (int64_t u = 0; u < now.count; ++u) {
        if (u % ROWS_BETWEEN == 0) pages.ask_group(t, rule);
        if (u % ROWS_TO_SORT == 0 && !later.done) later.some(later);
        if (then.seen < then.n) then.step(head);
        ask_rows<Format, Optimizer>(all, [&](int64_t ahead, auto&& ask) __attribute__((always_inline)) {
            const int64_t beyond = u + ahead - now.count;
            if (beyond < 0) ask(t, rule, now.row[u + ahead]);
            else if (beyond < then.count) ask(t, rule, then.row[beyond]);
        });
        if (u + GRADIENTS_AHEAD < now.count) sum.ask(now.source(now.first[u + GRADIENTS_AHEAD]));
        int64_t n = 0, i = now.first[u];
        if (now.next[i] == 0) {  // as nearly all do of nearly uniform ids: no loop, so nothing to guess
            const uint32_t only = now.source(i);
            sum.of(&only, 1, 1, g);
        } else {
            do sources[n++] = now.source(i); while ((i = now.next[i]));
            sum.of(sources, n, n, g);
        }
        Optimizer::template apply<Format>(t, rule, now.row[u], g);
    }
    while (then.seen < then.n) then.step(head);
}

// Rows [from, to) of the runs of a full bucket, but those with more than PIECE occurrences.
template <class Format, class Optimizer>
void update_runs(const Updater& all, const Runs& r, int64_t from, int64_t to, float* g) {
    const Sum sum = all.sum;
    for (int64_t u = from; u < to; ++u) {
        ask_rows<Format, Optimizer>(all, [&](int64_t ahead, auto&& ask) __attribute__((always_inline)) {
            ask(all.t, all.rule, r.row[std::min(u + ahead, r.count - 1)]);
        });
        const int64_t begin = r.begin[u], n = r.begin[u + 1] - begin;
        if (n > PIECE) continue;
        sum.of(r.source + begin, n, r.n - begin, g);
        Optimizer::template apply<Format>(all.t, all.rule, r.row[u], g);
    }
}

// For the usual widths of the usual formats, or for any.
template <class Format, class Optimizer>
auto buckets_of(int64_t dim) {
    if constexpr ((std::is_same_v<Format, Fp32> || std::is_same_v<Format, Split16>) && Optimizer::states == 0) {
        if (dim == 64) return update_bucket<Format, Optimizer, 64>;
        if (dim == 128) return update_bucket<Format, Optimizer, 128>;
    }
    return update_bucket<Format, Optimizer, 0>;
}

// The rows of section `s`, whose ids are in buckets. `of_usual(n)` gets the number of ids that usual buckets have.
template <class Key, class F>
void update(const Updater& updater, const Section& s, const Buckets& b, const Key* keys, int threads, Later& later, F&& of_usual) {
    const Table& t = updater.t;
    static thread_local Scratch<uint32_t> full_memory[3];

    std::vector<int64_t> usual, full;
    int64_t usual_ids = 0;
    for (int64_t k = 0; k < b.count; ++k)
        if (const int64_t n = b.begin[k + 1] - b.begin[k]) {
            (n > PIECE ? full : usual).push_back(k);
            usual_ids += n > PIECE ? 0 : n;
        }
    of_usual(usual_ids);
    std::vector<Runs> full_runs(full.size());
    std::vector<std::vector<Slice>> full_slices(full.size());
    std::vector<std::vector<Hot>> full_hot(full.size());
    if (!full.empty()) for (auto& m : full_memory) m.at_least(s.n() + full.size());

    std::vector<Slice> slices;
    std::vector<Hot> hot;
    std::vector<std::pair<const Hot*, int64_t>> pieces;
    static thread_local Scratch<float> piece_memory;
    float* piece_sums = nullptr;
    std::atomic<int64_t> next_full{0}, next_task{0}, next_hot{0};
    uint32_t* full_at[3];
    for (int i = 0; i < 3; ++i) full_at[i] = *full_memory[i];

#pragma omp parallel num_threads(threads)
    {
        static thread_local ThreadMemory memory;
        uint16_t* usual_head = memory.usual_head.at_least((size_t)1 << b.row_bits);
        float* g = memory.sum.at_least(updater.padded);

        if (!full.empty()) {
            uint32_t* head = memory.head.at_least((size_t)1 << b.row_bits);
            for (int64_t i; (i = next_full++) < (int64_t)full.size();) {
                const int64_t k = full[i], at = b.begin[k], n = b.begin[k + 1] - at;
                Runs& r = full_runs[i];
                r = {full_at[0] + at, full_at[1] + at + i, full_at[2] + at};
                group(keys + at, n, s.low + (k << b.row_bits), b.row_bits, b.source_bits, head, r);
                int64_t from = 0;
                for (int64_t u = 0; u < r.count; ++u) {
                    if (r.begin[u + 1] - r.begin[u] > PIECE)
                        full_hot[i].push_back({r.row[u], r.source + r.begin[u], r.begin[u + 1] - r.begin[u], 0});
                    if (r.begin[u + 1] - r.begin[from] >= SLICE || u + 1 == r.count) { full_slices[i].push_back({&r, from, u + 1}); from = u + 1; }
                }
            }
#pragma omp barrier
#pragma omp single
            {
                for (auto& of : full_slices) slices.insert(slices.end(), of.begin(), of.end());
                for (auto& h : full_hot) hot.insert(hot.end(), h.begin(), h.end());
                int64_t count = 0;
                for (Hot& h : hot) {
                    h.first_piece = count;
                    for (int64_t from = 0; from < h.n; from += PIECE, ++count) pieces.push_back({&h, from});
                }
                piece_sums = piece_memory.at_least(std::max<int64_t>(1, count * updater.padded));
            }
        }
        const int64_t of_pieces = pieces.size(), of_slices = slices.size(), tasks = of_pieces + of_slices + usual.size();
        Bucket *now = &memory.buckets[0], *then = &memory.buckets[1];
        now->begin();
        for (int64_t task; (task = next_task++) < tasks;) {
            if (task < of_pieces) {
                const auto [h, from] = pieces[task];
                updater.sum.of(h->source + from, std::min(PIECE, h->n - from), h->n - from, piece_sums + (h->first_piece + from / PIECE) * updater.padded);
            } else if (task < of_pieces + of_slices) {
                const Slice& slice = slices[task - of_pieces];
                updater.rows(updater, *slice.runs, slice.from, slice.to, g);
            } else {
                const int64_t k = usual[task - of_pieces - of_slices], at = b.begin[k];
                then->begin(keys + at, sizeof(Key) == 8, b.source_bits, b.begin[k + 1] - at, s.low + (k << b.row_bits), (int64_t)1 << b.row_bits);
                updater.bucket(updater, *now, *then, usual_head, g, later);
                std::swap(now, then);
            }
        }
        then->begin();
        updater.bucket(updater, *now, *then, usual_head, g, later);
        if (!pieces.empty()) {
#pragma omp barrier
            for (int64_t i; (i = next_hot++) < (int64_t)hot.size();) {
                const Hot& h = hot[i];
                float* first = piece_sums + h.first_piece * updater.padded;
                for (int64_t p = 1; p * PIECE < h.n; ++p)
                    for (int64_t c = 0; c < updater.padded; c += LANES)
                        store_f32(first + c, load_f32(first + c, LANES) + load_f32(first + p * updater.padded + c, LANES), LANES);
                updater.apply(t, updater.rule, h.row, first);
            }
        }
    }
}

// With what `s` looks up, and its gradient as it is read.
Updater of_section(Updater updater, const Section& s, const Gradient& g, int threads) {
    updater.sum.l = s.l;
    if (s.l.offsets) updater.sum.g = by_bag(updater.t, s.l, g.from_column(s.first_feature * updater.t.dim), threads);
    return updater;
}

Buckets plan_section(const Updater& updater, const Section& s, const Gradient& g) {
    const int64_t sources = s.l.weights ? s.l.n : s.l.offsets ? s.l.features * s.l.samples : g.rows;  // rows of the gradient, or positions of ids
    return plan_buckets(s.past - s.low, updater.row_bytes, s.n(), sources);
}

// One that all threads update together.
template <class Key, class Id>
void update_together(const Updater& updater, const Section& s, Buckets& b, int threads) {
    static thread_local Scratch<Key> memory;
    Key* keys = memory.at_least(s.n());
    partition<Key, Id>(s, b, keys, threads);
    Later nothing;
    update(updater, s, b, keys, threads, nothing, [](int64_t) {});
}

// Sections that threads take one by one. While a thread updates one, it sorts the ids of its next between the rows.
template <class Id>
void update_apart(const Updater& updater, const std::vector<Section>& sections, const Gradient& g, int threads) {
    std::atomic<size_t> next{0};
#pragma omp parallel num_threads(threads)
    {
        static thread_local Sorter<Id> sorters[2];
        Sorter<Id> *now = &sorters[0], *then = &sorters[1];
        auto begin = [&](Sorter<Id>& sorter) {
            const size_t i = next++;
            if (i < sections.size()) sorter.begin(sections[i], plan_section(updater, sections[i], g));
            else sorter.none();
            return i < sections.size();
        };
        for (bool more = begin(*now); more; std::swap(now, then)) {
            now->finish();
            more = begin(*then);
            const Updater own = of_section(updater, now->section, g, 1);
            auto share = [&](int64_t ids) {  // so that sorting, two passes, ends with the rows
                if (more) then->at_once = std::clamp<int64_t>(2 * then->section.n() * ROWS_TO_SORT / std::max<int64_t>(1, ids) + 1, 8, 64);
            };
            if (now->wide) update(own, now->section, now->buckets, now->keys, 1, *then, share);
            else update(own, now->section, now->buckets, (const uint32_t*)now->keys, 1, *then, share);
        }
    }
}

template <class Id>
int64_t update_sections(const Updater& updater, const Lookups& l, const Gradient& g, int threads) {
    if (l.n == 0) return FINE;
    FirstBad bad;
    const std::vector<Section> sections = sections_of<Id>(l, updater.t.rows, l.offsets ? l.features * l.samples : g.rows, threads, bad);
    if (sections.size() == 1) {
        const Section& s = sections[0];
        Buckets b = plan_section(updater, s, g);
        const Updater own = of_section(updater, s, g, threads);
        if (b.row_bits + b.source_bits <= 32) update_together<uint32_t, Id>(own, s, b, threads);
        else update_together<uint64_t, Id>(own, s, b, threads);
    } else if (!sections.empty()) {
        update_apart<Id>(updater, sections, g, threads);
    }
    return bad.result();
}

}  // namespace

// -1, or the first position whose id (or source) is out of range; then nothing was changed. `read_first`: how rows are asked for.
extern "C" int64_t update_rows(const Table* t, const Lookups* l, const Gradient* g, const Rule* rule, int read_first, int threads) {
    Updater updater{*t, *rule, {t->dim, *l, *g}, (t->dim + LANES - 1) / LANES * LANES, 0, 0, 0, nullptr, nullptr, nullptr};
    with_format(t->format, [&]<class Format>() {
        with_optimizer(rule->name, [&]<class Optimizer>() {
            updater.row_bytes = bytes_of_row<Format, Optimizer>(t->dim);
            updater.rows_ahead = std::clamp<int64_t>((read_first ? BYTES_READ_AHEAD : BYTES_AHEAD) / updater.row_bytes, 8, 128);
            updater.rows_near = read_first ? std::clamp<int64_t>(BYTES_NEAR / updater.row_bytes, 2, 16) : 0;
            updater.rows = update_runs<Format, Optimizer>;
            updater.bucket = buckets_of<Format, Optimizer>(t->dim);
            updater.apply = apply_row<Format, Optimizer>;
        });
    });
    return l->wide_ids ? update_sections<int64_t>(updater, *l, *g, threads) : update_sections<int32_t>(updater, *l, *g, threads);
}
