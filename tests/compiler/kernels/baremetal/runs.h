/* The runs of a test program: a model and the bytes of all its inputs, one after another. */
#ifndef RUNS_H
#define RUNS_H

#include <crt/model.h>

struct run {
    const struct crt_model *model;
    const uint8_t *inputs;
};

extern const struct run runs[];
extern const uint32_t num_runs;

#endif
