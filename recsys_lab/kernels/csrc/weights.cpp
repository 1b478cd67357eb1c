// One step of SGD or Adam over a vector of weights in any format, read once and written once. Rounded where torch's optimizers round: each
// of their additions of a multiple is one fused operation.
#include <omp.h>

#include <algorithm>

#include "formats.h"

// Of a vector of weights: gradient i, of `sizes[i]` elements, belongs to those from `starts[i]` on.
extern "C" struct Gradients {
    const void* const* at;
    const int64_t *starts, *sizes;
    int64_t count;
    int32_t bf16;
};

namespace {

struct Sgd {
    float lr, momentum;
    float* velocity;  // null without momentum

    INLINE f32v moved(f32v w, f32v g, int64_t at, int n) const {
        if (velocity) {
            g = load_f32(velocity + at, n) * all(momentum) + g;
            store_f32(velocity + at, g, n);
        }
        return multiply_add(g, all(-lr), w);
    }
};

// `rate` and `root`: with the corrections of the two means' bias.
struct Adam {
    float *mean, *square;
    float new_mean, old_square, new_square, root, eps, rate;

    INLINE f32v moved(f32v w, f32v g, int64_t at, int n) const {
        const f32v before = load_f32(mean + at, n), m = multiply_add(all(new_mean), g - before, before);
        const f32v s = multiply_add(all(new_square) * g, g, load_f32(square + at, n) * all(old_square));
        store_f32(mean + at, m, n);
        store_f32(square + at, s, n);
        return w + all(-rate) * m / (square_root(s) / all(root) + all(eps));
    }
};

template <class Optimizer>
struct Step {
    Matrix weights;
    const Gradients& gradients;
    float weight_decay;
    Optimizer optimizer;
    int threads;

    template <class Format>
    void operator()() const {
        int64_t all = 0;
        for (int64_t i = 0; i < gradients.count; ++i) all += gradients.sizes[i];
#pragma omp parallel num_threads(threads) if (threads > 1)
        {
            const int64_t me = omp_get_thread_num(), others = omp_get_num_threads();
            auto cut = [&](int64_t k) { return k == others ? all : all * k / others / LANES * LANES; };
            int64_t before = 0;
            for (int64_t i = 0; i < gradients.count; before += gradients.sizes[i++]) {
                const int64_t from = std::max<int64_t>(cut(me) - before, 0), to = std::min(cut(me + 1) - before, gradients.sizes[i]);
                move<Format>(gradients.at[i], from, to, gradients.starts[i]);
            }
        }
    }

    // Elements [from, to) of one gradient.
    template <class Format>
    INLINE void move(const void* gradient, int64_t from, int64_t to, int64_t start) const {
        const f32v decay = all(weight_decay);
        const bool decays = weight_decay != 0.f;
        for (int64_t i = from; i < to; i += LANES) {
            const int n = lanes(to, i);
            const f32v w = Format::load(weights, start + i, n);
            f32v g = gradients.bf16 ? from_bf16(load_u16((const uint16_t*)gradient + i, n)) : load_f32((const float*)gradient + i, n);
            if (decays) g = multiply_add(w, decay, g);
            Format::store(weights, start + i, optimizer.moved(w, g, start + i, n), n);
        }
    }
};

}  // namespace

extern "C" void sgd_step(void* weight, void* low, int format, const Gradients* gradients, float weight_decay, int threads, float lr, float momentum,
                         float* velocity) {
    with_format(format, Step<Sgd>{{weight, low}, *gradients, weight_decay, {lr, momentum, velocity}, threads});
}

extern "C" void adam_step(void* weight, void* low, int format, const Gradients* gradients, float weight_decay, int threads, float* mean,
                          float* square, float new_mean, float old_square, float new_square, float root, float eps, float rate) {
    const Adam adam{mean, square, new_mean, old_square, new_square, root, eps, rate};
    with_format(format, Step<Adam>{{weight, low}, *gradients, weight_decay, adam, threads});
}
