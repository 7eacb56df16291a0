/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any convolution with Helium, for layers that share code to save flash. The windows of two pixels at a time are
 * gathered into scratch, unless each is contiguous; then a function in assembly multiplies them with all weights.
 *
 * crtgen/compiler/kernels/mve/shared.py computes a layer's constants.
 */
#ifndef CRT_MVE_CONV_H
#define CRT_MVE_CONV_H

#include <stddef.h>
#include <stdint.h>

/*
 * Constants of a layer. The first vector of a window has `first` inputs, and `rounds` vectors follow. A window is
 * `taps` rows with `runs` stretches of `run_bytes`, `window_bytes` in all. They are in the image, or in a ring if
 * ring_bytes is not 0.
 */
struct crt_mve_conv_table {
    int32_t outputs;
    int32_t zero_point;
    int32_t low;
    int32_t high;
    int32_t rounds;
    int32_t first;
    int32_t gathered;
    int32_t images;
    int32_t image_bytes;
    int32_t out_height;
    int32_t out_width;
    int32_t step;
    int32_t stride;
    int32_t dilation;
    int32_t taps;
    int32_t runs;
    int32_t run_bytes;
    int32_t run_step;
    int32_t window_bytes;
    int32_t rows;
    int32_t pitch;
    int32_t ring_bytes;
    int32_t ring_left;
    int32_t fill;
    int32_t copied;
    int32_t span;
    int32_t top;
    int32_t height;
    int32_t row_bytes;
};

/*
 * Two pixels of a row: their windows, the outputs of the first, and the distance to the outputs of the second. A
 * pixel without a neighbour is both.
 */
struct crt_mve_conv_pair {
    const int8_t *x[2];
    int8_t *y;
    int32_t apart;
};

/*
 * Functions in assembly: compute a pair of pixels, copy bytes, and copy a row of two windows, which returns their
 * end.
 */
struct crt_mve_conv_parts {
    void (*pair)(const uint32_t *weights, const void *pair, const int32_t *table);
    void (*copy)(void *to, const void *from, uint32_t bytes);
    void (*fill)(void *to, int32_t value, uint32_t bytes);
    int8_t *(*runs)(int8_t *to, const int8_t *from, int32_t apart, const int32_t *table);
};

/* A walk over the pairs of an image; rows before `loaded` are in the ring. */
struct crt_mve_conv_walk {
    struct crt_mve_conv_pair pair;
    const struct crt_mve_conv_table *table;
    const int8_t *image;
    int8_t *y, *columns, *ring;
    int32_t line, column, loaded;
};

/* Find the windows of two pixels of the current row, whose distance in bytes is given. */
static inline void crt_mve_conv_windows(const struct crt_mve_conv_parts *parts, struct crt_mve_conv_walk *p,
    int32_t apart)
{
    const struct crt_mve_conv_table *t = p->table;
    const int8_t *rows = ((t->ring_bytes != 0) ? p->ring : p->image) + (p->column * t->step);
    int32_t row = (p->line * t->stride) % t->rows;
    if (t->gathered == 0) {
        p->pair.x[0] = rows + (row * t->pitch);
        p->pair.x[1] = p->pair.x[0] + apart;
        return;
    }
    int8_t *to = p->columns;
    p->pair.x[0] = to;
    p->pair.x[1] = to + t->window_bytes;
    for (int32_t tap = 0; tap < t->taps; tap++) {
        const int8_t *from = rows + (row * t->pitch);
        to = parts->runs(to, from, apart, (const int32_t *)(const void *)t);
        row += t->dilation;
        if (row >= t->rows) {
            row -= t->rows;
        }
    }
}

/* Bring the rows into the ring that the current row of outputs needs. */
static inline void crt_mve_conv_load(const struct crt_mve_conv_parts *parts, struct crt_mve_conv_walk *p)
{
    const struct crt_mve_conv_table *t = p->table;
    for (; p->loaded < ((p->line * t->stride) + t->span); p->loaded++) {
        int8_t *to = p->ring + ((p->loaded % t->rows) * t->pitch) + t->ring_left;
        const int32_t row = p->loaded - t->top;
        if ((row < 0) || (row >= t->height)) {
            parts->fill(to, t->fill, (uint32_t)t->copied);
        } else {
            parts->copy(to, p->image + (row * t->row_bytes), (uint32_t)t->copied);
        }
    }
}

/* Go to the next pair of the image; NULL if there is none. */
static inline const struct crt_mve_conv_pair *crt_mve_conv_next(const struct crt_mve_conv_parts *parts,
    struct crt_mve_conv_walk *p)
{
    const struct crt_mve_conv_table *t = p->table;
    if (p->column >= t->out_width) {
        p->column = 0;
        p->line++;
    }
    if (p->line == t->out_height) {
        return NULL;
    }
    if ((p->column == 0) && (t->ring_bytes != 0)) {
        crt_mve_conv_load(parts, p);
    }
    const int32_t second = ((p->column + 1) < t->out_width) ? 1 : 0;
    crt_mve_conv_windows(parts, p, second * t->step);
    p->pair.y = p->y;
    p->pair.apart = second * t->outputs;
    p->y += (1 + second) * t->outputs;
    p->column += 2;
    return &p->pair;
}

/* Compute all images; scratch holds the ring, and two windows if they are gathered. */
static inline void crt_mve_conv(const struct crt_mve_conv_parts *parts, const int8_t *x, int8_t *y,
    const uint32_t *weights, const int32_t *table, uint8_t *scratch)
{
    const struct crt_mve_conv_table *t = (const struct crt_mve_conv_table *)(const void *)table;
    struct crt_mve_conv_walk walk;
    walk.table = t;
    walk.image = x;
    walk.y = y;
    walk.columns = (int8_t *)scratch;
    walk.ring = (int8_t *)scratch + (2 * t->window_bytes);
    for (int32_t image = 0; image < t->images; image++) {
        parts->fill(walk.ring, t->fill, (uint32_t)t->ring_bytes);
        walk.line = 0;
        walk.column = 0;
        walk.loaded = 0;
        const struct crt_mve_conv_pair *pair = crt_mve_conv_next(parts, &walk);
        for (; pair != NULL; pair = crt_mve_conv_next(parts, &walk)) {
            parts->pair(weights, pair, table);
        }
        walk.image += t->image_bytes;
    }
}

#endif
