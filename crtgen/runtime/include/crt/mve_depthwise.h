/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any depthwise convolution of at most 4x4 with Helium, for layers that share code to save flash. Four rows of the
 * image at a time are interleaved in scratch; a function in assembly computes a strip of outputs from them.
 *
 * crtgen/compiler/kernels/mve/shared_depthwise.py computes a layer's constants.
 */
#ifndef CRT_MVE_DEPTHWISE_H
#define CRT_MVE_DEPTHWISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Constants of a layer. `column` is the distance in bytes of two columns of a window, `patch` that of two patches.
 * `taps` are the positions of a patch's 16 weights among the `weights` bytes of a channel, -1 for none; `places` are
 * the positions of eight outputs, `advance` the distance to the next eight. A strip of `lines` rows of outputs has
 * `outputs` of each channel and takes `rows` rows. In scratch a row has `plane` bytes, and the image begins at
 * `left`; `seen` bytes of a row of it are read, 16 every `step` bytes. The layer has `parts` times `channels`
 * channels.
 */
struct crt_mve_depthwise_table {
    int32_t channels;
    int32_t zero_point;
    int32_t column;
    int32_t patch;
    int32_t weights;
    int32_t outputs;
    int32_t low;
    int32_t high;
    int32_t taps[4];
    int32_t places[4];
    int32_t advance;
    int32_t fill;
    int32_t parts;
    int32_t out_height;
    int32_t lines;
    int32_t rows;
    int32_t stride;
    int32_t dilation;
    int32_t top;
    int32_t height;
    int32_t row_bytes;
    int32_t line_bytes;
    int32_t plane;
    int32_t left;
    int32_t seen;
    int32_t step;
};

/*
 * The channels of a strip: rows in scratch, outputs, constants. Row 0 of a window is at bit `turned` of a word in
 * scratch.
 */
struct crt_mve_depthwise_strip {
    int8_t *patches;
    int8_t *y;
    const uint8_t *weights;
    const struct crt_mve_depthwise_table *table;
    int32_t turned;
};

/*
 * Functions in assembly: compute a strip, fill bytes, and insert a row of the image into one byte of each word.
 * Outside of the image padding is read, with a `step` of 0.
 */
struct crt_mve_depthwise_parts {
    void (*strip)(const void *strip);
    void (*fill)(void *to, int32_t value, uint32_t bytes);
    void (*insert)(int8_t *to, const int8_t *from, int32_t step, int32_t count);
};

/*
 * A walk over channels of an image: outputs from row `line` on are still to compute, rows before `ready` have been
 * read.
 */
struct crt_mve_depthwise_walk {
    struct crt_mve_depthwise_strip strip;
    const int8_t *x;
    int8_t *y;
    int32_t line, ready;
};

/* Bring the rows of the next strip into scratch, each to its number modulo 4; NULL if there is none. */
static inline const struct crt_mve_depthwise_strip *crt_mve_depthwise_next(
    const struct crt_mve_depthwise_parts *parts, struct crt_mve_depthwise_walk *s)
{
    const struct crt_mve_depthwise_table *t = s->strip.table;
    if (s->line >= t->out_height) {
        return NULL;
    }
    const int32_t line = (s->line < (t->out_height - t->lines)) ? s->line : (t->out_height - t->lines);
    const int32_t first = (line * t->stride) - t->top;
    for (int32_t i = (s->ready > first) ? (s->ready - first) : 0; i < t->rows; i++) {
        const int32_t row = first + (i * t->dilation);
        const bool inside = (row >= 0) && (row < t->height);
        parts->insert(s->strip.patches + t->left + ((first + i) & 3),
            inside ? (s->x + (row * t->row_bytes)) : (s->strip.patches + t->plane), inside ? t->step : 0, t->seen);
    }
    s->ready = first + ((t->dilation == 1) ? t->rows : 0); /* rows that are not consecutive are read again */
    s->strip.turned = (first & 3) * 8;
    s->strip.y = s->y + (line * t->line_bytes);
    s->line += t->lines;
    return &s->strip;
}

/* Compute all channels. The padding in scratch is filled once: the columns at the sides, and 16 bytes for rows. */
static inline void crt_mve_depthwise(const struct crt_mve_depthwise_parts *parts, const int8_t *x, int8_t *y,
    const uint32_t *weights, const int32_t *table, uint8_t *scratch)
{
    const struct crt_mve_depthwise_table *t = (const struct crt_mve_depthwise_table *)(const void *)table;
    struct crt_mve_depthwise_walk walk;
    walk.strip.patches = (int8_t *)scratch;
    walk.strip.weights = (const uint8_t *)weights;
    walk.strip.table = t;
    walk.x = x;
    walk.y = y;
    parts->fill(walk.strip.patches, t->fill, (uint32_t)(t->plane + 16));
    for (int32_t part = 0; part < t->parts; part++) {
        walk.line = 0;
        walk.ready = -t->top;
        const struct crt_mve_depthwise_strip *strip = crt_mve_depthwise_next(parts, &walk);
        for (; strip != NULL; strip = crt_mve_depthwise_next(parts, &walk)) {
            parts->strip(strip);
        }
        walk.x += t->channels;
        walk.y += t->channels;
        walk.strip.weights += t->channels * (8 + t->weights);
    }
}

#endif
