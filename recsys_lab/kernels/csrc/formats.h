// Number formats of stored weights, a register at a time: sixteen with AVX-512, else eight. Vectors are the compiler's own; intrinsics
// stand only where the compiler finds no good code itself. Nothing here contracts a product and a sum. No result depends on the width.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define WIDE_MASKS 1
#else
#define WIDE_MASKS 0
#endif
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__) && !defined(__AVX512F__)
#define HALF_WIDE 1
#else
#define HALF_WIDE 0
#endif

#define INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__)
constexpr int LANES = 16;
#else
constexpr int LANES = 8;
#endif
INLINE int lanes(int64_t dim, int64_t col) { return dim - col < LANES ? (int)(dim - col) : LANES; }  // of the columns from `col` on
typedef float f32v __attribute__((vector_size(4 * LANES)));
typedef uint32_t u32v __attribute__((vector_size(4 * LANES)));
typedef int32_t i32v __attribute__((vector_size(4 * LANES)));
typedef uint16_t u16v __attribute__((vector_size(2 * LANES)));
typedef uint8_t u8v __attribute__((vector_size(LANES)));
#if defined(__AVX512F__)
constexpr i32v LANE = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#else
constexpr i32v LANE = {0, 1, 2, 3, 4, 5, 6, 7};
#endif

INLINE f32v as_float(u32v x) { return (f32v)x; }
INLINE u32v as_bits(f32v x) { return (u32v)x; }

// `n` of LANES elements; the others read as zero and are not written. All of them go without a mask: masked stores are slow to be read.
template <class V, class T>
INLINE V load_all(const T* p) { V x; std::memcpy(&x, p, sizeof x); return x; }
template <class V, class T>
INLINE V load_some(const T* p, int n) { V x = {}; std::memcpy(&x, p, n * sizeof(T)); return x; }
template <class V, class T>
INLINE void store(T* p, V x, int n) { if (__builtin_expect(n == LANES, 1)) std::memcpy(p, &x, sizeof x); else std::memcpy(p, &x, n * sizeof(T)); }

#if WIDE_MASKS
#define SOME (__mmask16)((1u << n) - 1)
INLINE f32v load_f32(const float* p, int n) { return __builtin_expect(n == LANES, 1) ? load_all<f32v>(p) : (f32v)_mm512_maskz_loadu_ps(SOME, p); }
INLINE u16v load_u16(const uint16_t* p, int n) { return __builtin_expect(n == LANES, 1) ? load_all<u16v>(p) : (u16v)_mm256_maskz_loadu_epi16(SOME, p); }
INLINE u8v load_u8(const uint8_t* p, int n) { return __builtin_expect(n == LANES, 1) ? load_all<u8v>(p) : (u8v)_mm_maskz_loadu_epi8(SOME, p); }
INLINE void store_f32(float* p, f32v x, int n) { if (__builtin_expect(n == LANES, 1)) store(p, x, LANES); else _mm512_mask_storeu_ps(p, SOME, (__m512)x); }
INLINE void store_u16(uint16_t* p, u16v x, int n) { if (__builtin_expect(n == LANES, 1)) store(p, x, LANES); else _mm256_mask_storeu_epi16(p, SOME, (__m256i)x); }
INLINE void store_u8(uint8_t* p, u8v x, int n) { if (__builtin_expect(n == LANES, 1)) store(p, x, LANES); else _mm_mask_storeu_epi8(p, SOME, (__m128i)x); }
#undef SOME
#else
#if HALF_WIDE
#define SOME (__m256i)(LANE < n)
INLINE f32v load_f32(const float* p, int n) { return __builtin_expect(n == LANES, 1) ? load_all<f32v>(p) : (f32v)_mm256_maskload_ps(p, SOME); }
INLINE void store_f32(float* p, f32v x, int n) { if (__builtin_expect(n == LANES, 1)) store(p, x, LANES); else _mm256_maskstore_ps(p, SOME, (__m256)x); }
#undef SOME
#else
INLINE f32v load_f32(const float* p, int n) { return n == LANES ? load_all<f32v>(p) : load_some<f32v>(p, n); }
INLINE void store_f32(float* p, f32v x, int n) { store(p, x, n); }
#endif
INLINE u16v load_u16(const uint16_t* p, int n) { return n == LANES ? load_all<u16v>(p) : load_some<u16v>(p, n); }
INLINE u8v load_u8(const uint8_t* p, int n) { return n == LANES ? load_all<u8v>(p) : load_some<u8v>(p, n); }
INLINE void store_u16(uint16_t* p, u16v x, int n) { store(p, x, n); }
INLINE void store_u8(uint8_t* p, u8v x, int n) { store(p, x, n); }
#endif

// A whole register to an address that its size divides, past the caches: they would read the line from memory before it is written. Once
// all is written, `past_is_written` orders it before what follows.
#if defined(__AVX512F__)
INLINE void store_past(float* p, f32v x) { _mm512_stream_ps(p, (__m512)x); }
INLINE void store_past(uint16_t* p, u16v x) { _mm256_stream_si256((__m256i*)p, (__m256i)x); }
#elif defined(__AVX__)
INLINE void store_past(float* p, f32v x) { _mm256_stream_ps(p, (__m256)x); }
INLINE void store_past(uint16_t* p, u16v x) { _mm_stream_si128((__m128i*)p, (__m128i)x); }
#else
INLINE void store_past(float* p, f32v x) { store_f32(p, x, LANES); }
INLINE void store_past(uint16_t* p, u16v x) { store_u16(p, x, LANES); }
#endif
template <bool past>
INLINE void store_f32(float* p, f32v x, int n) { if (past) store_past(p, x); else store_f32(p, x, n); }
template <bool past>
INLINE void store_u16(uint16_t* p, u16v x, int n) { if (past) store_past(p, x); else store_u16(p, x, n); }
INLINE void past_is_written() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

#if defined(__AVX512F__)
INLINE u32v widen(u16v x) { return (u32v)_mm512_cvtepu16_epi32((__m256i)x); }
INLINE u16v narrow(u32v x) { return (u16v)_mm512_cvtepi32_epi16((__m512i)x); }
#else
INLINE u32v widen(u16v x) { return __builtin_convertvector(x, u32v); }
INLINE u16v narrow(u32v x) { return __builtin_convertvector(x, u16v); }
#endif

INLINE f32v from_bf16(u16v x) { return as_float(widen(x) << 16); }
// To nearest, ties to even. A NaN stays a (quiet) NaN.
INLINE u16v to_bf16(f32v x) {
    const u32v u = as_bits(x), up = u + 0x7FFFu + ((u >> 16) & 1u);
    return narrow(((u32v)(x == x) ? up : (u | 0x400000u)) >> 16);
}

INLINE f32v from_fp16(u16v x) {
#if defined(__AVX512F__)
    return (f32v)_mm512_cvtph_ps((__m256i)x);
#elif HALF_WIDE
    return (f32v)_mm256_cvtph_ps((__m128i)x);
#else
    f32v y;
    for (int i = 0; i < LANES; ++i) { _Float16 h; uint16_t b = x[i]; std::memcpy(&h, &b, 2); y[i] = (float)h; }
    return y;
#endif
}
INLINE u16v to_fp16(f32v x) {
#if defined(__AVX512F__)
    return (u16v)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif HALF_WIDE
    return (u16v)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    u16v y;
    for (int i = 0; i < LANES; ++i) { _Float16 h = (_Float16)x[i]; uint16_t b; std::memcpy(&b, &h, 2); y[i] = b; }
    return y;
#endif
}

INLINE f32v all(float x) {
    return x - f32v{};  // exact, a negative zero's sign included
}
// a b + c, rounded once.
INLINE f32v multiply_add(f32v a, f32v b, f32v c) {
#if defined(__AVX512F__)
    return (f32v)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif HALF_WIDE
    return (f32v)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    f32v y;
    for (int i = 0; i < LANES; ++i) y[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return y;
#endif
}
INLINE f32v square_root(f32v x) {
#if defined(__AVX512F__)
    return (f32v)_mm512_sqrt_ps((__m512)x);
#elif HALF_WIDE
    return (f32v)_mm256_sqrt_ps((__m256)x);
#else
    f32v y;
    for (int i = 0; i < LANES; ++i) y[i] = std::sqrt(x[i]);
    return y;
#endif
}

// LANES rows of as many numbers, turned in place: blocks of half as many, a quarter and so on change sides.
INLINE void turn(f32v* r) {
#pragma GCC unroll 4
    for (int w = LANES / 2; w; w /= 2) {
        const i32v upper = (LANE & w) != 0;  // all ones there
        const i32v first = (LANE & ~upper) | (((LANE ^ w) + LANES) & upper), second = ((LANE ^ w) & ~upper) | ((LANE + LANES) & upper);
#pragma GCC unroll 16
        for (int i = 0; i < LANES; ++i)
            if (!(i & w)) {
                const f32v a = r[i], b = r[i | w];
                r[i] = __builtin_shuffle(a, b, first), r[i | w] = __builtin_shuffle(a, b, second);
            }
    }
}

// A format reads and writes elements [at, at + n) of a matrix that is `weight` and, where it has a second part, `low`.
struct Matrix {
    void* weight;
    void* low;
};

struct Fp32 {
    static constexpr int bytes = 4, low_bytes = 0;
    static INLINE f32v load(const Matrix& m, int64_t at, int n) { return load_f32((const float*)m.weight + at, n); }
    static INLINE void store(const Matrix& m, int64_t at, f32v x, int n) { store_f32((float*)m.weight + at, x, n); }
};
struct Bf16 {
    static constexpr int bytes = 2, low_bytes = 0;
    static INLINE f32v load(const Matrix& m, int64_t at, int n) { return from_bf16(load_u16((const uint16_t*)m.weight + at, n)); }
    static INLINE void store(const Matrix& m, int64_t at, f32v x, int n) { store_u16((uint16_t*)m.weight + at, to_bf16(x), n); }
};
struct Fp16 {
    static constexpr int bytes = 2, low_bytes = 0;
    static INLINE f32v load(const Matrix& m, int64_t at, int n) { return from_fp16(load_u16((const uint16_t*)m.weight + at, n)); }
    static INLINE void store(const Matrix& m, int64_t at, f32v x, int n) { store_u16((uint16_t*)m.weight + at, to_fp16(x), n); }
};
// The two halves of an FP32 weight: every bit is kept.
struct Split16 {
    static constexpr int bytes = 2, low_bytes = 2;
    static INLINE f32v load(const Matrix& m, int64_t at, int n) {
        u32v high = widen(load_u16((const uint16_t*)m.weight + at, n)), low = widen(load_u16((const uint16_t*)m.low + at, n));
        return as_float(high << 16 | low);
    }
    static INLINE void store(const Matrix& m, int64_t at, f32v x, int n) {
        u32v u = as_bits(x);
        store_u16((uint16_t*)m.weight + at, narrow(u >> 16), n);
        store_u16((uint16_t*)m.low + at, narrow(u), n);
    }
#if HALF_WIDE
    // The same of 16 elements at a time: x is `first` and `second` eight. Instructions join and part within halves of a register, so quarters change
    // places before or after.
    static INLINE void load_two(const Matrix& m, int64_t at, f32v& first, f32v& second) {
        const __m256i high = quarters(_mm256_loadu_si256((const __m256i*)((const uint16_t*)m.weight + at)));
        const __m256i low = quarters(_mm256_loadu_si256((const __m256i*)((const uint16_t*)m.low + at)));
        first = (f32v)_mm256_unpacklo_epi16(low, high);
        second = (f32v)_mm256_unpackhi_epi16(low, high);
    }
    static INLINE void store_two(const Matrix& m, int64_t at, f32v first, f32v second) {
        const __m256i a = (__m256i)first, b = (__m256i)second, zero = _mm256_setzero_si256();
        const __m256i high = _mm256_packus_epi32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16));
        const __m256i low = _mm256_packus_epi32(_mm256_blend_epi16(a, zero, 0xAA), _mm256_blend_epi16(b, zero, 0xAA));
        _mm256_storeu_si256((__m256i*)((uint16_t*)m.weight + at), quarters(high));
        _mm256_storeu_si256((__m256i*)((uint16_t*)m.low + at), quarters(low));
    }
    static INLINE __m256i quarters(__m256i x) { return _mm256_permute4x64_epi64(x, 0xD8); }  // the second and the third change places
#elif WIDE_MASKS
    // The same of 32 elements at a time: x is `first` and `second` sixteen.
    static INLINE void load_two(const Matrix& m, int64_t at, f32v& first, f32v& second) {
        const __m512i high = _mm512_loadu_si512((const uint16_t*)m.weight + at), low = _mm512_loadu_si512((const uint16_t*)m.low + at);
        first = (f32v)_mm512_permutex2var_epi16(low, every(0, 32), high);
        second = (f32v)_mm512_permutex2var_epi16(low, every(16, 32), high);
    }
    static INLINE void store_two(const Matrix& m, int64_t at, f32v first, f32v second) {
        _mm512_storeu_si512((uint16_t*)m.weight + at, _mm512_permutex2var_epi16((__m512i)first, evens(1), (__m512i)second));
        _mm512_storeu_si512((uint16_t*)m.low + at, _mm512_permutex2var_epi16((__m512i)first, evens(0), (__m512i)second));
    }
    typedef uint16_t lanes32 __attribute__((vector_size(64)));
    static INLINE __m512i every(uint16_t from, uint16_t other) {  // from, other + from, from + 1, other + from + 1, ...
        lanes32 x;
        for (int i = 0; i < 32; ++i) x[i] = (uint16_t)(from + i / 2 + (i % 2 ? other : 0));
        return (__m512i)x;
    }
    static INLINE __m512i evens(uint16_t from) {
        lanes32 x;
        for (int i = 0; i < 32; ++i) x[i] = (uint16_t)(from + 2 * i);
        return (__m512i)x;
    }
#endif
};
// The upper half and eight more bits; the last eight are lost at each update.
struct Split8 {
    static constexpr int bytes = 2, low_bytes = 1;
    static INLINE f32v load(const Matrix& m, int64_t at, int n) {
        u32v high = widen(load_u16((const uint16_t*)m.weight + at, n));
        u32v low = __builtin_convertvector(load_u8((const uint8_t*)m.low + at, n), u32v);
        return as_float(high << 16 | low << 8);
    }
    static INLINE void store(const Matrix& m, int64_t at, f32v x, int n) {
        u32v u = as_bits(x);
        store_u16((uint16_t*)m.weight + at, narrow(u >> 16), n);
        store_u8((uint8_t*)m.low + at, __builtin_convertvector(u >> 8, u8v), n);
    }
};
// A BF16 model beside FP32 master weights: the update reads the master and rounds it once into the model.
struct Bf16Master {
    static constexpr int bytes = 2, low_bytes = 4;
    static INLINE f32v load(const Matrix& m, int64_t at, int n) { return load_f32((const float*)m.low + at, n); }
    static INLINE void store(const Matrix& m, int64_t at, f32v x, int n) {
        store_f32((float*)m.low + at, x, n);
        store_u16((uint16_t*)m.weight + at, to_bf16(x), n);
    }
};

// Calls f.template operator()<Format>() for a format's number, as recsys_lab/kernels/native.py gives it.
template <class F>
void with_format(int format, F&& f) {
    switch (format) {
        case 0: return f.template operator()<Fp32>();
        case 1: return f.template operator()<Bf16>();
        case 2: return f.template operator()<Fp16>();
        case 3: return f.template operator()<Split16>();
        case 4: return f.template operator()<Split8>();
        case 5: return f.template operator()<Bf16Master>();
    }
}
