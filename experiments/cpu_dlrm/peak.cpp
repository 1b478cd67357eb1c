// What the processor multiplies and adds at most: independent accumulators in registers, no memory. GFLOP/s of `threads` threads, a
// multiply-add as two.

#include <omp.h>
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace {

constexpr int lanes = 16, independent = 16;
typedef float Lanes __attribute__((vector_size(lanes * sizeof(float))));

float sum(const Lanes& of) {
    float total = 0;
    for (int i = 0; i < lanes; i++) total += of[i];
    return total;
}

}  // namespace

extern "C" double fp32_gflop_s(int threads, long rounds, float* sink) {
    float total = 0;
    const double began = omp_get_wtime();
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        Lanes into[independent], x, y;
        for (int i = 0; i < lanes; i++) x[i] = 1.0000001f, y[i] = 1e-9f;
        for (int i = 0; i < independent; i++) into[i] = x * (*sink + i);  // unlike one another, or the compiler makes one of them
        for (long n = 0; n < rounds; n++)
#pragma GCC unroll 16
            for (int i = 0; i < independent; i++) into[i] = into[i] * x + y;
        for (int i = 0; i < independent; i++) total += sum(into[i]);
    }
    *sink = total;
    return 2.0 * lanes * independent * rounds * threads / (omp_get_wtime() - began) / 1e9;
}

// 0 where the processor has no dot product of BF16.
extern "C" double bf16_gflop_s(int threads, long rounds, float* sink) {
#if defined(__AVX512BF16__)
    float total = 0;
    const double began = omp_get_wtime();
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        __m512 into[independent];
        for (int i = 0; i < independent; i++) into[i] = _mm512_set1_ps(*sink + i);
        const __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f803f80), y = (__m512bh)_mm512_set1_epi32(0x2f802f80);
        for (long n = 0; n < rounds; n++)
#pragma GCC unroll 16
            for (int i = 0; i < independent; i++) into[i] = _mm512_dpbf16_ps(into[i], x, y);
        for (int i = 0; i < independent; i++) total += _mm512_reduce_add_ps(into[i]);
    }
    *sink = total;
    return 4.0 * lanes * independent * rounds * threads / (omp_get_wtime() - began) / 1e9;
#else
    *sink = 0;
    return 0;
#endif
}
