/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stdio.h without a C library: there is nothing to read or write. C that TVM generated includes it, and calls nothing.
 */
#ifndef CRT_FREESTANDING_STDIO_H
#define CRT_FREESTANDING_STDIO_H

#include <stddef.h>

#endif
