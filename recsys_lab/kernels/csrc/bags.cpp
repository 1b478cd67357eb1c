// Algorithm 1 of the CPU DLRM paper: look-up of rows, pooled or not. The sum of a bag is in the order of its ids, in FP32.
#include <omp.h>

#include <type_traits>

#include "lookups.h"

namespace {

struct Out {
    void* data;
    int64_t stride;  // elements from one sample to the next
    bool bf16;
    bool past;       // whether single rows go past the caches: the output's begin with a line of them, and end with one
    template <bool past = false>
    INLINE void store(int64_t at, f32v x, int n) const {
        if (bf16) store_u16<past>((uint16_t*)data + at, to_bf16(x), n); else store_f32<past>((float*)data + at, x, n);
    }
};

template <class Id>
struct Bag {
    const Id* ids;
    int64_t begin, stop, last;  // `last` id that may be looked at ahead
    int64_t base;
};

// Adds a row's columns [at, at + LANES * V) to as many sums, the last `last` of LANES.
template <class Format, int V, bool weighted>
INLINE void add_row(const Matrix& m, int64_t at, int last, float factor, f32v total[V]) {
    for (int v = 0; v < V; ++v) {
        const f32v x = Format::load(m, at + v * LANES, v == V - 1 ? last : LANES);
        total[v] += weighted ? x * factor : x;
    }
}

// The same of BF16 in whole vectors. Two come in one load: even columns go to one sum, odd ones to the next.
template <int V, bool weighted>
INLINE void add_row_in_pairs(const Matrix& m, int64_t at, float factor, f32v total[V]) {
    for (int v = 0; v < V; v += 2) {
        const u32v two = load_all<u32v>((const uint16_t*)m.weight + at + v * LANES);
        const f32v even = as_float(two << 16), odd = as_float(two & 0xffff0000u);
        total[v] += weighted ? even * factor : even;
        total[v + 1] += weighted ? odd * factor : odd;
    }
}
template <int V>
INLINE void columns_of_pairs(const f32v total[V], f32v* sum) {
    const i32v low = LANE / 2 + (LANE & 1) * LANES, high = low + LANES / 2;  // 0, LANES, 1, LANES + 1, ...
    for (int v = 0; v < V; v += 2) {
        sum[v] = __builtin_shuffle(total[v], total[v + 1], low);
        sum[v + 1] = __builtin_shuffle(total[v], total[v + 1], high);
    }
}

// Columns [col, col + LANES * V) of one bag, the last `last` of LANES. `to`: where rows are asked for ahead.
template <class Format, int V, bool weighted, To to, class Id>
INLINE void pool(const Table& t, const Bag<Id>& b, const float* weights, int64_t col, int last, f32v* sum, FirstBad& bad) {
    using Block = Ahead<V * LANES * Format::bytes>;
    const char* base = (const char*)t.matrix.weight + (b.base * t.dim + col) * Format::bytes;
    const int64_t row_bytes = t.dim * Format::bytes;
    const bool apart = row_bytes % 64 != 0;
    constexpr int PAIRED = V % 2 == 0 ? V : 0;
    const bool pairs = std::is_same_v<Format, Bf16> && PAIRED && last == LANES;
    f32v total[V] = {};
    for (int64_t i = b.begin; i < b.stop; ++i) {
        Block::template ask<to>(base + (int64_t)b.ids[std::min(i + Block::rows, b.last)] * row_bytes, apart);
        const int64_t row = (int64_t)b.ids[i] + b.base;
        if (__builtin_expect((uint64_t)row >= (uint64_t)t.rows, 0)) { bad.note(i); continue; }
        const float factor = weighted ? weights[i] : 1.f;
        if (pairs) add_row_in_pairs<PAIRED, weighted>(t.matrix, row * t.dim + col, factor, total);
        else add_row<Format, V, weighted>(t.matrix, row * t.dim + col, last, factor, total);
    }
    if (pairs) columns_of_pairs<PAIRED>(total, sum);
    else for (int v = 0; v < V; ++v) sum[v] = total[v];
}

// A row as it is; or added to zero, as the only one of a bag: a negative zero becomes zero. From BF16 to BF16 nothing is widened.
template <class Format, bool added>
INLINE void copy_row(const Matrix& m, int64_t at, int64_t dim, const Out& out, int64_t to) {
    const bool halves = std::is_same_v<Format, Bf16> && out.bf16;
    auto copy = [&]<bool past>() __attribute__((always_inline)) {
#pragma GCC unroll 8
        for (int64_t c = 0; c < dim; c += LANES) {
            const int n = lanes(dim, c);
            if (halves) {
                const u16v x = load_u16((const uint16_t*)m.weight + at + c, n);
                store_u16<past>((uint16_t*)out.data + to + c, added ? x & (u16v)(x != 0x8000) : x, n);
            } else {
                const f32v x = Format::load(m, at + c, n);
                out.store<past>(to + c, added ? x + 0.f : x, n);
            }
        }
    };
    if (out.past) copy.template operator()<true>();
    else copy.template operator()<false>();
}

// Calls f(row) if position `i` of the ids names a row, and asks for the row of one `ahead`, `last` at the most.
template <class Format, To to, class Id, class F>
INLINE void with_row(const Table& t, const Id* ids, int64_t i, int64_t ahead, int64_t last, int64_t base, FirstBad& bad, F&& f) {
    const int64_t row_bytes = t.dim * Format::bytes, row = (int64_t)ids[i] + base;
    ask<to>((const char*)t.matrix.weight + ((int64_t)ids[std::min(i + ahead, last)] + base) * row_bytes, row_bytes);
    if (__builtin_expect((uint64_t)row >= (uint64_t)t.rows, 0)) bad.note(i);
    else f(row);
}

// DIM: the table's where the compiler is to know it, else 0.
template <class Format, bool weighted, To to, class Id, int64_t DIM = 0>
void bags_of(const Table& table, const Lookups& l, bool mean, const Out& out, int threads, FirstBad& bad) {
    const Id* ids = (const Id*)l.ids;
    const int64_t bags = l.features * l.samples;
    const int64_t dim = DIM ? DIM : table.dim;
    const int vectors = (int)((dim + LANES - 1) / LANES), last = (int)(dim - (vectors - 1) * LANES);
    const int64_t ahead = rows_ahead(dim * Format::bytes);
#pragma omp parallel num_threads(threads)
    {
        Table t = table;
        t.dim = dim;
        // Bags are shared out by their ids and, for empty ones, by number: each is somebody's, whole.
        const int64_t me = omp_get_thread_num(), all = omp_get_num_threads();
        auto cut = [&](int64_t k) -> int64_t {
            if (k == all) return bags;
            const int64_t target = (l.n + bags) * k / all;
            int64_t low = 0, high = bags;
            while (low < high) {
                const int64_t middle = (low + high) / 2;
                if (l.offsets[middle] + middle < target) low = middle + 1; else high = middle;
            }
            return low;
        };
        const int64_t first = cut(me), stop = cut(me + 1), last_id = first < stop ? l.offsets[stop] - 1 : 0;
        int64_t feature = first / std::max<int64_t>(l.samples, 1), sample = first % std::max<int64_t>(l.samples, 1);
        for (int64_t bag = first; bag < stop; ++bag) {
            const int64_t begin = l.offsets[bag], end = l.offsets[bag + 1], base = l.first_rows ? l.first_rows[feature] : 0;
            const float count = mean && end > begin ? (float)(end - begin) : 1.f;
            const int64_t out_at = sample * out.stride + feature * t.dim;
            if (++sample == l.samples) { sample = 0; ++feature; }
            if (!weighted && end - begin == 1) {
                with_row<Format, to>(t, ids, begin, ahead, last_id, base, bad, [&](int64_t row) __attribute__((always_inline)) {
                    copy_row<Format, true>(t.matrix, row * dim, dim, out, out_at);
                });
                continue;
            }
            int v = 0;
            const Bag<Id> b{ids, begin, end, last_id, base};
            auto block = [&]<int V>() {
                for (; vectors - v >= V; v += V) {
                    f32v sum[V];
                    const int n = v + V == vectors ? last : LANES;
                    pool<Format, V, weighted, to>(t, b, l.weights, v * LANES, n, sum, bad);
                    for (int k = 0; k < V; ++k)
                        out.store(out_at + (v + k) * LANES, count == 1.f ? sum[k] : sum[k] / count, k == V - 1 ? n : LANES);
                }
            };
            block.template operator()<8>();
            block.template operator()<4>();
            block.template operator()<2>();
            block.template operator()<1>();
        }
        if (out.past) past_is_written();
    }
}

// Without factors. The usual widths first: with its loops laid out a look-up is up to a fifth faster.
template <class Format, To to, class Id>
void plain_bags(const Table& t, const Lookups& l, bool mean, const Out& out, int threads, FirstBad& bad) {
    if (t.dim == 64) bags_of<Format, false, to, Id, 64>(t, l, mean, out, threads, bad);
    else if (t.dim == 128) bags_of<Format, false, to, Id, 128>(t, l, mean, out, threads, bad);
    else bags_of<Format, false, to, Id>(t, l, mean, out, threads, bad);
}

template <class Format, To to, class Id>
void rows_of(const Table& t, const Lookups& l, const Out& out, int threads, FirstBad& bad) {
    const Id* ids = (const Id*)l.ids;
    const int64_t ahead = rows_ahead(t.dim * Format::bytes);
#pragma omp parallel num_threads(threads)
    {
        const int64_t me = omp_get_thread_num(), all = omp_get_num_threads(), stop = l.n * (me + 1) / all;
        for (int64_t i = l.n * me / all; i < stop; ++i)
            with_row<Format, to>(t, ids, i, ahead, stop - 1, 0, bad, [&](int64_t row) __attribute__((always_inline)) {
                copy_row<Format, false>(t.matrix, row * t.dim, t.dim, out, i * out.stride);
            });
        if (out.past) past_is_written();
    }
}

template <class F>
void with_read_format(int format, bool second, F&& f) {  // what a look-up reads of a split weight is its BF16 half
    auto asked = [&]<class Format>() {
        if (second) f.template operator()<Format, To::second>(); else f.template operator()<Format, To::first>();
    };
    if (format == 0) asked.template operator()<Fp32>();
    else if (format == 2) asked.template operator()<Fp16>();
    else asked.template operator()<Bf16>();
}

}  // namespace

// -1, or the first position whose id is out of range; the output is then not to be used. `second`: rows are asked for
// into the second-level cache alone. `past`: single rows go past the caches.
extern "C" int64_t pooled_rows(const Table* t, const Lookups* l, int mean, void* out, int64_t out_stride, int out_bf16, int second, int past,
                               int threads) {
    FirstBad bad;
    const Out to{out, out_stride, out_bf16 != 0, past != 0};
    with_read_format(t->format, second != 0, [&]<class Format, To asked>() {
        if (l->weights && l->wide_ids) bags_of<Format, true, asked, int64_t>(*t, *l, mean, to, threads, bad);
        else if (l->weights) bags_of<Format, true, asked, int32_t>(*t, *l, mean, to, threads, bad);
        else if (l->wide_ids) plain_bags<Format, asked, int64_t>(*t, *l, mean, to, threads, bad);
        else plain_bags<Format, asked, int32_t>(*t, *l, mean, to, threads, bad);
    });
    return bad.result();
}

extern "C" int64_t single_rows(const Table* t, const Lookups* l, void* out, int64_t out_stride, int out_bf16, int second, int past, int threads) {
    FirstBad bad;
    const Out to{out, out_stride, out_bf16 != 0, past != 0};
    with_read_format(t->format, second != 0, [&]<class Format, To asked>() {
        if (l->wide_ids) rows_of<Format, asked, int64_t>(*t, *l, to, threads, bad);
        else rows_of<Format, asked, int32_t>(*t, *l, to, threads, bad);
    });
    return bad.result();
}
