/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What generated kernels share: integer scaling, clamping, copying, and the float functions of our own.
 *
 * Right shifts of negative numbers are arithmetic, as every supported compiler has them.
 */
#ifndef CRT_KERNEL_H
#define CRT_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* x within low .. high, which are constant values of int8_t. */
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

static inline int32_t crt_min(int32_t a, int32_t b)
{
    return (a < b) ? a : b;
}

static inline int32_t crt_max(int32_t a, int32_t b)
{
    return (a > b) ? a : b;
}

static inline float crt_minf(float a, float b)
{
    return (a < b) ? a : b;
}

static inline float crt_maxf(float a, float b)
{
    return (a > b) ? a : b;
}

/* A word from anywhere to anywhere; where words have to be aligned, both places are. */
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

/*
 * Copies n bytes, by words where it may: shorter and faster than a small libc's. The places do not overlap, or
 * the first one begins at least a word below the other.
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
#ifndef __OPTIMIZE_SIZE__
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

/* The nearest integer, halves away from zero; |x| < 2048. What is cut off below 2^-20 decides nothing. */
static inline int32_t crt_roundf(float x)
{
    return crt_round_shift((int32_t)(x * 1048576.0f), 20);
}

#endif
