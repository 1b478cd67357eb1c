// Sequential bandwidth, for benchmarks: what the kernels are held against, under the same threads. And what this library is.
#include <omp.h>

#include "lookups.h"

extern "C" float stream_read(const float* p, int64_t n, int threads) {
    float total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        const int64_t me = omp_get_thread_num(), all = omp_get_num_threads(), lines = n / (4 * LANES);
        f32v a = {}, b = {}, c = {}, d = {};
        for (int64_t i = lines * me / all; i < lines * (me + 1) / all; ++i) {
            const float* q = p + i * 4 * LANES;
            a += load_f32(q, LANES); b += load_f32(q + LANES, LANES); c += load_f32(q + 2 * LANES, LANES); d += load_f32(q + 3 * LANES, LANES);
        }
        a += b + c + d;
        for (int i = 0; i < LANES; ++i) total += a[i];
    }
    return total;
}

// Every element read, multiplied and written back in its place.
extern "C" void stream_update(float* p, int64_t n, float factor, int threads) {
#pragma omp parallel num_threads(threads)
    {
        const int64_t me = omp_get_thread_num(), all = omp_get_num_threads(), lines = n / LANES;
        for (int64_t i = lines * me / all; i < lines * (me + 1) / all; ++i) store_f32(p + i * LANES, load_f32(p + i * LANES, LANES) * factor, LANES);
    }
}

extern "C" int threads_of_a_region(int threads) {
    int seen = 0;
#pragma omp parallel num_threads(threads)
#pragma omp single
    seen = omp_get_num_threads();
    return seen;
}

// -1, or the first place at which `offsets` [bags + 1] do not rise from 0 to n.
extern "C" int64_t check_offsets(const int64_t* offsets, int64_t bags, int64_t n) {
    if (offsets[0] != 0) return 0;
    int64_t falls = 0;
    for (int64_t i = 0; i < bags; ++i) falls += offsets[i + 1] < offsets[i];
    if (falls) for (int64_t i = 0; i < bags; ++i) if (offsets[i + 1] < offsets[i]) return i + 1;
    return offsets[bags] == n ? FINE : bags;
}

extern "C" const char* instructions() {
#if WIDE_MASKS
    return "AVX-512";
#elif defined(__AVX2__)
    return "AVX2";
#else
    return "baseline";
#endif
}
