// One step of SGD over a vector of weights in any format, read once and written once. Rounded where torch.optim.SGD rounds: each
// of its additions of a multiple is one fused operation.
#include "formats.h"

namespace {

struct Step {
    Matrix weights;
    const void* grad;
    int bf16;
    int64_t count;
    float lr, weight_decay, momentum;
    float* velocity;  // null without momentum
};

template <class Format>
void run(const Step& s, int threads) {
    const f32v rate = all(-s.lr), decay = all(s.weight_decay), momentum = all(s.momentum);
    const bool decays = s.weight_decay != 0.f;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t at = 0; at < s.count; at += LANES) {
        const int n = (int)(s.count - at < LANES ? s.count - at : LANES);
        const f32v w = Format::load(s.weights, at, n);
        f32v g = s.bf16 ? from_bf16(load_u16((const uint16_t*)s.grad + at, n)) : load_f32((const float*)s.grad + at, n);
        if (decays) g = multiply_add(w, decay, g);
        if (s.velocity) {
            g = load_f32(s.velocity + at, n) * momentum + g;
            store_f32(s.velocity + at, g, n);
        }
        Format::store(s.weights, at, multiply_add(g, rate, w), n);
    }
}

struct Run {
    const Step& step;
    int threads;
    template <class Format>
    void operator()() const { run<Format>(step, threads); }
};

}  // namespace

extern "C" void sgd_step(void* weight, void* low, int format, const void* grad, int bf16, int64_t count, float lr, float weight_decay,
                         float momentum, float* velocity, int threads) {
    const Step step{{weight, low}, grad, bf16, count, lr, weight_decay, momentum, velocity};
    with_format(format, Run{step, threads});
}
