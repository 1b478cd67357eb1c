// First values of a table's rows, as recsys_lab/models/table_weights.py defines them: 24 bits of SplitMix64 a value, two values a draw.
#include <cstdint>

namespace {

constexpr uint64_t GAMMA = 0x9E3779B97F4A7C15, MIX_1 = 0xBF58476D1CE4E5B9, MIX_2 = 0x94D049BB133111EB;

inline uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * MIX_1;
    z = (z ^ (z >> 27)) * MIX_2;
    return z ^ (z >> 31);
}

}  // namespace

// Draws [first, last) of `draws` of each of `rows`, to `out` [n, 2 * (last - first)]. A value is its bits times `scale`, less `bound`.
extern "C" void first_rows(
    const int64_t* rows, int64_t n, uint64_t key, int64_t draws, int64_t first, int64_t last, float scale, float bound, float* out) {
    const int64_t width = last - first;
    for (int64_t i = 0; i < n; ++i) {
        const uint64_t begin = key + ((uint64_t)rows[i] * (uint64_t)draws + (uint64_t)first) * GAMMA;
        float* at = out + i * 2 * width;
        for (int64_t k = 0; k < width; ++k) {
            const uint64_t bits = mix(begin + (uint64_t)k * GAMMA);
            at[2 * k] = (float)(int32_t)((uint32_t)bits >> 8) * scale - bound;
            at[2 * k + 1] = (float)(int32_t)((uint32_t)(bits >> 32) >> 8) * scale - bound;
        }
    }
}
