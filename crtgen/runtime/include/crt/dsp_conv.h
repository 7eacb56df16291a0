/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any convolution as a matrix product with the DSP extension: what layers share where size matters.
 *
 * Three pixels at a time their windows are packed into scratch, then a function in assembly multiplies them with all
 * weights. crtgen/compiler/kernels/dsp/shared.py decides the numbers of a layer.
 */
#ifndef CRT_DSP_CONV_H
#define CRT_DSP_CONV_H

#include <stdint.h>
#include <string.h>

/*
 * Constants of a layer. Those from window_rows on describe rows of the image with padding around them, in scratch;
 * without padding window_rows is 0. If inputs do not fill words, pairs of their offsets follow, with -1 for none.
 * Without either, the table ends at window_rows.
 */
struct crt_dsp_conv_table {
    int32_t column_bytes;
    int32_t pixel_bytes; /* of an output */
    int32_t shift_a;
    int32_t shift_b;
    int32_t images;
    int32_t image_bytes;
    int32_t pixels;
    int32_t width;
    int32_t pixel_step;
    int32_t row_advance;
    int32_t even_words;
    int32_t odd_words;
    int32_t rows;
    int32_t taps;
    int32_t words;
    int32_t tap_advance;
    int32_t window_advance;
    int32_t rests;
    int32_t window_rows;
    int32_t window_pitch;
    int32_t window_left;
    int32_t window_stride;
    int32_t window_kept;
    int32_t window_first;
    int32_t zero_point;
    int32_t height;
    int32_t row_bytes;
    int32_t input_pitch;
    int32_t rest[];
};

/* What the group takes from memory. */
struct crt_dsp_conv_job {
    uint32_t column_bytes, pixel_bytes, shift_a, shift_b;
    const uint32_t *end;
};

/*
 * Functions in assembly: multiply three packed pixels with the pairs of channels up to the job's end, copy the whole
 * words of three windows, and copy bytes. Inputs and outputs have `size` bytes.
 */
struct crt_dsp_conv_parts {
    void (*group)(const uint32_t *weights, int8_t *y, const uint32_t *columns, const void *job);
    void (*windows)(uint32_t *to, const int8_t *const *p, const int32_t *table);
    void (*copy)(void *to, const void *from, uint32_t bytes);
    int32_t size;
};

/* Bring the window's rows from `kept` on into scratch; row 0 is row `first` of the image. */
static inline void crt_dsp_conv_load(const struct crt_dsp_conv_parts *parts, const struct crt_dsp_conv_table *t,
    int8_t *rows, const int8_t *x, int32_t first, int32_t kept)
{
    for (int32_t row = kept; row < t->window_rows; row++) {
        int8_t *to = rows + (row * t->window_pitch) + t->window_left;
        const int32_t from = first + row;
        if ((from < 0) || (from >= t->height)) {
            (void)memset(to, t->zero_point, (uint32_t)t->row_bytes);
        } else {
            parts->copy(to, x + (from * t->input_pitch), (uint32_t)t->row_bytes);
        }
    }
}

/* Return an input as the low half of a word. */
static inline uint32_t crt_dsp_conv_input(const int8_t *p, int32_t size)
{
    return (uint32_t)(int32_t)((size == 1) ? *p : *(const int16_t *)(const void *)p);
}

/* Pack the windows that begin at p[0], p[1] and p[2]. */
static inline void crt_dsp_conv_pack(const struct crt_dsp_conv_parts *parts, const struct crt_dsp_conv_table *t,
    const int8_t *const p[3], uint32_t *to)
{
    for (int32_t i = 0; i < (2 * t->rests); i += 2) {
        const int32_t one = t->rest[i];
        const int32_t two = t->rest[i + 1];
        for (int32_t pixel = 0; pixel < 3; pixel++) {
            const uint32_t high = (two < 0) ? 0u : crt_dsp_conv_input(p[pixel] + two, parts->size);
            *to = (crt_dsp_conv_input(p[pixel] + one, parts->size) & 0xFFFFu) | (high << 16);
            to++;
        }
    }
    if (t->words != 0) {
        parts->windows(to, p, (const int32_t *)(const void *)t);
    }
}

/*
 * Compute the outputs of three packed pixels; if the number of channels is odd, the last pair overlaps with the
 * previous one.
 */
static inline void crt_dsp_conv_group(const struct crt_dsp_conv_parts *parts, const struct crt_dsp_conv_table *t,
    const uint32_t *weights, const uint32_t *columns, int8_t *y)
{
    struct crt_dsp_conv_job job = {(uint32_t)t->column_bytes, (uint32_t)t->pixel_bytes, (uint32_t)t->shift_a,
        (uint32_t)t->shift_b, weights + t->even_words};
    parts->group(weights, y, columns, &job);
    if (t->odd_words != 0) {
        job.end += t->odd_words;
        parts->group(weights + t->even_words, y + (t->pixel_bytes - (2 * parts->size)), columns, &job);
    }
}

/* Compute one image. Returns the end of its outputs. */
static inline int8_t *crt_dsp_conv_image(const struct crt_dsp_conv_parts *parts, const struct crt_dsp_conv_table *t,
    const int8_t *x, int8_t *y, const uint32_t *weights, uint8_t *scratch)
{
    uint32_t *columns = (uint32_t *)(void *)scratch;
    int8_t *rows = (int8_t *)scratch + t->column_bytes;
    const int8_t *next = x;
    int8_t *spare = rows; /* outputs of an incomplete group */
    int32_t first = 0;
    int32_t left = t->width;
    int32_t passed = 0;
    if (t->window_rows != 0) {
        next = rows;
        spare += t->window_rows * t->window_pitch;
        first = t->window_first;
        /* By words: memset of a small libc goes by bytes. */
        const uint32_t padding = 0x01010101u * (uint8_t)t->zero_point;
        uint32_t *word = (uint32_t *)(void *)rows;
        for (int32_t bytes = t->window_rows * t->window_pitch; bytes != 0; bytes -= 4) {
            *word = padding;
            word++;
        }
        crt_dsp_conv_load(parts, t, rows, x, first, 0);
    }
    for (int32_t pixels = t->pixels; pixels > 0; pixels -= 3) {
        for (; (t->window_rows != 0) && (passed != 0); passed--) {
            first += t->window_stride;
            const int32_t passing = t->window_stride * t->window_pitch;
            parts->copy(rows, rows + passing, (uint32_t)(t->window_kept * t->window_pitch));
            crt_dsp_conv_load(parts, t, rows, x, first, t->window_kept);
            next -= passing;
        }
        const int8_t *p[3];
        for (int32_t pixel = 0; pixel < 3; pixel++) {
            p[pixel] = next;
            if (((pixel + 1) >= pixels) && (pixel < 2)) {
                continue; /* the last pixel again */
            }
            next += t->pixel_step;
            left--;
            if (left == 0) {
                left = t->width;
                next += t->row_advance;
                passed++;
            }
        }
        crt_dsp_conv_pack(parts, t, p, columns);
        crt_dsp_conv_group(parts, t, weights, columns, (pixels < 3) ? spare : y);
        if (pixels < 3) {
            parts->copy(y, spare, (uint32_t)(pixels * t->pixel_bytes));
        }
        y += ((pixels < 3) ? pixels : 3) * t->pixel_bytes;
    }
    return y;
}

/* Compute all images; scratch holds the columns, the window's rows and the outputs of three pixels. */
static inline void crt_dsp_conv(const struct crt_dsp_conv_parts *parts, const int8_t *x, int8_t *y,
    const uint32_t *weights, const int32_t *table, uint8_t *scratch)
{
    const struct crt_dsp_conv_table *t = (const struct crt_dsp_conv_table *)(const void *)table;
    for (int32_t image = 0; image < t->images; image++) {
        y = crt_dsp_conv_image(parts, t, x, y, weights, scratch);
        x += t->image_bytes;
    }
}

#endif
