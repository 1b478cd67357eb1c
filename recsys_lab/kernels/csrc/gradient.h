// The gradient of what was looked up, and sums of its rows.
#pragma once
#include <omp.h>

#include <algorithm>

#include "lookups.h"
#include "scratch.h"

// Mirrored by native.py's Gradient: rows of `dim` elements, of bags [samples, features * dim] with `stride` elements between samples.
extern "C" struct Gradient {
    const void* data;
    int64_t rows, stride;
    int32_t bf16, mean;  // mean: the gradient of a bag is divided by its number of ids

    Gradient from_column(int64_t column) const {
        Gradient rest = *this;
        rest.data = (const char*)data + column * (bf16 ? 2 : 4);
        return rest;
    }
};

// The gradient of bags, bag by bag: so a feature's lies together and stays in a core's cache while its rows are updated. In FP32 where it
// is divided.
inline Gradient by_bag(const Table& t, const Lookups& l, const Gradient& g, int threads) {
    static thread_local Scratch<float> memory;
    const int64_t bags = l.features * l.samples;
    float* to = memory.at_least(std::max<int64_t>(1, bags * t.dim));
    const Matrix from{(void*)g.data, nullptr}, packed{to, nullptr};
    const bool keep = g.bf16 && !g.mean;
    const int64_t dim = t.dim, bytes = g.bf16 ? 2 : 4;
    constexpr int64_t AHEAD = 16;
#pragma omp parallel num_threads(threads)
    {
        const int64_t me = omp_get_thread_num(), all = omp_get_num_threads(), stop = bags * (me + 1) / all;
        for (int64_t bag = bags * me / all; bag < stop;) {
            const int64_t feature = bag / l.samples, first = bag % l.samples, past = std::min(l.samples, first + stop - bag);
            for (int64_t sample = first; sample < past; ++sample, ++bag) {
                const int64_t at = sample * g.stride + feature * dim;
                if (sample + AHEAD < past) ask((const char*)g.data + (at + AHEAD * g.stride) * bytes, dim * bytes);
                if (keep) { std::memcpy((uint16_t*)to + bag * dim, (const uint16_t*)g.data + at, 2 * dim); continue; }
                const float count = g.mean ? (float)std::max<int64_t>(1, l.offsets[bag + 1] - l.offsets[bag]) : 1.f;
                for (int64_t c = 0; c < dim; c += LANES) {
                    const int n = lanes(dim, c);
                    const f32v x = g.bf16 ? Bf16::load(from, at + c, n) : Fp32::load(from, at + c, n);
                    Fp32::store(packed, bag * dim + c, g.mean ? x / count : x, n);
                }
            }
        }
    }
    return {to, bags, 0, keep, 0};
}

// Of a run: FP32, from zero, one after the other. `sum` has room for dim rounded up to LANES.
struct Sum {
    int64_t dim;
    Lookups l;
    Gradient g;

    INLINE int64_t row_of(uint32_t source) const {  // with factors, a source is the position of an id
        if (!l.source) return source;
        return l.wide_source ? ((const int64_t*)l.source)[source] : ((const int32_t*)l.source)[source];
    }

    // For the gradient of one source.
    INLINE void ask(uint32_t source) const {
        const int64_t bytes = dim * (g.bf16 ? 2 : 4);
        ::ask((const char*)g.data + (l.weights ? row_of(source) : (int64_t)source) * bytes, bytes);
    }

    template <class Format, int V, bool weighted>
    INLINE void block(const uint32_t* sources, int64_t n, int64_t ahead, int64_t col, int last, float* sum) const {
        const Matrix m{(void*)g.data, nullptr};
        const float* weights = l.weights;
        f32v total[V] = {};
        for (int64_t i = 0; i < n; ++i) {
            if (!weighted && i + AHEAD < ahead) {
                const char* to_come = (const char*)m.weight + (sources[i + AHEAD] * dim + col) * Format::bytes;
                for (int k = 0; k < V * LANES * Format::bytes; k += 64) __builtin_prefetch(to_come + k, 0, 3);
            }
            const int64_t at = (weighted ? row_of(sources[i]) : (int64_t)sources[i]) * dim + col;
            const float w = weighted ? weights[sources[i]] : 1.f;
            for (int v = 0; v < V; ++v) {
                const f32v x = Format::load(m, at + v * LANES, v == V - 1 ? last : LANES);
                total[v] += weighted ? x * w : x;
            }
        }
        for (int v = 0; v < V; ++v) store_f32(sum + col + v * LANES, total[v], LANES);
    }
    template <class Format, bool weighted>
    INLINE void blocks(const uint32_t* sources, int64_t n, int64_t ahead, float* sum) const {
        int64_t col = 0;
        constexpr int MOST = 8;  // sums that registers hold
        if (dim == 64) { block<Format, 64 / LANES, weighted>(sources, n, ahead, 0, LANES, sum); return; }  // the usual widths first
        if (dim == 128) {
            for (; col < 128; col += MOST * LANES) block<Format, MOST, weighted>(sources, n, ahead, col, LANES, sum);
            return;
        }
        for (; col + 4 * LANES <= dim; col += 4 * LANES) block<Format, 4, weighted>(sources, n, ahead, col, LANES, sum);
        for (; col < dim; col += LANES) block<Format, 1, weighted>(sources, n, ahead, col, lanes(dim, col), sum);
    }
    // `ahead`: how many sources, of this run and those after it, may be looked at.
    INLINE void of(const uint32_t* sources, int64_t n, int64_t ahead, float* sum) const {
        if (l.weights) { if (g.bf16) blocks<Bf16, true>(sources, n, ahead, sum); else blocks<Fp32, true>(sources, n, ahead, sum); }
        else { if (g.bf16) blocks<Bf16, false>(sources, n, ahead, sum); else blocks<Fp32, false>(sources, n, ahead, sum); }
    }
    static constexpr int AHEAD = 8;
};
