/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For toolchains without a C library: add this folder to the include path, and src/crt_mem.c defines these.
 */
#ifndef CRT_FREESTANDING_STRING_H
#define CRT_FREESTANDING_STRING_H

#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *to, int value, size_t size);
int memcmp(const void *a, const void *b, size_t size);
size_t strlen(const char *text);
int strcmp(const char *a, const char *b);

#endif
