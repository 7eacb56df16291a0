/* What a product reads, by a network of its own. */
#ifndef PRODUCT_H
#define PRODUCT_H

#include <crt/field.h>
#include <stdint.h>

/* The best label, and how sure the network is, in percent. */
struct answer {
    int32_t label;
    int32_t percent;
};

extern const struct crt_field *const product_field;

/* Samples that it reads in turn. The sample after them is known: its label is `product_known`. */
extern const uint32_t product_samples;
extern const int32_t product_known;

struct answer product_read(uint32_t sample);

/* The answer that scores of int8 are, from -128 for 0 % on. */
struct answer best_of(const int8_t *scores, int32_t count);

#endif
