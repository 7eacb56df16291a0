/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What generated kernels share: integer scaling, clamping, copying, and the float functions of our own.
 *
 * Contract with the compiler:
 *
 * - Right shifts of negative values are arithmetic, and int has 32 bits.
 * - Each float operation is rounded once, to the nearest float, in the order of the source. crt_evenf and the
 *   requantisation of ONNX depend on it: -ffast-math removes the addition that rounds, takes a reciprocal where
 *   the source divides, and fuses products with sums. An Arduino menu or a project's flags may ask for that, so
 *   this header takes it back for all functions that follow it, or refuses. clang fuses under
 *   -ffp-contract=fast whatever a source says, and no macro tells: do not use it for these files.
 */
#ifndef CRT_KERNEL_H
#define CRT_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __ARM_FEATURE_SIMD32
#include <arm_acle.h>
#endif

#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
/* Only where something has to be taken back: GCC allocates registers otherwise behind such a pragma. */
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || \
    (!defined(__STRICT_ANSI__) && defined(__FP_FAST_FMAF))
#pragma GCC optimize("no-fast-math", "fp-contract=off")
#endif
#endif
#if defined(__FAST_MATH__) && (defined(__clang__) || !defined(__GNUC__))
#error "-ffast-math changes results: compile the sources of generated models with -fno-fast-math"
#endif

#if defined(__ARM_ARCH) && !(defined(__ARM_FP) && ((__ARM_FP & 4) != 0))
#define CRT_NO_FPU 1 /* float operations are calls of some hundred instructions */
#endif

/* a * b / 2^31, rounded to nearest, halves up. Not both may be INT32_MIN. */
static inline int32_t crt_high_mul(int32_t a, int32_t b)
{
    return (int32_t)(((int64_t)a * b + (1 << 30)) >> 31);
}

/*
 * x / 2^shift, rounded to nearest, halves away from zero; 1 <= shift <= 31, |x| < INT32_MAX.
 *
 * First to halves by a plain shift, then to nearest: nothing overflows, and no constant has to be built.
 */
static inline int32_t crt_round_shift(int32_t x, int32_t shift)
{
    return (((x + (x >> 31)) >> (shift - 1)) + 1) >> 1;
}

/* x << shift, wrapping. */
static inline int32_t crt_shift_left(int32_t x, int32_t shift)
{
    return (int32_t)((uint32_t)x << shift);
}

/* x << shift, saturating; 0 <= shift <= 31. */
static inline int32_t crt_saturating_shift(int32_t x, int32_t shift)
{
    int64_t wide = (int64_t)x * ((int64_t)1 << shift);
    return (wide > INT32_MAX) ? INT32_MAX : ((wide < INT32_MIN) ? INT32_MIN : (int32_t)wide);
}

/*
 * x * multiplier / 2^(32 + right), rounded twice; 0 <= right <= 30, |x| < 2^30.
 *
 * The same as crt_round_shift(crt_high_mul(x, multiplier), right + 1) in fewer instructions: the first rounding
 * adds the next bit to the high word of the doubled product.
 */
static inline int32_t crt_scale_down(int32_t x, int32_t multiplier, int32_t right)
{
    const int64_t product = (int64_t)(x * 2) * multiplier;
    const int32_t high = (int32_t)(product >> 32) + (int32_t)((uint32_t)product >> 31);
    return (((high + (high >> 31)) >> right) + 1) >> 1;
}

/* x * multiplier * 2^(shift - 31), rounded twice; -31 <= shift <= 31. */
static inline int32_t crt_scale(int32_t x, int32_t multiplier, int32_t shift)
{
    if (shift >= 0) {
        return crt_high_mul(crt_shift_left(x, shift), multiplier);
    }
    return crt_round_shift(crt_high_mul(x, multiplier), -shift);
}

/* crt_scale(x, 1 << 30, -bits), for x below 2^31 - 1 */
static inline int32_t crt_scale_half(int32_t x, int32_t bits)
{
    return crt_round_shift((x + 1) >> 1, bits);
}

/* x as the nearest integer, halves to even; |x| < 2^22. The sum with the constant has no room for a fraction. */
static inline int32_t crt_evenf(float x)
{
    const float moved = x + 12582912.0f;
    return (int32_t)(moved - 12582912.0f);
}

/* whole + fraction / 2^32 as the nearest integer, halves to even, or to odd if odd is 1. fraction is even. */
static inline uint32_t crt_half(uint32_t whole, uint32_t fraction, uint32_t odd)
{
    return whole + (((fraction + ((whole ^ odd) & 1U)) > 0x80000000U) ? 1U : 0U);
}

static inline uint32_t crt_half_even(uint32_t whole, uint32_t fraction)
{
    return crt_half(whole, fraction, 0U);
}

#if defined(CRT_NO_FPU)
/*
 * crt_scale_even, or crt_scale_odd if odd is 1, with the roundings of float32 spelled out: x to 24 bits, the product
 * of 48 bits to 24, and the bits that are shifted out. The product is kept as two values of 24 bits, high and low;
 * high has as many bits as are dropped.
 */
static inline int32_t crt_scale_exact(int32_t x, int32_t multiplier, int32_t right, uint32_t odd)
{
    uint32_t size = (x < 0) ? (0U - (uint32_t)x) : (uint32_t)x;
    if ((size >> 24) != 0U) {
        const int32_t places = 8 - (int32_t)__builtin_clz(size);
        size = crt_half_even(size >> places, size << (32 - places));
        right -= places;
    }
#if defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB == 1 /* which has products of 32 bits only */
    const uint32_t factor = (uint32_t)multiplier;
    const uint32_t middle = ((size >> 12) * (factor & 0xFFFU)) + ((size & 0xFFFU) * (factor >> 12));
    const uint32_t lower = ((size & 0xFFFU) * (factor & 0xFFFU)) + ((middle & 0xFFFU) << 12);
    const uint32_t high = ((size >> 12) * (factor >> 12)) + (middle >> 12) + (lower >> 24);
    const uint32_t low = lower & 0xFFFFFFU;
#else
    const uint64_t product = (uint64_t)size * (uint32_t)multiplier;
    const uint32_t high = (uint32_t)(product >> 24);
    const uint32_t low = (uint32_t)product & 0xFFFFFFU;
#endif
    const int32_t dropped = 31 - (int32_t)__builtin_clz((high << 1) | 1U);
    const uint32_t kept = crt_half_even((high << (24 - dropped)) | (low >> dropped), (low << 8) << (24 - dropped));
    right -= dropped;
    uint32_t result = 1048576U;
    if (right >= (25 + (int32_t)odd)) { /* the largest kept, 2^24, is a half there */
        result = 0U;
    } else if (right >= 4) {
        result = crt_half(kept >> right, kept << (32 - right), odd);
        result = (result > 1048576U) ? 1048576U : result;
    } else {
        result = (kept == 0U) ? 0U : 1048576U;
    }
    return (x < 0) ? -(int32_t)result : (int32_t)result;
}

static __attribute__((noinline, unused)) int32_t crt_scale_even_exact(int32_t x, int32_t multiplier, int32_t right)
{
    return crt_scale_exact(x, multiplier, right, 0U);
}

/* crt_scale_even with halves to odd: even results when an odd number is added. */
static __attribute__((noinline, unused)) int32_t crt_scale_odd(int32_t x, int32_t multiplier, int32_t right)
{
    return crt_scale_exact(x, multiplier, right, 1U);
}
#endif

/*
 * The float32 product of x and multiplier / 2^right as the nearest integer, halves to even. multiplier has 24 bits,
 * or is 0; right is 1 to 60. Results beyond 2^20 are only approximate.
 *
 * Without an FPU most products are so far from a half that their upper 24 bits, first, are enough. With 2^24 as the
 * unit, the exact product is from first to below first + 2, since the form of M0+ leaves out a carry; and float32
 * rounds it by half a unit at most, as it is below 2^24 units. After half a step of the result was added, everything
 * from moved - 1/2 to moved + 5/2 has to be within one step, not at its ends: moved has to be 1 to 2 half - 3 in it.
 */
static inline int32_t crt_scale_even(int32_t x, int32_t multiplier, int32_t right)
{
#if defined(CRT_NO_FPU)
    const uint32_t size = (x < 0) ? (0U - (uint32_t)x) : (uint32_t)x;
    if (((size >> 24) == 0U) && ((uint32_t)(right - 28) <= 20U)) {
#if defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB == 1 /* which has products of 32 bits only */
        const uint32_t factor = (uint32_t)multiplier;
        const uint32_t middle = ((size >> 12) * (factor & 0xFFFU)) + ((size & 0xFFFU) * (factor >> 12));
        const uint32_t first = ((size >> 12) * (factor >> 12)) + (middle >> 12);
#else
        const uint32_t factor = (uint32_t)multiplier << 8;
        const uint32_t first = (uint32_t)(((uint64_t)size * factor) >> 32);
#endif
        const uint32_t half = UINT32_C(1) << (right - 25);
        const uint32_t moved = first + half;
        if (((moved + 2U) & ((half * 2U) - 1U)) > 2U) {
            const int32_t nearest = (int32_t)(moved >> (right - 24));
            return (x < 0) ? -nearest : nearest;
        }
    }
    return crt_scale_even_exact(x, multiplier, right);
#else
    const uint32_t bits = (uint32_t)(127 - right) << 23;
    float part;
    (void)memcpy(&part, &bits, sizeof part);
    const float product = ((float)x * (float)multiplier) * part;
    return crt_evenf((product > 1048576.0f) ? 1048576.0f : ((product < -1048576.0f) ? -1048576.0f : product));
#endif
}

#if !defined(CRT_NO_FPU)
/* crt_scale_even with halves to odd: even results when an odd number is added. Halves are a half from their result. */
static inline int32_t crt_scale_odd(int32_t x, int32_t multiplier, int32_t right)
{
    const uint32_t bits = (uint32_t)(127 - right) << 23;
    float part;
    (void)memcpy(&part, &bits, sizeof part);
    const float product = ((float)x * (float)multiplier) * part;
    const float limited = (product > 1048576.0f) ? 1048576.0f : ((product < -1048576.0f) ? -1048576.0f : product);
    const int32_t nearest = crt_evenf(limited);
    return nearest + (int32_t)((limited - (float)nearest) * 2.0f);
}
#endif

/* a b + c, rounded once; a is a small integer, so a double holds the product. */
static inline float crt_fmaf(float a, float b, float c)
{
#ifdef __ARM_FEATURE_FMA
    return __builtin_fmaf(a, b, c);
#else
    return (float)(((double)a * (double)b) + (double)c);
#endif
}

/* x * multiplier / 2^right, rounded, halves up; multiplier has 15 bits, x at most 48. */
static inline int32_t crt_scale_wide(int64_t x, int32_t multiplier, int32_t right)
{
    return (int32_t)(((x * multiplier) + (INT64_C(1) << (right - 1))) >> right);
}

/* x limited to low .. high, which are constant values of int8_t. */
static inline int8_t crt_int8(int32_t x, int32_t low, int32_t high)
{
#ifdef __ARM_FEATURE_SAT
    if (low == -128 && high == 127) {
        return (int8_t)__builtin_arm_ssat(x, 8);
    }
#endif
    x = (x < low) ? low : x;
    return (int8_t)((x > high) ? high : x);
}

/* The same for int16_t and uint8_t. */
static inline int16_t crt_int16(int32_t x, int32_t low, int32_t high)
{
#ifdef __ARM_FEATURE_SAT
    if (low == -32768 && high == 32767) {
        return (int16_t)__builtin_arm_ssat(x, 16);
    }
#endif
    x = (x < low) ? low : x;
    return (int16_t)((x > high) ? high : x);
}

/* x saturated to 16 bits, as an int32_t, so that no second instruction extends the sign. */
static inline int32_t crt_saturate16(int32_t x)
{
#ifdef __ARM_FEATURE_SAT
    return (int32_t)__builtin_arm_ssat(x, 16);
#else
    return crt_int16(x, -32768, 32767);
#endif
}

static inline uint8_t crt_uint8(int32_t x, int32_t low, int32_t high)
{
    x = (x < low) ? low : x;
    return (uint8_t)((x > high) ? high : x);
}

/* A four-bit value: two are in a byte, the first one in the low half. */
static inline int32_t crt_int4(const int8_t *numbers, int32_t at)
{
    return crt_shift_left(numbers[at / 2], (at % 2 != 0) ? 24 : 28) >> 28;
}

/* Sums, differences and products that wrap. */
static inline int32_t crt_add32(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}

static inline int32_t crt_sub32(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a - (uint32_t)b);
}

static inline int32_t crt_mul32(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a * (uint32_t)b);
}

/* a / b, truncated towards zero; 0 if b is 0. */
static inline int32_t crt_div32(int32_t a, int32_t b)
{
    if (b == -1) {
        return crt_sub32(0, a);
    }
    return (b == 0) ? 0 : (a / b);
}

/* sum + two products of two halfwords; x and y are aligned for halfwords. */
static inline int32_t crt_add_products(const int16_t *x, const int16_t *y, int32_t sum)
{
#if defined(__ARM_FEATURE_SIMD32) && defined(__ARM_FEATURE_UNALIGNED)
    int16x2_t a;
    int16x2_t b;
    (void)memcpy(&a, x, sizeof a);
    (void)memcpy(&b, y, sizeof b);
    return __smlad(a, b, sum);
#else
    return sum + (x[0] * y[0]) + (x[1] * y[1]);
#endif
}

static inline int32_t crt_min(int32_t a, int32_t b)
{
    return (a < b) ? a : b;
}

static inline int32_t crt_max(int32_t a, int32_t b)
{
    return (a > b) ? a : b;
}

/* i limited to 0 .. most. */
static inline int32_t crt_index(int64_t i, int32_t most)
{
    return (i < 0) ? 0 : ((i > most) ? most : (int32_t)i);
}

static inline float crt_minf(float a, float b)
{
    return (a < b) ? a : b;
}

static inline float crt_maxf(float a, float b)
{
    return (a > b) ? a : b;
}

/* Copy a word to any address from any address; on cores that need alignment both are aligned. */
static inline void crt_copy_word(uint8_t *to, const uint8_t *from)
{
    uint32_t word;
#if defined(__ARM_ARCH) && !defined(__ARM_FEATURE_UNALIGNED)
    (void)memcpy(&word, __builtin_assume_aligned(from, 4), sizeof word);
    (void)memcpy(__builtin_assume_aligned(to, 4), &word, sizeof word);
#else
    (void)memcpy(&word, from, sizeof word);
    (void)memcpy(to, &word, sizeof word);
#endif
}

#ifdef __ARM_FEATURE_SIMD32
/* Four bytes from anywhere, or to anywhere. */
static inline uint32_t crt_load4(const int8_t *from)
{
    uint32_t word;
    (void)memcpy(&word, from, sizeof word);
    return word;
}

static inline void crt_store4(int8_t *to, uint32_t word)
{
    (void)memcpy(to, &word, sizeof word);
}

/* Of each byte the greater, or the lesser; the difference sets what SEL selects by. */
static inline uint32_t crt_maximum4(uint32_t a, uint32_t b)
{
    (void)__ssub8((int8x4_t)a, (int8x4_t)b);
    return (uint32_t)__sel((uint8x4_t)a, (uint8x4_t)b);
}

static inline uint32_t crt_minimum4(uint32_t a, uint32_t b)
{
    (void)__ssub8((int8x4_t)a, (int8x4_t)b);
    return (uint32_t)__sel((uint8x4_t)b, (uint8x4_t)a);
}
#endif

/*
 * Copy n bytes, by words if possible: shorter and faster than memcpy of a small libc. The areas do not overlap, or
 * the destination begins at least a word below the source.
 */
static inline void crt_copy(void *to, const void *from, size_t n)
{
    uint8_t *y = to;
    const uint8_t *x = from;
#if defined(__ARM_ARCH) && !defined(__ARM_FEATURE_UNALIGNED)
    if ((((uintptr_t)x | (uintptr_t)y) & 3u) != 0) {
        for (; n > 0; n--) {
            *y++ = *x++;
        }
        return;
    }
#endif
#if defined(__ARM_FEATURE_MVE) && !defined(__OPTIMIZE_SIZE__)
    typedef uint8_t vector __attribute__((vector_size(16), aligned(1), may_alias));
    for (; n >= 16; n -= 16) {
        *(vector *)y = *(const vector *)x;
        x += 16;
        y += 16;
    }
#elif !defined(__OPTIMIZE_SIZE__)
    for (; n >= 16; n -= 16) {
        crt_copy_word(y, x);
        crt_copy_word(y + 4, x + 4);
        crt_copy_word(y + 8, x + 8);
        crt_copy_word(y + 12, x + 12);
        x += 16;
        y += 16;
    }
#endif
    for (size_t words = n / 4; words > 0; words--) {
        crt_copy_word(y, x);
        x += 4;
        y += 4;
    }
    for (n %= 4; n > 0; n--) {
        *y++ = *x++;
    }
}

/* Copy n bytes; n and both addresses are multiples of 4, and the areas do not overlap. */
static inline void crt_copy_words(void *to, const void *from, size_t n)
{
    uint8_t *y = __builtin_assume_aligned(to, 4);
    const uint8_t *x = __builtin_assume_aligned(from, 4);
    for (; n >= 16; n -= 16) {
        (void)memcpy(__builtin_assume_aligned(y, 4), __builtin_assume_aligned(x, 4), 16);
        x += 16;
        y += 16;
    }
    for (; n > 0; n -= 4) {
        (void)memcpy(__builtin_assume_aligned(y, 4), __builtin_assume_aligned(x, 4), 4);
        x += 4;
        y += 4;
    }
}

/* Set n bytes, by words if possible. */
static inline void crt_fill(void *to, uint8_t value, size_t n)
{
    uint8_t *y = to;
    const uint32_t word = value * 0x01010101u;
#if defined(__ARM_ARCH) && !defined(__ARM_FEATURE_UNALIGNED)
    if (((uintptr_t)y & 3u) != 0) {
        (void)memset(y, value, n);
        return;
    }
#endif
    for (size_t words = n / 4; words > 0; words--) {
        crt_copy_word(y, (const uint8_t *)&word);
        y += 4;
    }
    for (n %= 4; n > 0; n--) {
        *y++ = value;
    }
}

/* 2^n; -126 <= n <= 127. */
static inline float crt_pow2f(int32_t n)
{
    uint32_t bits = (uint32_t)(n + 127) << 23;
    float power;
    (void)memcpy(&power, &bits, sizeof power);
    return power;
}

/*
 * e^x within 2 ulp; 0 below -104, infinite above 88.8.
 *
 * x = n * ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts, e^r = 1 + r + r^2 * p(r): p is the minimax
 * polynomial of degree 4.
 */
static inline float crt_expf(float x)
{
    x = crt_minf(crt_maxf(x, -104.0f), 89.0f);
    int32_t n = (int32_t)((x * 1.44269504f) + ((x < 0.0f) ? -0.5f : 0.5f));
    float r = (x - ((float)n * 0.693359375f)) + ((float)n * 2.12194440e-4f);
    float p = 0.00139517174f;
    p = (p * r) + 0.00836959854f;
    p = (p * r) + 0.0416661873f;
    p = (p * r) + 0.166665122f;
    p = (p * r) + 0.5f;
    p = ((p * r) * r) + r + 1.0f;
    int32_t half = n / 2;
    return p * crt_pow2f(half) * crt_pow2f(n - half);
}

/* tanh x within 2 ulp: x + x^3 * p(x^2), the minimax polynomial of degree 4, or by e^2x where |x| is larger. */
static inline float crt_tanhf(float x)
{
    float magnitude = (x < 0.0f) ? -x : x;
    if (magnitude > 0.625f) {
        float y = 1.0f - (2.0f / (crt_expf(2.0f * magnitude) + 1.0f));
        return (x < 0.0f) ? -y : y;
    }
    float z = x * x;
    float p = -0.00571703259f;
    p = (p * z) + 0.0206505749f;
    p = (p * z) - 0.0537434928f;
    p = (p * z) + 0.133314908f;
    p = (p * z) - 0.333332837f;
    return ((p * z) * x) + x;
}

/* e^x - 1 for x <= 0, without cancellation for small x. */
static inline float crt_expm1f(float x)
{
    if (x < -0.35f) {
        return crt_expf(x) - 1.0f;
    }
    float p = (x * 0.00138888889f) + 0.00833333333f;
    p = (p * x) + 0.0416666667f;
    p = (p * x) + 0.166666667f;
    p = (p * x) + 0.5f;
    return ((p * x) * x) + x;
}

/* 1 minus the error function, for x >= 1: e^-x^2 q(1 / (1 + x / 2)) of degree 6. */
static inline float crt_erfc_above(float x)
{
    float t = 1.0f / (1.0f + (0.5f * x));
    float q = (t * -0.0535406161f) - 0.0573387353f;
    q = (q * t) + 0.403838363f;
    q = (q * t) + 0.101268245f;
    q = (q * t) + 0.33084068f;
    q = (q * t) + 0.273618153f;
    q = (q * t) + 6.06408739e-4f;
    return q * crt_expf(-(x * x));
}

/* The error function within 4 ulp: x * p(x^2) up to 1, of degree 6 like what is beyond, fitted at Chebyshev's points. */
static inline float crt_erff(float x)
{
    float magnitude = (x < 0.0f) ? -x : x;
    float z = x * x;
    if (magnitude < 1.0f) {
        float p = (z * 7.88249711e-5f) - 8.01885499e-4f;
        p = (p * z) + 0.00518931194f;
        p = (p * z) - 0.0268543288f;
        p = (p * z) + 0.112835975f;
        p = (p * z) - 0.376126269f;
        p = (p * z) + 1.12837917f;
        return p * x;
    }
    float y = (magnitude > 4.0f) ? 1.0f : (1.0f - crt_erfc_above(magnitude));
    return (x < 0.0f) ? -y : y;
}

/* x / 2 (1 + erf(x / sqrt(2))), without a difference of nearly equal values for negative x. */
static inline float crt_geluf(float x)
{
    float u = x * 0.707106781f;
    float half = 0.5f * x;
    if (u < -1.0f) {
        return half * crt_erfc_above(-u);
    }
    return half * (1.0f + crt_erff(u));
}

/* The angle whose tangent is x, within 4 ulp: reduced to |u| <= tan(pi / 8), then u p(u^2) of degree 4. */
static inline float crt_atanf(float x)
{
    float magnitude = (x < 0.0f) ? -x : x;
    float u;
    float offset = 0.0f;
    if (magnitude > 2.41421356f) {
        u = -1.0f / magnitude;
        offset = 1.57079633f;
    } else if (magnitude > 0.414213562f) {
        u = (magnitude - 1.0f) / (magnitude + 1.0f);
        offset = 0.785398163f;
    } else {
        u = magnitude;
    }
    float z = u * u;
    float p = (z * 0.0798496291f) - 0.138514784f;
    p = (p * z) + 0.199744048f;
    p = (p * z) - 0.333327969f;
    p = (p * z) + 0.999999982f;
    float y = offset + (p * u);
    return (x < 0.0f) ? -y : y;
}

/* The bits of a float, and the float of such bits. */
static inline uint32_t crt_bits(float x)
{
    uint32_t bits;
    (void)memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float crt_of_bits(uint32_t bits)
{
    float x;
    (void)memcpy(&x, &bits, sizeof x);
    return x;
}

/* The natural logarithm within 2 ulp: x = 2^n * m, sqrt(1/2) <= m < sqrt(2), and atanh of s = (m - 1) / (m + 1). */
static inline float crt_logf(float x)
{
    int32_t n = 0;
    if (!(x > 0.0f)) {
        return crt_of_bits((x == 0.0f) ? 0xff800000u : 0x7fc00000u);
    }
    if (crt_bits(x) >= 0x7f800000u) {
        return x;
    }
    if (crt_bits(x) < 0x00800000u) {
        x *= 33554432.0f;
        n = -25;
    }
    const uint32_t shifted = crt_bits(x) - 0x3f3504f3u;
    n += (int32_t)shifted >> 23;
    const float f = crt_of_bits((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    const float s = f / (2.0f + f);
    const float z = s * s;
    float p = (z * 0.222222222f) + 0.285714286f;
    p = (p * z) + 0.4f;
    p = (p * z) + 0.666666667f;
    const float tail = ((p * z) * s) + ((float)n * -2.12194440e-4f);
    return ((2.0f * s) + tail) + ((float)n * 0.693359375f);
}

#if defined(__ARM_FP) && ((__ARM_FP & 4) != 0)
/* The square root, rounded to the nearest, by the FPU; NaN below 0. */
static inline float crt_sqrtf(float x)
{
    float y;
    __asm__("vsqrt.f32 %0, %1" : "=t"(y) : "t"(x));
    return y;
}
#else
/* The nearest float to the square root of the normal x, among the neighbours of root, which is within 1 ulp. */
static inline float crt_nearest_root(float x, float root)
{
    const int32_t exponent = (int32_t)(crt_bits(x) >> 23) - 127;
    const int32_t half = (exponent >> 1) + 127;
    const uint64_t square = (uint64_t)((crt_bits(x) & 0x7fffffu) | 0x800000u) << (23 + (exponent & 1));
    uint32_t q = (crt_bits(root) & 0x7fffffu) | 0x800000u;
    const int32_t off = (int32_t)(crt_bits(root) >> 23) - half;
    if (off > 0) {
        q <<= 1;
    } else if (off < 0) {
        q >>= 1;
    } else {
        /* The root has the exponent that it should have. */
    }
    const int64_t rest = (int64_t)square - (int64_t)((uint64_t)q * q);
    q += (rest > (int64_t)q) ? 1u : 0u;
    q -= (rest <= -(int64_t)q) ? 1u : 0u;
    return crt_of_bits(((uint32_t)half << 23) + (q - 0x800000u));
}

/* The square root, rounded to the nearest: three Newton steps for 1 / sqrt(x), and the remainder; NaN below 0. */
static inline float crt_sqrtf(float x)
{
    if (!(x > 0.0f) || crt_bits(x) >= 0x7f800000u) {
        return (x < 0.0f) ? crt_of_bits(0x7fc00000u) : x;
    }
    float scale = 1.0f;
    if (crt_bits(x) < 0x00800000u) {
        x *= 16777216.0f;
        scale = 0.000244140625f;
    }
    float y = crt_of_bits(0x5f375a86u - (crt_bits(x) >> 1));
    y *= 1.5f - (((0.5f * x) * y) * y);
    y *= 1.5f - (((0.5f * x) * y) * y);
    y *= 1.5f - (((0.5f * x) * y) * y);
    const float root = x * y;
    return crt_nearest_root(x, root + ((0.5f * y) * (x - (root * root)))) * scale;
}
#endif

/*
 * An angle as a quarter turn, 0 to 3, and the rest within -pi/4 to pi/4, for any finite x. It is x 2/pi modulo 4: the
 * significand of x times those 96 bits of 2/pi that contribute less than 4.
 */
static inline int32_t crt_quarter(float x, float *rest)
{
    static const uint32_t two_by_pi[] = {0,           0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
                                         0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu};
    const uint32_t bits = crt_bits(x) & 0x7fffffffu;
    if (bits < 0x3f490fdbu) {
        *rest = x;
        return 0;
    }
    const uint32_t first = (bits >> 23) - 120u;
    const uint32_t *words = two_by_pi + (first >> 5);
    const uint32_t left = first & 31u;
    uint32_t window[3];
    for (int32_t i = 0; i < 3; i++) {
        window[i] = (uint32_t)(((((uint64_t)words[i] << 32) | words[i + 1]) << left) >> 32);
    }
    const uint32_t fraction = (bits & 0x007fffffu) | 0x00800000u;
    const uint64_t significand = fraction;
    const uint64_t turns =
        ((significand * window[0]) << 32) + (significand * window[1]) + ((significand * window[2]) >> 32);
    const uint32_t quarter = (uint32_t)((turns + (1ull << 61)) >> 62);
    const int64_t part = (int64_t)(turns - ((uint64_t)quarter << 62));
    const float high = (float)(int32_t)(part >> 32) * 4294967296.0f;
    const float angle = (high + (float)(uint32_t)part) * 3.40612158e-19f;
    *rest = (x < 0.0f) ? -angle : angle;
    return (int32_t)(((x < 0.0f) ? (0u - quarter) : quarter) & 3u);
}

/* The sine of x + turns quarter turns, to 1e-7; NaN for infinite x. */
static inline float crt_turnedf(float x, int32_t turns)
{
    float r;
    if ((crt_bits(x) & 0x7fffffffu) >= 0x7f800000u) {
        return x - x;
    }
    const int32_t quarter = crt_quarter(x, &r) + turns;
    const float z = r * r;
    float p;
    if ((quarter & 1) != 0) {
        p = (z * 2.48015873e-5f) - 0.00138888889f;
        p = (p * z) + 0.0416666667f;
        p = ((p * z) * z) - (0.5f * z) + 1.0f;
    } else {
        p = (z * 2.75573192e-6f) - 1.98412698e-4f;
        p = (p * z) + 0.00833333333f;
        p = (p * z) - 0.166666667f;
        p = ((p * z) * r) + r;
    }
    return ((quarter & 2) != 0) ? -p : p;
}

static inline float crt_sinf(float x)
{
    return crt_turnedf(x, 0);
}

static inline float crt_cosf(float x)
{
    return crt_turnedf(x, 1);
}

/* The greatest integer that is not above x, and the least that is not below. */
static inline float crt_floorf(float x)
{
    if (!((x > -8388608.0f) && (x < 8388608.0f))) {
        return x;
    }
    const float cut = (float)(int32_t)x;
    return (cut <= x) ? cut : (cut - 1.0f);
}

static inline float crt_ceilf(float x)
{
    return -crt_floorf(-x);
}

/* The nearest integer, halves to even, as a sum without a fraction is rounded. */
static inline float crt_rintf(float x)
{
    if (!((x > -8388608.0f) && (x < 8388608.0f))) {
        return x;
    }
    const float far = (x < 0.0f) ? -8388608.0f : 8388608.0f;
    return (x + far) - far;
}

/*
 * x without the last bits of its significand, rounded to nearest, halves to even; 1 <= dropped <= 22. Values below
 * the value of these bits have the spacing of those above: 0 if there is no such value.
 */
static inline float crt_narrowf(float x, int32_t dropped, uint32_t first)
{
    const uint32_t sign = crt_bits(x) & 0x80000000u;
    const uint32_t size = crt_bits(x) ^ sign;
    if (size >= 0x7f800000u) {
        return x;
    }
    if (size < first) {
        const float far = crt_of_bits(first + ((uint32_t)dropped << 23));
        return crt_of_bits(crt_bits((crt_of_bits(size) + far) - far) | sign);
    }
    const uint32_t rounded = size + (((1u << (dropped - 1)) - 1u) + ((size >> dropped) & 1u));
    return crt_of_bits(((rounded >> dropped) << dropped) | sign);
}

/* The nearest value of float16, halves to even; infinite beyond. FPUs with FMA convert, too. */
static inline float crt_halff(float x)
{
#if defined(__thumb2__) && defined(__ARM_FEATURE_FMA)
    float y;
    __asm__("vcvtb.f16.f32 %0, %1\n\tvcvtb.f32.f16 %0, %0" : "=t"(y) : "t"(x));
    return y;
#else
    const float y = crt_narrowf(x, 13, 0x38800000u);
    const float most = 65504.0f;
    return (y > most) ? __builtin_inff() : ((y < -most) ? -__builtin_inff() : y);
#endif
}

/* x truncated towards zero; saturating, 0 for NaN. */
static inline int32_t crt_int32f(float x)
{
    if (x >= 2147483648.0f) {
        return INT32_MAX;
    }
    return (x > -2147483648.0f) ? (int32_t)x : ((x < 0.0f) ? INT32_MIN : 0);
}

/* The same, limited to int64_t. */
static inline int64_t crt_int64f(float x)
{
    if (x >= 9223372036854775808.0f) {
        return INT64_MAX;
    }
    return (x > -9223372036854775808.0f) ? (int64_t)x : ((x < 0.0f) ? (int64_t)-9223372036854775808.0f : 0);
}

/* The same, limited to uint32_t; negative values wrap. */
static inline uint32_t crt_uint32f(float x)
{
    if (x >= 4294967296.0f) {
        return UINT32_MAX;
    }
    return (x >= 2147483648.0f) ? (uint32_t)x : (uint32_t)crt_int32f(x);
}

/* The nearest integer, halves away from zero, of a number between -2^31 and 2^31. */
static inline int32_t crt_nearest(float x)
{
    const int32_t cut = (int32_t)x;
    const float rest = x - (float)cut;
    return cut + ((rest >= 0.5f) ? 1 : 0) - ((rest <= -0.5f) ? 1 : 0);
}

/* The remainder of a / b, exactly, with the sign of a. NaN if b is 0. */
static inline float crt_fmodf(float a, float b)
{
    const uint32_t sign = crt_bits(a) & 0x80000000u;
    uint32_t x = crt_bits(a) ^ sign;
    uint32_t y = crt_bits(b) & 0x7fffffffu;
    if (y == 0 || x >= 0x7f800000u || y > 0x7f800000u) {
        return crt_of_bits(0x7fc00000u);
    }
    if (x < y) {
        return a;
    }
    /* Significands and exponents; subnormal values have the exponent 1. */
    int32_t steps = (int32_t)((x >> 23) + ((x >> 23) == 0)) - (int32_t)((y >> 23) + ((y >> 23) == 0));
    const uint32_t exponent = (y >> 23) + ((y >> 23) == 0);
    x = (x & 0x007fffffu) | ((x >= 0x00800000u) ? 0x00800000u : 0u);
    y = (y & 0x007fffffu) | ((y >= 0x00800000u) ? 0x00800000u : 0u);
    for (; steps >= 0; steps--) {
        x %= y;
        if (steps > 0) {
            x <<= 1;
        }
    }
    if (x == 0) {
        return crt_of_bits(sign);
    }
    uint32_t down = exponent;
    while (x < 0x00800000u && down > 1) {
        x <<= 1;
        down--;
    }
    return crt_of_bits(sign | ((x >= 0x00800000u) ? ((x & 0x007fffffu) | (down << 23)) : x));
}

/* The upper 12 bits of a significand: products of two such are exact. */
static inline float crt_head(float x)
{
    return crt_of_bits(crt_bits(x) & 0xfffff000u);
}

/* log2 x of a finite x above 0, as a head and what is left: x = 2^n * m, and atanh of s = (m - 1) / (m + 1). */
static inline float crt_log2_parts(float x, float *left)
{
    int32_t n = 0;
    if (crt_bits(x) < 0x00800000u) {
        x *= 33554432.0f;
        n = -25;
    }
    const uint32_t shifted = crt_bits(x) - 0x3f3504f3u;
    n += (int32_t)shifted >> 23;
    const float f = crt_of_bits((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    const float d = 2.0f + f;
    const float s = f / d;
    const float s_head = crt_head(s);
    const float d_head = crt_head(d);
    const float s_left = ((f - (s_head * d_head)) - (s_head * (f - (d_head - 2.0f)))) / d;
    const float z = s * s;
    float p = (z * 0.111111111f) + 0.142857143f;
    p = (p * z) + 0.2f;
    p = (p * z) + 0.333333333f;
    const float product = s_head * 2.884765625f;
    const float rest = (s_head * 0.000624456778f) + ((s_left + ((p * z) * s)) * 2.88539008f);
    const float head = crt_head((float)n + (product + rest));
    *left = (((float)n - head) + product) + rest;
    return head;
}

/* x^y within 2 ulp, like C's pow: 2^(y log2 x), with more bits than a float has until the exponent is split off. */
static inline float crt_powf(float x, float y)
{
    const bool odd = ((crt_floorf(y * 0.5f) * 2.0f) != y) && (crt_floorf(y) == y);
    const float sign = (((crt_bits(x) >> 31) != 0u) && odd) ? -1.0f : 1.0f;
    const float a = (x < 0.0f) ? -x : x;
    if ((x == 1.0f) || (y == 0.0f)) {
        return 1.0f;
    }
    if ((x != x) || (y != y) || ((x < 0.0f) && (a <= 3.40282347e38f) && (crt_floorf(y) != y))) {
        return crt_of_bits(0x7fc00000u);
    }
    if (a == 1.0f) {
        return sign;
    }
    if ((a == 0.0f) || (a > 3.40282347e38f) || (y > 1e12f) || (y < -1e12f)) {
        return sign * (((y > 0.0f) == (a > 1.0f)) ? crt_of_bits(0x7f800000u) : 0.0f);
    }
    float left;
    const float log = crt_log2_parts(a, &left);
    const float y_head = crt_head(y);
    const float product = y_head * log;
    const float rest = ((y - y_head) * log) + (y * left);
    const float power = product + rest;
    if (!((power < 128.0f) && (power > -151.0f))) {
        return sign * ((power > 0.0f) ? crt_of_bits(0x7f800000u) : 0.0f);
    }
    const int32_t n = (int32_t)(power + ((power < 0.0f) ? -0.5f : 0.5f));
    const int32_t half = n / 2;
    const float near = crt_expf(((product - (float)n) + rest) * 0.693147181f);
    return sign * near * crt_pow2f(half) * crt_pow2f(n - half);
}

/* The remainder with the sign of b. */
static inline float crt_floor_modf(float a, float b)
{
    const float rest = crt_fmodf(a, b);
    return ((rest == 0.0f) || ((b < 0.0f) == (rest < 0.0f))) ? rest : (rest + b);
}

/* 1 / (1 + e^-x). */
static inline float crt_logisticf(float x)
{
    return 1.0f / (1.0f + crt_expf(-x));
}

/*
 * Softmax in fixed point, as gemmlowp's: Qm has m integer bits and 31 - m fractional bits.
 */

/* e^a of Q5, a <= 0, as Q0: e^-2^k for every bit of the magnitude, and the Taylor series for what is below 1/4. */
static inline int32_t crt_exp_q5(int32_t a)
{
    static const int32_t power[] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    if (a == 0) {
        return INT32_MAX;
    }
    const int32_t quarter = 1 << 24;
    const int32_t head = (a & (quarter - 1)) - quarter;
    const int32_t x = crt_shift_left(head, 5) + (1 << 28);
    const int32_t x2 = crt_high_mul(x, x);
    const int32_t x3 = crt_high_mul(x2, x);
    const int32_t x4 = crt_high_mul(x2, x2);
    const int32_t tail = crt_high_mul(crt_round_shift(x4, 2) + x3, 715827883) + x2;
    int32_t y = 1895147668 + crt_high_mul(x + crt_round_shift(tail, 1), 1895147668);
    const int32_t rest = head - a;
    for (int32_t i = 0; i < 7; i++) {
        if ((rest & crt_shift_left(quarter, i)) != 0) {
            y = crt_high_mul(y, power[i]);
        }
    }
    return y;
}

/* 1 / (1 + a) of Q0, a >= 0, as Q0, by three Newton steps. */
static inline int32_t crt_reciprocal_q0(int32_t a)
{
    const int32_t half = (int32_t)(((uint32_t)a + 0x80000000u) >> 1);
    int32_t x = 1515870810 + crt_high_mul(half, -1010580540);
    for (int32_t i = 0; i < 3; i++) {
        x += crt_saturating_shift(crt_high_mul(x, (1 << 29) - crt_high_mul(half, x)), 2);
    }
    return crt_saturating_shift(x, 1);
}

/*
 * The natural logarithm of x with 12 integer bits, 1 or more, with 5 integer bits.
 *
 * Of two powers of two, one for x and one for x * sqrt(1/2), one leaves a rest nearer to 1; the logarithm of the
 * rest is a quotient of polynomials.
 */
static inline int32_t crt_log_q12(int32_t x)
{
    const int32_t zeros = __builtin_clz((uint32_t)x);
    const int32_t below = crt_high_mul(x, 1518500250);
    const int32_t room = __builtin_clz((uint32_t)below) - 1;
    const int32_t first = crt_saturating_shift(crt_high_mul(crt_shift_left(x, zeros - 1), 1518500250), 1);
    const int32_t rest = crt_min(first, crt_saturating_shift(x, room));
    const int32_t power = crt_max(((12 - zeros) * (1 << 25)) + (1 << 23), ((12 - room) * (1 << 25)) - (1 << 23));
    const int32_t half = (int32_t)(((uint32_t)rest + 1805811301u + 1u) >> 1);
    const int32_t q = (rest - 1805811301) * 2;
    const int32_t square = crt_high_mul(q, q);
    const int32_t above = crt_high_mul(q, rest) + crt_high_mul(crt_high_mul(q, square), 117049297);
    const int32_t under =
        crt_high_mul(half, 1057819769 + q + crt_high_mul(square, 127690142)) + crt_high_mul(q, 638450708);
    const int32_t share = crt_high_mul(crt_round_shift(above, 6), crt_reciprocal_q0(under));
    return crt_saturating_shift(crt_high_mul(power, 1488522236) + share, 1);
}

/* The bits that are set in each byte of a word, as a byte. */
static inline uint32_t crt_ones_of_bytes(uint32_t word)
{
    const uint32_t pairs = word - ((word >> 1) & 0x55555555u);
    const uint32_t fours = (pairs & 0x33333333u) + ((pairs >> 2) & 0x33333333u);
    return (fours + (fours >> 4)) & 0x0f0f0f0fu;
}

/* sum + the four bytes of a word. */
static inline int32_t crt_add_bytes(uint32_t bytes, int32_t sum)
{
#ifdef __ARM_FEATURE_SIMD32
    return (int32_t)__usada8(bytes, 0u, (uint32_t)sum);
#else
    const uint32_t pairs = (bytes & 0x00ff00ffu) + ((bytes >> 8) & 0x00ff00ffu);
    return sum + (int32_t)((pairs + (pairs >> 16)) & 0xffffu);
#endif
}

/* The number of bits that differ between two arrays of words; without x, the number of bits that are set in y. */
static inline int32_t crt_unlike_bits(const int32_t *x, const int32_t *y, int32_t words)
{
    int32_t sum = 0;
    for (int32_t i = 0; i < words; i++) {
        const uint32_t other = (x != NULL) ? (uint32_t)x[i] : 0u;
        sum = crt_add_bytes(crt_ones_of_bytes(other ^ (uint32_t)y[i]), sum);
    }
    return sum;
}

/* Interpolate between two of the 513 entries of a table, which are 128 apart; x is int16. */
static inline int16_t crt_lookup16(const int16_t *table, int32_t x)
{
    const int16_t *place = table + 256 + (x >> 7);
    return (int16_t)(place[0] + ((((place[1] - place[0]) * (x & 127)) + 64) >> 7));
}

/* 1 / sum as a fraction of 15 bits, by a table, and the right shift of its products. */
static inline int32_t crt_share16(int32_t sum, const int16_t *shares, int32_t *shift)
{
    const int32_t zeros = __builtin_clz((uint32_t)sum);
    const int32_t fraction = (int32_t)((((uint32_t)sum << (zeros - 1)) + (1u << 13)) >> 14);
    *shift = 31 - zeros;
    return crt_lookup16(shares, crt_min(fraction - 98304, 32767));
}

/*
 * 1 / sqrt(x) as a multiplier, times 2^(shift - 31), as in TFLite's fixed point; an x of 0 counts as 1. Five Newton
 * steps from 1 on, with 3 integer bits.
 */
static inline int32_t crt_inverse_sqrt(int32_t x, int32_t *shift)
{
    *shift = 0;
    if (x <= 1) {
        return INT32_MAX;
    }
    int32_t down = 11;
    while (x >= (1 << 29)) {
        x /= 4;
        down++;
    }
    const int32_t pairs = ((__builtin_clz((uint32_t)x) - 1) / 2) - 1;
    const int32_t scaled = crt_shift_left(x, 2 * pairs) >> 1;
    const int32_t half = crt_round_shift(scaled, 1);
    int32_t root = 1 << 28;
    for (int32_t i = 0; i < 5; i++) {
        const int32_t cube = crt_saturating_shift(crt_high_mul(crt_high_mul(root, root), root), 6);
        root = crt_saturating_shift(crt_high_mul(3 << 27, root) - crt_high_mul(half, cube), 3);
    }
    root = crt_high_mul(root, 1518500250);
    down -= pairs;
    *shift = (down > 0) ? -down : 0;
    return (down < 0) ? crt_shift_left(root, -down) : root;
}

/*
 * a / b times multiplier * 2^(shift - 31), as TFLite divides; a b of 0 counts as 1.
 *
 * A right shift by more than 31 bits is what TFLite Micro's build for x86 makes of it.
 */
static inline int32_t crt_quotient(int32_t a, int32_t b, int32_t multiplier, int32_t shift)
{
    if (b <= 0) {
        a = (b < 0) ? -a : a;
        b = (b < 0) ? -b : 1;
    }
    const int32_t zeros = __builtin_clz((uint32_t)b);
    const int32_t inverse = crt_reciprocal_q0((int32_t)(((uint32_t)b << zeros) - 0x80000000u));
    const uint32_t digits = (uint32_t)((a < 0) ? ~a : a);
    const int32_t headroom = (digits == 0) ? 31 : (__builtin_clz(digits) - 1);
    const int32_t high = crt_high_mul(crt_high_mul(crt_shift_left(a, headroom), inverse), multiplier);
    const int32_t right = headroom + 31 - zeros - shift;
    if (right > 31) {
        return (high >> (right & 31)) + ((high > ((high < 0) ? 0 : -1)) ? 1 : 0);
    }
    return (right == 0) ? high : crt_round_shift(high, right);
}

/*
 * The logistic function of (x * multiplier + half) >> shift, which counts 3 * 4096 for 1.0, in fractions of 15
 * bits; table[i] is 65536 times that of i / 24.
 */
static inline int16_t crt_logistic16(int32_t x, int32_t multiplier, int32_t shift, const uint16_t *table)
{
    x = ((x * multiplier) + ((1 << shift) >> 1)) >> shift;
    const uint32_t magnitude = (uint32_t)((x < 0) ? -x : x);
    const uint32_t place = magnitude >> 9;
    uint32_t y = 0x7fffu << 10;
    if (((32768 * multiplier) >> shift) < (255 << 9) || place < 255) { /* compilers know the first for gates */
        const uint32_t step = (uint32_t)table[place + 1] - table[place];
        y = ((uint32_t)table[place] << 9) + ((magnitude & 511u) * step);
    }
    if (x < 0) {
        y = (1u << 25) - y - 1u;
    }
    return (int16_t)((y + 512u) >> 10);
}

/* The hyperbolic tangent likewise. */
static inline int16_t crt_tanh16(int32_t x, int32_t multiplier, int32_t shift, const uint16_t *table)
{
    x = ((x * multiplier) + ((1 << shift) >> 1)) >> shift;
    const uint32_t magnitude = (uint32_t)((x < 0) ? -x : x);
    const uint32_t place = magnitude >> 8;
    int32_t y = 0xffff << 8;
    if (place < 255) {
        const uint32_t step = (uint32_t)table[place + 1] - table[place];
        y = (int32_t)(((uint32_t)table[place] << 8) + ((magnitude & 255u) * step));
    }
    y -= 1 << 23;
    if (x < 0) {
        y = -y - 1;
    }
    return (int16_t)((y + 128) >> 8);
}

/* The nearest integer, halves away from zero; |x| < 2048. Bits below 2^-20 do not matter. */
static inline int32_t crt_roundf(float x)
{
    return crt_round_shift((int32_t)(x * 1048576.0f), 20);
}

#endif
