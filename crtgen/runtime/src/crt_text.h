/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text of bounded length, for messages.
 */
#ifndef CRT_TEXT_H
#define CRT_TEXT_H

#include <stdarg.h>
#include <stddef.h>

/*
 * Format into `size` bytes, NUL included, and truncate what does not fit. Knows %s, %d, %u and %08x. Returns the
 * length.
 */
size_t crt_text(char *out, size_t size, const char *format, va_list args);

#endif
