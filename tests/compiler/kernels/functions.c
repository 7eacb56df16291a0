/* Prints what functions of crt/kernel.h give, for a test to compare: one line per function, hexadecimal words. */
#include <stdio.h>

#include <crt/kernel.h>

#include "arguments.h"

static void put_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    printf(" %08x", (unsigned)bits);
}

int main(void)
{
    for (int i = 0; i < NUM_FLOATS; i++) {
        put_float(crt_expf(floats[i]));
        put_float(crt_tanhf(floats[i]));
        put_float(crt_logisticf(floats[i]));
        printf(" %08x", (unsigned)crt_roundf(floats[i]));
        put_float(crt_logf(floats[i]));
        put_float(crt_sqrtf(floats[i]));
        put_float(crt_sinf(floats[i]));
        put_float(crt_cosf(floats[i]));
        put_float(crt_expm1f(floats[i]));
        put_float(crt_floorf(floats[i]));
        put_float(crt_ceilf(floats[i]));
        put_float(crt_rintf(floats[i]));
        put_float(crt_fmodf(floats[i], floats[(i + 1) % NUM_FLOATS]));
        printf(" %08x", (unsigned)crt_nearest(floats[i]));
        put_float(crt_erff(floats[i]));
        put_float(crt_atanf(floats[i]));
        put_float(crt_powf(floats[i], floats[(i + 1) % NUM_FLOATS]));
        put_float(crt_halff(floats[i]));
        put_float(crt_narrowf(floats[i], 16, 0));
    }
    printf("\n");
    for (int i = 0; i < NUM_SCALES; i++) {
        const int32_t x = scales[i][0], multiplier = scales[i][1], shift = scales[i][2];
        const bool served = shift < 0 && x < 1 << 30 && x > -(1 << 30);
        printf(" %08x", (unsigned)crt_scale(x, multiplier, shift));
        printf(" %08x", (unsigned)(served ? crt_scale_down(x, multiplier, -1 - shift) : 0));
    }
    printf("\n");
    return 0;
}
