/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stdlib.h without a C library: the two functions that C that TVM generated may call. The image defines them, under
 * the names that macros in such C give them.
 */
#ifndef CRT_FREESTANDING_STDLIB_H
#define CRT_FREESTANDING_STDLIB_H

#include <stddef.h>

void *malloc(size_t size);
void free(void *memory);

#endif
