/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory and string functions that compilers and the runtime call, for toolchains without a C library. They are
 * compiled with the header of include/freestanding; with another string.h this file is empty, unless
 * CRT_SMALL_STRING_H asks for functions that are smaller than a C library's.
 */
#include <string.h>

#if defined(CRT_FREESTANDING_STRING_H) || defined(CRT_SMALL_STRING_H)

#include <stdint.h>

/* Keeps the compiler from replacing a loop by a call of its own function. */
#define CRT_KEEP_LOOP() __asm__ volatile("" ::: "memory")

/* memcpy goes upwards, by bytes or, if both sides are aligned, by words. */
static void crt_copy_up(uint8_t *to, const uint8_t *from, size_t size)
{
    if ((((uintptr_t)to | (uintptr_t)from) & 3u) == 0) {
        for (; size >= 4; size -= 4, to += 4, from += 4) {
            *(uint32_t *)(void *)to = *(const uint32_t *)(const void *)from;
            CRT_KEEP_LOOP();
        }
    }
    for (; size > 0; size--) {
        *to++ = *from++;
        CRT_KEEP_LOOP();
    }
}

void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
    crt_copy_up(to, from, size);
    return to;
}

void *memmove(void *to, const void *from, size_t size)
{
    uint8_t *out = to;
    const uint8_t *in = from;
    if ((uintptr_t)out - (uintptr_t)in >= size) {
        crt_copy_up(out, in, size);
        return to;
    }
    while (size > 0) {
        size--;
        out[size] = in[size];
        CRT_KEEP_LOOP();
    }
    return to;
}

void *memset(void *to, int value, size_t size)
{
    uint8_t *out = to;
    for (size_t i = 0; i < size; i++) {
        out[i] = (uint8_t)value;
        CRT_KEEP_LOOP();
    }
    return to;
}

int memcmp(const void *a, const void *b, size_t size)
{
    const uint8_t *left = a;
    const uint8_t *right = b;
    for (size_t i = 0; i < size; i++) {
        if (left[i] != right[i]) {
            return left[i] - right[i];
        }
    }
    return 0;
}

size_t strlen(const char *text)
{
    size_t size = 0;
    while (text[size] != '\0') {
        size++;
        CRT_KEEP_LOOP();
    }
    return size;
}

int strcmp(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return (uint8_t)*a - (uint8_t)*b;
}

#endif

/* A translation unit has to declare something. */
typedef int crt_mem_unit;
