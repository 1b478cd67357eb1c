// Updates of one row from its summed gradient. Every operation is rounded by itself, in the order that torch_embedding.py has.
#pragma once
#include <type_traits>

#include "lookups.h"

// Mirrored by native.py's Rule.
extern "C" struct Rule {
    int32_t name;  // 0 sgd, 1 row-wise Adagrad, 2 Adagrad, 3 Adam
    float lr, eps, weight_decay;
    float* state;  // [rows] or [rows, dim]; null for sgd
    float* squares;  // [rows, dim] of Adam
    float new_mean, old_square, new_square;  // Adam's 1 - beta1, beta2, 1 - beta2
};

// Whether any of `g` is not zero.
INLINE bool moves(int64_t dim, const float* g) {
    u32v moved = {};
    for (int64_t c = 0; c < dim; c += LANES) moved |= (u32v)(load_f32(g + c, LANES) != 0.f);
    bool any = false;
    for (int i = 0; i < LANES; ++i) any |= moved[i] != 0;
    return any;
}

// `g` [dim, rounded up to LANES], the rest zero. With weight decay a row whose gradient is zero rests, and otherwise decay * w joins g.
template <class Format>
INLINE bool decayed(const Table& t, const Rule& r, int64_t row, float* g) {
    if (r.weight_decay == 0.f) return true;
    if (!moves(t.dim, g)) return false;
    for (int64_t c = 0; c < t.dim; c += LANES) {
        const int n = lanes(t.dim, c);
        store_f32(g + c, load_f32(g + c, LANES) + Format::load(t.matrix, row * t.dim + c, n) * r.weight_decay, n);
    }
    return true;
}

// `states`: matrices like the table that an optimizer keeps.
struct Sgd {
    static constexpr int states = 0;
    template <class Format>
    static INLINE void apply(const Table& t, const Rule& r, int64_t row, float* g) {
        if (!decayed<Format>(t, r, row, g)) return;
        int64_t c = 0;
#if WIDE_MASKS || HALF_WIDE
        if constexpr (std::is_same_v<Format, Split16>) {
            for (; c + 2 * LANES <= t.dim; c += 2 * LANES) {
                f32v first, second;
                Format::load_two(t.matrix, row * t.dim + c, first, second);
                Format::store_two(t.matrix, row * t.dim + c, first - load_f32(g + c, LANES) * r.lr, second - load_f32(g + c + LANES, LANES) * r.lr);
            }
        }
#endif
        for (; c < t.dim; c += LANES) {
            const int n = lanes(t.dim, c);
            const int64_t at = row * t.dim + c;
            Format::store(t.matrix, at, Format::load(t.matrix, at, n) - load_f32(g + c, LANES) * r.lr, n);
        }
    }
};

struct RowWiseAdagrad {
    static constexpr int states = 0;
    template <class Format>
    static INLINE void apply(const Table& t, const Rule& r, int64_t row, float* g) {
        if (!decayed<Format>(t, r, row, g)) return;
        constexpr int SUMS = 16;  // each of every sixteenth square, on any processor
        f32v squares[SUMS / LANES] = {};
        for (int64_t c = 0; c < t.dim; c += SUMS)
            for (int k = 0; k < SUMS && c + k < t.dim; k += LANES) { const f32v x = load_f32(g + c + k, LANES); squares[k / LANES] += x * x; }
        float s[SUMS];
        std::memcpy(s, &squares, sizeof s);
        for (int half = SUMS / 2; half; half /= 2) for (int i = 0; i < half; ++i) s[i] += s[i + half];
        const float total = r.state[row] + s[0] / (float)t.dim;
        r.state[row] = total;
        const float rate = r.lr / (std::sqrt(total) + r.eps);
        for (int64_t c = 0; c < t.dim; c += LANES) {
            const int n = lanes(t.dim, c);
            const int64_t at = row * t.dim + c;
            Format::store(t.matrix, at, Format::load(t.matrix, at, n) - load_f32(g + c, LANES) * rate, n);
        }
    }
};

struct Adagrad {
    static constexpr int states = 1;
    template <class Format>
    static INLINE void apply(const Table& t, const Rule& r, int64_t row, float* g) {
        if (!decayed<Format>(t, r, row, g)) return;
        for (int64_t c = 0; c < t.dim; c += LANES) {
            const int n = lanes(t.dim, c);
            const int64_t at = row * t.dim + c;
            const f32v x = load_f32(g + c, LANES), total = load_f32(r.state + at, n) + x * x;
            store_f32(r.state + at, total, n);
            Format::store(t.matrix, at, Format::load(t.matrix, at, n) - x * r.lr / (square_root(total) + r.eps), n);
        }
    }
};

struct Adam {
    static constexpr int states = 2;
    template <class Format>
    static INLINE void apply(const Table& t, const Rule& r, int64_t row, float* g) {
        if (!moves(t.dim, g)) return;
        decayed<Format>(t, r, row, g);
        for (int64_t c = 0; c < t.dim; c += LANES) {
            const int n = lanes(t.dim, c);
            const int64_t at = row * t.dim + c;
            const f32v x = load_f32(g + c, LANES), before = load_f32(r.state + at, n);
            const f32v mean = before + (x - before) * r.new_mean, square = load_f32(r.squares + at, n) * r.old_square + x * x * r.new_square;
            store_f32(r.state + at, mean, n);
            store_f32(r.squares + at, square, n);
            Format::store(t.matrix, at, Format::load(t.matrix, at, n) - mean * r.lr / (square_root(square) + r.eps), n);
        }
    }
};

template <class F>
void with_optimizer(int name, F&& f) {
    if (name == 0) f.template operator()<Sgd>();
    else if (name == 1) f.template operator()<RowWiseAdagrad>();
    else if (name == 2) f.template operator()<Adagrad>();
    else f.template operator()<Adam>();
}
