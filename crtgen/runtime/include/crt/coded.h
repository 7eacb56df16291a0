/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constants as Huffman codes of at most eight bits, or as four-bit indices into a table: shared by all layers whose
 * weights are decoded before they are used.
 *
 * crtgen/compiler/kernels/engine/huffman.py writes the codes and their tables,
 * crtgen/compiler/kernels/portable/coded.py the indices.
 */
#ifndef CRT_CODED_H
#define CRT_CODED_H

#include "crt/kernel.h"

#include <stdint.h>

#define CRT_CODED static __attribute__((noinline, unused)) /* once for all layers */
#define CRT_CODED_PART static inline __attribute__((always_inline))

/*
 * Layout of the decoded constants for one call of a kernel: rows of `coded` values (an even count), with plain bytes
 * before the rows, between two rows, and after the last one. If `borrows` is 1, values are pairs of b and a, from
 * which halfwords 256 a + b are made; otherwise it is 0.
 */
struct crt_coded_rows {
    int32_t rows;
    int32_t coded;
    int32_t first;
    int32_t between;
    int32_t last;
    uint32_t borrows;
    int32_t tables; /* bytes of a row's two tables, of the even and the odd values; 0: one table for all */
};

/*
 * State of a reader of codes. A table entry has a byte in its low half and the length of the byte's code from bit 8
 * on; bit 15 says that the byte follows the code. `shift` leaves the bits of the longest code.
 */
struct crt_codes {
    const uint8_t *plain; /* the plain bytes */
    const uint16_t *next; /* halfwords still to read; the first code is in the highest bits */
    const uint16_t *table;
    uint32_t shift;
    uint32_t bits; /* bits that were read; the next code is at the top */
    int32_t left;  /* the number of these bits */
};

/* State of a reader of indices. The lower four bits of a byte come first. */
struct crt_indices {
    const uint8_t *plain;
    const uint8_t *next;
    const uint8_t *table;
};

/* Read the next value. */
CRT_CODED_PART uint32_t crt_next_number(struct crt_codes *codes)
{
    if (codes->left < 16) {
        codes->bits |= (uint32_t)*codes->next << (16 - codes->left);
        codes->next++;
        codes->left += 16;
    }
    uint32_t entry = codes->table[codes->bits >> codes->shift];
    const uint32_t length = (entry >> 8) & 15u;
    codes->bits <<= length;
    codes->left -= (int32_t)length;
    if ((entry & 0x8000u) != 0) {
        entry = codes->bits >> 24;
        codes->bits <<= 8;
        codes->left -= 8;
    }
    return entry & 255u;
}

/* Copy plain bytes; return the position of the next value. */
CRT_CODED_PART uint8_t *crt_coded_plain(uint8_t *to, const uint8_t **from, int32_t count)
{
    crt_copy(to, *from, (size_t)count);
    *from += count;
    return to + count;
}

/* Decode the constants of a call from codes. */
CRT_CODED void crt_decode(struct crt_codes *from, const struct crt_coded_rows *k, uint8_t *to)
{
    struct crt_codes codes = *from;
    to = crt_coded_plain(to, &codes.plain, k->first);
    for (int32_t row = k->rows; row > 0; row--) {
        for (const uint8_t *end = to + k->coded; to < end; to += 2) {
            const uint32_t low = crt_next_number(&codes);
            to[0] = (uint8_t)low;
            to[1] = (uint8_t)(crt_next_number(&codes) - ((low >> 7) & k->borrows));
        }
        to = crt_coded_plain(to, &codes.plain, row > 1 ? k->between : k->last);
    }
    *from = codes;
}

/* Decode the constants of a call from indices. */
CRT_CODED void crt_look_up(struct crt_indices *from, const struct crt_coded_rows *k, uint8_t *to)
{
    struct crt_indices indices = *from;
    to = crt_coded_plain(to, &indices.plain, k->first);
    for (int32_t row = k->rows; row > 0; row--) {
        const uint8_t *second = indices.table + k->tables / 2;
        for (const uint8_t *end = to + k->coded; to < end; to += 2) {
            const uint32_t low = indices.table[*indices.next & 15u];
            to[0] = (uint8_t)low;
            to[1] = (uint8_t)(second[*indices.next >> 4] - ((low >> 7) & k->borrows));
            indices.next++;
        }
        indices.table += k->tables;
        to = crt_coded_plain(to, &indices.plain, row > 1 ? k->between : k->last);
    }
    *from = indices;
}

#endif
