/* SPDX-License-Identifier: Apache-2.0 */
#include "crt_text.h"

struct crt_line {
    char *at;
    char *last;
};

static void crt_line_put(struct crt_line *line, char c)
{
    if (line->at < line->last) {
        *line->at++ = c;
    }
}

static void crt_line_text(struct crt_line *line, const char *text)
{
    while (*text != '\0') {
        crt_line_put(line, *text++);
    }
}

static void crt_line_hex(struct crt_line *line, unsigned value)
{
    for (int shift = 28; shift >= 0; shift -= 4) {
        crt_line_put(line, "0123456789abcdef"[value >> shift & 15u]);
    }
}

static void crt_line_decimal(struct crt_line *line, unsigned value)
{
    char digits[10];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + (value % 10u));
        value /= 10u;
    } while (value != 0);
    while (count > 0) {
        crt_line_put(line, digits[--count]);
    }
}

static void crt_line_signed(struct crt_line *line, int value)
{
    if (value < 0) {
        crt_line_put(line, '-');
    }
    crt_line_decimal(line, (value < 0) ? (0u - (unsigned)value) : (unsigned)value);
}

size_t crt_text(char *out, size_t size, const char *format, va_list args)
{
    struct crt_line line = {out, out + size - 1};
    for (; *format != '\0'; format++) {
        if (*format != '%') {
            crt_line_put(&line, *format);
            continue;
        }
        format++;
        if (*format == 's') {
            crt_line_text(&line, va_arg(args, const char *));
        } else if (*format == 'd') {
            crt_line_signed(&line, va_arg(args, int));
        } else if (*format == 'u') {
            crt_line_decimal(&line, va_arg(args, unsigned));
        } else {
            crt_line_hex(&line, va_arg(args, unsigned));
            format += 2; /* 08x */
        }
    }
    *line.at = '\0';
    return (size_t)(line.at - out);
}
