// Causal attention over sequences of any length that lie one after the other: by softmax (SASRec) and by SiLU with a bias (HSTU), and the way
// back. One thread has a sequence's head, and nothing is shared but the bias: so no result depends on threads or on other sequences.
#include <omp.h>

#include <vector>

#include "attention.h"

// Mirrors recsys_lab/kernels/jagged_attention.py.
struct Attention {
    const float *q, *k, *v;
    int64_t q_step, k_step, v_step;  // from a row to the next
    const int64_t* lengths;
    int64_t samples, heads, dim, value_dim;  // of a head
    int64_t last_alone;                      // whether q, out and stats have the last row of each sequence alone, forward
    float *out, *stats;                      // [N, heads * value_dim], [N, heads, 2]: of softmax
    const float* grad;                       // [N, heads * value_dim]
    int64_t grad_step;
    float *of_q, *of_k, *of_v;               // as many columns as q, k and v have; rows without gaps
    float scale, dropped;                    // of softmax: of scores, and the share of weights that become zero
    uint64_t seed;
    const float* bias;  // of SiLU, [distances], its gradient, if it is asked for, and room for that of each row and head
    float *of_bias, *of_rows;
    int64_t distances;
    float divisor;
    // Of SiLU's second bias, by the time between two rows, if it has one: [N], weights [buckets], the least time of each bucket but the first,
    // the weights' gradient, and room for that of each sequence and head.
    const int64_t* times;
    const float *of_time, *starts;
    float* of_of_time;
    double* of_heads;
    int64_t buckets;
};

namespace {

// Of one sequence and head: its first row, rows, which head, which row of q, out and stats its row 0 has or would have, and which sequence.
struct Own {
    int64_t start, length, head, asks, sample;
};

struct Memory {  // of a thread
    Scratch<float> keys, values, whole_q, whole_k, whole_v, whole_grad, of_q, of_k, of_v, weights, slopes, row, law, by_time;
    Scratch<int32_t> bucket;
};

// Columns of a register that row i sees: those up to itself.
INLINE i32v seen(int64_t i, int64_t column) { return LANE <= (int32_t)std::min<int64_t>(i - column, LANES); }
INLINE f32v where(i32v mask, f32v x) { return as_float(as_bits(x) & (u32v)mask); }

// Weights are exp(score * scale) over their sum, of which some are dropped.
class Softmax {
    const Attention& of;
    Own own;
    Bits bits;
    uint32_t below;  // random bits below it drop a weight
    bool drops;
    float kept;

    // Which weights of rows i and i + 1 are kept, in a register of columns.
    INLINE void keep(int64_t i, int64_t column, i32v& first, i32v& second) const {
        u32v x = (u32v)(LANE + (int32_t)column), y = u32v{} + (uint32_t)((own.start + i) * of.heads + own.head);
        bits.of(x, y);
        first = x >= below, second = y >= below;
    }

  public:
    Softmax(const Attention& of, Own own, Memory&)
        : of(of), own(own), bits{(uint32_t)of.seed, (uint32_t)(of.seed >> 32)}, below((uint32_t)std::min(of.dropped * 4294967296.0, 4294967295.0)),
          drops(of.dropped > 0), kept(1 / (1 - of.dropped)) {}

    // Scores of rows i, i + 1, ... [rows, registers] -> weights but for a factor of each row.
    void weigh(int64_t i, int64_t rows, int64_t registers, float* s, int64_t step, float* factor) const {
        for (int64_t r = 0; r < rows; ++r, ++i) {
            float* row = s + r * step;
            const int64_t all_seen = (i + 1) / LANES;
            f32v most = all(-INFINITY);
            for (int64_t c = 0; c < registers; ++c) {
                const f32v x = load_all<f32v>(row + c * LANES);
                most = larger(most, c < all_seen ? x : seen(i, c * LANES) ? x : all(-INFINITY));
            }
            const float top = largest(most) * of.scale;
            f32v sum[PARTS] = {};
            for (int64_t c = 0; c < registers; ++c) {
                f32v e = exponential(multiply_add(load_all<f32v>(row + c * LANES), all(of.scale), all(-top)));
                if (c >= all_seen) e = where(seen(i, c * LANES), e);
                sum[c % PARTS] += e;
                store_f32(row + c * LANES, e, LANES);
            }
            const float share = 1 / total(sum);
            float* stats = of.stats + ((own.asks + i) * of.heads + own.head) * 2;
            stats[0] = top, stats[1] = share, factor[r] = drops ? share * kept : share;
        }
        if (!drops) return;
        i -= rows;
        for (int64_t r = 0; r < rows; r += 2)
            for (int64_t c = 0; c < registers; ++c) {
                i32v first, second;
                keep(i + r, c * LANES, first, second);
                float* at = s + r * step + c * LANES;
                store_f32(at, where(first, load_all<f32v>(at)), LANES);
                if (r + 1 < rows) store_f32(at + step, where(second, load_all<f32v>(at + step)), LANES);
            }
    }

    // Scores of rows i, i + 1, ... towards the columns from `column` on, and the gradients of their weights -> weights, and the gradients of
    // scores.
    void back(int64_t i, int64_t column, int64_t rows, int64_t registers, float* s, float* g, int64_t step, const float* own_grad,
              int64_t own_step) const {
        float top[ROWS], share[ROWS], of_share[ROWS];
        for (int64_t r = 0; r < rows; ++r) {
            const float* stats = of.stats + ((own.start + i + r) * of.heads + own.head) * 2;
            top[r] = stats[0], share[r] = stats[1];
            const float *made = of.out + ((own.start + i + r) * of.heads + own.head) * of.value_dim, *grad = own_grad + r * own_step;
            f32v sum[PARTS] = {};
            for (int64_t c = 0; c < of.value_dim; c += LANES) {
                const int n = lanes(of.value_dim, c);
                sum[c / LANES % PARTS] = multiply_add(load_f32(made + c, n), load_f32(grad + c, n), sum[c / LANES % PARTS]);
            }
            of_share[r] = total(sum);
        }
        auto one = [&](int64_t r, int64_t c, i32v is_kept) __attribute__((always_inline)) {
            float *weight = s + r * step + c * LANES, *grad = g + r * step + c * LANES;
            f32v w = exponential(multiply_add(load_all<f32v>(weight), all(of.scale), all(-top[r]))) * share[r];
            if (column + (c + 1) * LANES > i + r + 1) w = where(seen(i + r, column + c * LANES), w);
            f32v of_w = load_all<f32v>(grad);
            if (drops) of_w = where(is_kept, of_w) * kept;
            store_f32(grad, w * (of_w - of_share[r]) * of.scale, LANES);
            store_f32(weight, drops ? where(is_kept, w) * kept : w, LANES);
        };
        for (int64_t r = 0; r < rows; r += 2)
            for (int64_t c = 0; c < registers; ++c) {
                i32v first = {}, second = {};
                if (drops) keep(i + r, column + c * LANES, first, second);
                one(r, c, first);
                if (r + 1 < rows) one(r + 1, c, second);
            }
    }
    void finish() const {}
};

// Weights are SiLU(score + bias) over a divisor. The bias goes by distance, and lies the other way round: a row's begins one number later than
// that of the row after it.
class Silu {
    static constexpr int64_t SUMS = 4;  // of the bias's gradient, for rows in turn: a row would wait for the one before
    const Attention& of;
    Own own;
    int64_t step;
    float *bias, *sums, *by_time;  // the last of one row
    int32_t* bucket;
    float share;

    // Scores with their bias, of row i and the columns from `column` on, of which the block's first is `block`.
    INLINE f32v score(const float* s, int64_t i, int64_t column, int64_t block) const {
        const f32v x = load_all<f32v>(s) + load_all<f32v>(bias + own.length - 1 - i + column);
        return of.times ? x + load_all<f32v>(by_time + column - block) : x;
    }

    // `bucket` and `by_time` of row i towards the columns from `column` on; 0 towards those that it does not see.
    void look_back(int64_t i, int64_t column, int64_t registers) const {
        const int64_t* times = of.times + own.start;
        for (int64_t c = 0; c < registers * LANES; ++c) {
            const int64_t j = column + c;
            const float between = j <= i ? (float)std::abs(times[i] - times[j]) : 0;
            bucket[c] = (int32_t)(std::upper_bound(of.starts, of.starts + of.buckets - 1, between) - of.starts);
            by_time[c] = of.of_time[bucket[c]];
        }
    }

  public:
    Silu(const Attention& of, Own own, Memory& memory)
        : of(of), own(own), step(up(own.length + ROWS + LANES, LANES)), bias(memory.law.at_least(step * (1 + SUMS))), sums(bias + step),
          by_time(of.times ? memory.by_time.at_least(step) : nullptr), bucket(of.times ? memory.bucket.at_least(step) : nullptr),
          share(1 / of.divisor) {
        if (of.of_heads) std::fill_n(of.of_heads + (own.sample * of.heads + own.head) * of.buckets, of.buckets, 0.);
        for (int64_t i = 0; i < own.length; ++i) bias[i] = of.bias[std::min(own.length - 1 - i, of.distances - 1)];
        std::fill(bias + own.length, of.of_bias ? sums + SUMS * step : sums, 0.f);
    }

    void weigh(int64_t i, int64_t rows, int64_t registers, float* s, int64_t s_step, float* factor) const {
        for (int64_t r = 0; r < rows; ++r, ++i) {
            if (of.times) look_back(i, 0, registers);
            for (int64_t c = 0; c < registers; ++c) {
                float* at = s + r * s_step + c * LANES;
                const f32v x = score(at, i, c * LANES, 0), w = x / (exponential(-x) + 1.f);
                store_f32(at, (c + 1) * LANES > i + 1 ? where(seen(i, c * LANES), w) : w, LANES);
            }
            factor[r] = share;
        }
    }

    void back(int64_t i, int64_t column, int64_t rows, int64_t registers, float* s, float* g, int64_t s_step, const float*, int64_t) const {
        for (int64_t r = 0; r < rows; ++r, ++i) {
            if (of.times) look_back(i, column, registers);
            for (int64_t c = 0; c < registers; ++c) {
                float *weight = s + r * s_step + c * LANES, *grad = g + r * s_step + c * LANES;
                const int64_t first = column + c * LANES;
                const f32v x = score(weight, i, first, column), part = 1.f / (exponential(-x) + 1.f);
                f32v w = x * part * share, of_score = load_all<f32v>(grad) * share * (part * (x * (1.f - part) + 1.f));
                if (first + LANES > i + 1) w = where(seen(i, first), w), of_score = where(seen(i, first), of_score);
                store_f32(weight, w, LANES);
                store_f32(grad, of_score, LANES);
                float* sum = sums + i % SUMS * step + own.length - 1 - i + first;
                if (of.of_bias) store_f32(sum, load_all<f32v>(sum) + of_score, LANES);
            }
            if (!of.of_heads) continue;
            double* to = of.of_heads + (own.sample * of.heads + own.head) * of.buckets;
            for (int64_t c = 0; column + c <= i && c < registers * LANES; ++c) to[bucket[c]] += g[r * s_step + c];
        }
    }

    void finish() const {
        if (!of.of_bias) return;
        float* to = of.of_rows + own.start * of.heads + own.head * own.length;
        for (int64_t i = 0; i < own.length; ++i) to[i] = (sums[i] + sums[step + i]) + (sums[2 * step + i] + sums[3 * step + i]);
    }
};

// What `finish` left of each sequence and head, one after another.
void sum_bias(const Attention& of) {
    std::vector<double> sums(of.distances);
    const float* part = of.of_rows;
    for (int64_t s = 0; s < of.samples; ++s)
        for (int64_t head = 0; head < of.heads; ++head, part += of.lengths[s])
            for (int64_t i = 0; i < of.lengths[s]; ++i) sums[std::min(of.lengths[s] - 1 - i, of.distances - 1)] += part[i];
    for (int64_t d = 0; d < of.distances; ++d) of.of_bias[d] = (float)sums[d];
}

void sum_by_time(const Attention& of) {
    std::vector<double> sums(of.buckets);
    for (int64_t s = 0; s < of.samples; ++s)
        for (int64_t at = s * of.heads * of.buckets; of.lengths[s] && at < (s + 1) * of.heads * of.buckets; ++at)
            sums[at % of.buckets] += of.of_heads[at];
    for (int64_t b = 0; b < of.buckets; ++b) of.of_of_time[b] = (float)sums[b];
}

template <class Law>
void forward(const Attention& of, Own own, Memory& memory) {
    const int64_t dim = of.dim, value_dim = of.value_dim, wide = up(value_dim, LANES), length = own.length;
    const Rows q{of.q + own.head * dim, of.q_step}, k{of.k + own.start * of.k_step + own.head * dim, of.k_step};
    const Rows v = whole({of.v + own.start * of.v_step + own.head * value_dim, of.v_step}, length, value_dim, memory.whole_v);
    const Right keys = transposed(k, length, dim, memory.keys);
    const int64_t step = up(length, LANES);
    float *weights = memory.weights.at_least(ROWS * step), *found = memory.row.at_least(ROWS * wide), factor[ROWS];
    Law law(of, own, memory);
    for (int64_t i = of.last_alone ? length - 1 : 0; i < length; i += ROWS) {
        const int64_t rows = std::min<int64_t>(ROWS, length - i), registers = (i + rows - 1) / LANES + 1;
        product(rows, as_left(q, own.asks + i), keys, dim, weights, step, registers);
        law.weigh(i, rows, registers, weights, step, factor);
        product(rows, {weights, step, 1}, as_right(v, 0), i + rows, found, wide, wide / LANES);
        for (int64_t r = 0; r < rows; ++r) {
            float* out = of.out + ((own.asks + i + r) * of.heads + own.head) * value_dim;
            for (int64_t c = 0; c < value_dim; c += LANES)
                store_f32(out + c, load_all<f32v>(found + r * wide + c) * factor[r], lanes(value_dim, c));
        }
    }
}

// Where a gradient of a sequence's head goes, in whole registers: its own rows, or memory from which they are copied.
struct Target {
    float *out, *at;
    int64_t out_step, step, dim;
    Target(float* rows, Own own, int64_t heads, int64_t dim, Scratch<float>& memory)
        : out(rows + (own.start * heads + own.head) * dim), at(out), out_step(heads * dim), step(out_step), dim(dim) {
        if (dim % LANES) step = up(dim, LANES), at = memory.at_least(own.length * step);
    }
    float* operator[](int64_t row) const { return at + row * step; }
    int64_t registers() const { return (dim + LANES - 1) / LANES; }
    void finish(int64_t length) const {
        if (at != out)
            for (int64_t i = 0; i < length; ++i)
                for (int64_t c = 0; c < dim; c += LANES) store_f32(out + i * out_step + c, load_all<f32v>(at + i * step + c), lanes(dim, c));
    }
};

template <class Law>
void backward(const Attention& of, Own own, Memory& memory) {
    const int64_t dim = of.dim, value_dim = of.value_dim, length = own.length, step = up(std::min(length, BLOCK), LANES);
    const Rows bare_k{of.k + own.start * of.k_step + own.head * dim, of.k_step}, bare_v{of.v + own.start * of.v_step + own.head * value_dim, of.v_step};
    const Rows q = whole({of.q + own.start * of.q_step + own.head * dim, of.q_step}, length, dim, memory.whole_q);
    const Rows k = whole(bare_k, length, dim, memory.whole_k);
    const Rows grad = whole({of.grad + own.start * of.grad_step + own.head * value_dim, of.grad_step}, length, value_dim, memory.whole_grad);
    const Right keys = transposed(bare_k, length, dim, memory.keys), values = transposed(bare_v, length, value_dim, memory.values);
    const Target of_q(of.of_q, own, of.heads, dim, memory.of_q), of_k(of.of_k, own, of.heads, dim, memory.of_k);
    const Target of_v(of.of_v, own, of.heads, value_dim, memory.of_v);
    float *weights = memory.weights.at_least(BLOCK * step), *slopes = memory.slopes.at_least(BLOCK * step);
    Law law(of, own, memory);
    for (int64_t left = 0; left < length; left += BLOCK)  // columns of the square
        for (int64_t top = left; top < length; top += BLOCK) {
            const int64_t right = std::min(left + BLOCK, length), bottom = std::min(top + BLOCK, length);
            const bool diagonal = top == left;
            for (int64_t i = top; i < bottom; i += ROWS) {
                const int64_t rows = std::min<int64_t>(ROWS, bottom - i), stop = diagonal ? i + rows : right;
                const int64_t registers = (stop - left + LANES - 1) / LANES;
                float *s = weights + (i - top) * step, *g = slopes + (i - top) * step;
                product(rows, as_left(q, i), from_column(keys, left), dim, s, step, registers);
                product(rows, as_left(grad, i), from_column(values, left), value_dim, g, step, registers);
                law.back(i, left, rows, registers, s, g, step, grad[i], grad.step);
                product(rows, {g, step, 1}, as_right(k, left), stop - left, of_q[i], of_q.step, of_q.registers(), left > 0);
            }
            for (int64_t j = left; j < right; j += ROWS) {
                const int64_t rows = std::min<int64_t>(ROWS, right - j), first = diagonal ? j : top;
                const float *s = weights + (first - top) * step + j - left, *g = slopes + (first - top) * step + j - left;
                product(rows, {s, 1, step}, as_right(grad, first), bottom - first, of_v[j], of_v.step, of_v.registers(), !diagonal);
                product(rows, {g, 1, step}, as_right(q, first), bottom - first, of_k[j], of_k.step, of_k.registers(), !diagonal);
            }
        }
    for (const Target* target : {&of_q, &of_k, &of_v}) target->finish(length);
    law.finish();
}

// Calls work(of, own, memory) for each head of each sequence.
template <class Work>
void for_heads(const Attention& of, int threads, Work work) {
    std::vector<int64_t> starts(of.samples + 1);
    for (int64_t s = 0; s < of.samples; ++s) starts[s + 1] = starts[s] + of.lengths[s];
    const int64_t all = of.samples * of.heads, share = std::clamp<int64_t>(all / (8 * threads), 1, 16);
#pragma omp parallel num_threads(threads)
    {
        static thread_local Memory memory;
#pragma omp for schedule(dynamic, share)
        for (int64_t at = 0; at < all; ++at) {
            const int64_t sample = at / of.heads, length = of.lengths[sample], start = starts[sample];
            const Own own{start, length, at % of.heads, of.last_alone ? sample - (length - 1) : start, sample};
            if (own.length) work(of, own, memory);
        }
    }
}

}  // namespace

extern "C" void causal_softmax(const Attention* of, int threads) { for_heads(*of, threads, forward<Softmax>); }
extern "C" void causal_softmax_backward(const Attention* of, int threads) { for_heads(*of, threads, backward<Softmax>); }
extern "C" void causal_silu(const Attention* of, int threads) { for_heads(*of, threads, forward<Silu>); }
extern "C" void causal_silu_backward(const Attention* of, int threads) {
    for_heads(*of, threads, backward<Silu>);
    if (of->of_bias) sum_bias(*of);
    if (of->of_heads) sum_by_time(*of);
}
