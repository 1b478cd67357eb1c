// One step of SGD or Adam over a vector of weights in any format, read once and written once. Rounded where torch's optimizers round: each
// of their additions of a multiple is one fused operation.
#include "formats.h"

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
    const void* grad;
    int bf16;
    int64_t count;
    float weight_decay;
    Optimizer optimizer;
    int threads;

    template <class Format>
    void operator()() const {
        const f32v decay = all(weight_decay);
        const bool decays = weight_decay != 0.f;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
        for (int64_t at = 0; at < count; at += LANES) {
            const int n = (int)(count - at < LANES ? count - at : LANES);
            const f32v w = Format::load(weights, at, n);
            f32v g = bf16 ? from_bf16(load_u16((const uint16_t*)grad + at, n)) : load_f32((const float*)grad + at, n);
            if (decays) g = multiply_add(w, decay, g);
            Format::store(weights, at, optimizer.moved(w, g, at, n), n);
        }
    }
};

}  // namespace

extern "C" {

void sgd_step(void* weight, void* low, int format, const void* grad, int bf16, int64_t count, float weight_decay, int threads, float lr,
              float momentum, float* velocity) {
    with_format(format, Step<Sgd>{{weight, low}, grad, bf16, count, weight_decay, {lr, momentum, velocity}, threads});
}

void adam_step(void* weight, void* low, int format, const void* grad, int bf16, int64_t count, float weight_decay, int threads, float* mean,
               float* square, float new_mean, float old_square, float new_square, float root, float eps, float rate) {
    const Adam adam{mean, square, new_mean, old_square, new_square, root, eps, rate};
    with_format(format, Step<Adam>{{weight, low}, grad, bf16, count, weight_decay, adam, threads});
}

}
