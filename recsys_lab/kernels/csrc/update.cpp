// The backward pass and the update in one: the gradient of a row is summed over all its occurrences, then the row is read and
// written once. Nothing as large as the gradient of every look-up is made.
//
// Ids are put into buckets of neighbouring rows, and buckets are handed to threads one by one: no two threads share a row, and clustered
// ids make no thread wait. What one bucket holds too much of is cut: rows among the threads, and a row with more than PIECE occurrences
// into pieces, each summed in the order of the ids, and the pieces one after the other. That order is the same for any number of threads.
#include <omp.h>

#include <memory>
#include <vector>

#include "gradient.h"
#include "optimizers.h"
#include "partition.h"

namespace {

constexpr int64_t NEAR_LINES = 64;  // on their way from memory, at least
constexpr int64_t PIECE = 4096;  // torch_embedding.PIECE
constexpr int64_t SLICE = 1024;  // occurrences of the rows that a thread takes at once out of a full bucket

struct RunsMemory {
    Scratch<uint32_t> row, begin, source, place;
    Runs of(int64_t n) { return {row.at_least(n + TAIL), begin.at_least(n + 2), source.at_least(n), place.at_least(n)}; }
};
struct ThreadMemory {
    RunsMemory runs[2];
    Scratch<uint32_t> head;
    Scratch<float> sum;
};
struct Slice { const Runs* runs; int64_t from, to; };
struct Hot { int64_t row; const uint32_t* source; int64_t n, first_piece; };

// What the scheduling below needs to know of a format and an optimizer.
struct Updater {
    const Table& t;
    const Rule& rule;
    Sum sum;
    int64_t padded;
    void (*rows)(const Updater&, const Runs&, int64_t, int64_t, float*);
    void (*apply)(const Table&, const Rule&, int64_t, float*);
};

template <class Format, class Optimizer>
void apply_row(const Table& t, const Rule& rule, int64_t row, float* g) { Optimizer::template apply<Format>(t, rule, row, g); }

// Rows [from, to) of `r`, but those with more than PIECE occurrences. DIM: the table's where the compiler is to know it, so that the sum
// of a row stays in registers; else 0, and `memory` has room for it.
template <class Format, class Optimizer, int64_t DIM>
void update_runs(const Updater& all, const Runs& r, int64_t from, int64_t to, float* memory) {
    alignas(64) float own[DIM ? DIM : 1];
    float* g = DIM ? own : memory;
    Table t = all.t;
    if (DIM) t.dim = DIM;
    const Rule rule = all.rule;
    const Lookups l = all.sum.l;
    const Gradient gradient = all.sum.g;
    const Sum sum{t, l, gradient};
    const Apart ahead(t.dim * Format::bytes, NEAR_LINES), low_ahead(t.dim * Format::low_bytes, NEAR_LINES);
    const Apart state_ahead(t.dim * 4, NEAR_LINES);
    const bool look = std::max({ahead.farthest(), low_ahead.farthest(), state_ahead.farthest()}) < TAIL;
    for (int64_t u = from; u < to; ++u) {
        if (look) {
            const auto row_at = [&](int64_t k) { return (int64_t)r.row[u + k]; };
            ahead.ask(t.matrix.weight, t.dim * Format::bytes, row_at);
            if (Format::low_bytes) low_ahead.ask(t.matrix.low, t.dim * Format::low_bytes, row_at);
            if (std::is_same_v<Optimizer, RowWiseAdagrad>) __builtin_prefetch(rule.state + row_at(ahead.near), 1, 3);
            if (Optimizer::states > 0) state_ahead.ask(rule.state, t.dim * 4, row_at);
            if (Optimizer::states > 1) state_ahead.ask(rule.squares, t.dim * 4, row_at);
        }
        const int64_t begin = r.begin[u], n = r.begin[u + 1] - begin;
        if (n > PIECE) continue;
        sum.of(r.source + begin, n, r.n - begin, g);
        Optimizer::template apply<Format>(t, rule, r.row[u], g);
    }
}

// For the usual widths of the usual formats, or for any.
template <class Format, class Optimizer>
auto runs_of(int64_t dim) {
    if constexpr ((std::is_same_v<Format, Fp32> || std::is_same_v<Format, Split16>) && Optimizer::states == 0) {
        if (dim == 64) return update_runs<Format, Optimizer, 64>;
        if (dim == 128) return update_runs<Format, Optimizer, 128>;
    }
    return update_runs<Format, Optimizer, 0>;
}

// Sources are below this: rows of the gradient or, with factors, positions of ids.
int64_t sources_of(const Lookups& l, const Gradient& g) { return l.weights ? l.n : g.rows; }

template <class Key, class Id>
int64_t update(const Updater& updater, int threads) {
    const Table& t = updater.t;
    const Lookups& l = updater.sum.l;
    const Gradient& gradient = updater.sum.g;
    FirstBad bad;
    if (l.n == 0) return FINE;
    static thread_local Scratch<Key> key_memory;
    static thread_local Scratch<uint32_t> full_memory[4];
    const int64_t sources = sources_of(l, gradient);
    Buckets b = plan_buckets(t.rows, l.n, sources);
    Key* keys = key_memory.at_least(l.n);
    partition<Key, Id>(l, t.rows, sources, b, keys, threads, bad);
    if (bad.any()) return bad.result();

    std::vector<int64_t> usual, full;
    int64_t usual_most = 0;
    for (int64_t k = 0; k < b.count; ++k) {
        const int64_t n = b.begin[k + 1] - b.begin[k];
        if (n > PIECE) full.push_back(k);
        else if (n) { usual.push_back(k); usual_most = std::max(usual_most, n); }
    }
    std::vector<Runs> full_runs(full.size());
    std::vector<std::vector<Slice>> full_slices(full.size());
    std::vector<std::vector<Hot>> full_hot(full.size());
    if (!full.empty()) for (auto& m : full_memory) m.at_least(l.n + TAIL * full.size());

    std::vector<Slice> slices;
    std::vector<Hot> hot;
    std::vector<std::pair<const Hot*, int64_t>> pieces;
    static thread_local Scratch<float> piece_memory;
    float* piece_sums = nullptr;
    std::atomic<int64_t> next_full{0}, next_task{0}, next_hot{0};
    uint32_t* full_at[4];
    for (int i = 0; i < 4; ++i) full_at[i] = *full_memory[i];

#pragma omp parallel num_threads(threads)
    {
        static thread_local ThreadMemory memory;
        uint32_t* head = memory.head.at_least((size_t)1 << b.row_bits);
        float* g = memory.sum.at_least(updater.padded);

        if (!full.empty()) {
            for (int64_t i; (i = next_full++) < (int64_t)full.size();) {
                const int64_t k = full[i], at = b.begin[k], n = b.begin[k + 1] - at;
                Runs& r = full_runs[i];
                r = {full_at[0] + at + TAIL * i, full_at[1] + at + 2 * i, full_at[2] + at, full_at[3] + at};
                group(keys + at, n, k << b.row_bits, b.source_bits, head, r);
                r.follow(nullptr);
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
                for (auto& s : full_slices) slices.insert(slices.end(), s.begin(), s.end());
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
        Runs two[2] = {memory.runs[0].of(std::max<int64_t>(usual_most, 1)), memory.runs[1].of(std::max<int64_t>(usual_most, 1))};
        int current = 0;
        bool waiting = false;  // two[current] is grouped and not yet applied
        for (int64_t task; (task = next_task++) < tasks;) {
            if (task < of_pieces) {
                const auto [h, from] = pieces[task];
                updater.sum.of(h->source + from, std::min(PIECE, h->n - from), h->n - from, piece_sums + (h->first_piece + from / PIECE) * updater.padded);
            } else if (task < of_pieces + of_slices) {
                const Slice& s = slices[task - of_pieces];
                updater.rows(updater, *s.runs, s.from, s.to, g);
            } else {
                const int64_t k = usual[task - of_pieces - of_slices], at = b.begin[k];
                Runs& r = two[waiting ? 1 - current : current];
                group(keys + at, b.begin[k + 1] - at, k << b.row_bits, b.source_bits, head, r);
                if (waiting) {
                    two[current].follow(&r);
                    updater.rows(updater, two[current], 0, two[current].count, g);
                    current = 1 - current;
                }
                waiting = true;
            }
        }
        if (waiting) {
            two[current].follow(nullptr);
            updater.rows(updater, two[current], 0, two[current].count, g);
        }
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
    return FINE;
}

}  // namespace

// -1, or the first position whose id (or source) is out of range; then nothing was changed.
extern "C" int64_t update_rows(const Table* t, const Lookups* l, const Gradient* g, const Rule* rule, int threads) {
    const Gradient gradient = l->offsets ? by_bag(*t, *l, *g, threads) : *g;
    Updater updater{*t, *rule, {*t, *l, gradient}, (t->dim + LANES - 1) / LANES * LANES, nullptr, nullptr};
    with_format(t->format, [&]<class Format>() {
        with_optimizer(rule->name, [&]<class Optimizer>() {
            updater.rows = runs_of<Format, Optimizer>(t->dim);
            updater.apply = apply_row<Format, Optimizer>;
        });
    });
    const Buckets b = plan_buckets(t->rows, l->n, sources_of(*l, gradient));
    if (b.row_bits + b.source_bits <= 32)
        return l->wide_ids ? update<uint32_t, int64_t>(updater, threads) : update<uint32_t, int32_t>(updater, threads);
    return l->wide_ids ? update<uint64_t, int64_t>(updater, threads) : update<uint64_t, int32_t>(updater, threads);
}
