/* SPDX-License-Identifier: Apache-2.0 */
/* Description of a generated model for the runtime. Everything here is const: it costs no RAM. */
#ifndef CRT_MODEL_H
#define CRT_MODEL_H

#include <stdint.h>

#include <crt/run.h>
#include <dlpack/dlpack.h>

/* One input or output. `data` is its place, usually in the model's arena. */
struct crt_tensor {
    const char *name;
    void *data;
    const int64_t *shape;
    uint32_t nbytes;
    int32_t ndim;
    DLDataType dtype;
};

/* A run may overwrite the inputs: set them again before the next one. */
#define CRT_MODEL_CONSUMES_INPUTS 1u
/* The arena lies between guards; crt/guard.h. */
#define CRT_MODEL_HAS_GUARD 2u

#ifdef CRT_ARENA_GUARD
#define CRT_MODEL_GUARD CRT_MODEL_HAS_GUARD
#else
#define CRT_MODEL_GUARD 0u
#endif

/* A part of an arena in another memory, between guards of its own. */
struct crt_arena_part {
    const char *name;
    uint8_t *data;
    uint32_t size; /* size without the guards */
};

struct crt_recorder;
struct crt_drift_reference;

struct crt_model {
    const char *name;
    /* One inference from the inputs' places to the outputs' places; 0, or an error. */
    int32_t (*run)(void);
    /* Set the states to their initial values; NULL without states. */
    void (*reset)(void);
    const struct crt_tensor *inputs;
    const struct crt_tensor *outputs;
    uint16_t num_inputs;
    uint16_t num_outputs;
    uint16_t num_layers;
    uint16_t flags;
    /*
     * The arena of the inputs and outputs: a run of a model overwrites those of other models in the same arena. NULL:
     * no model shares it.
     */
    void *arena;
    uint32_t arena_size; /* size without the guards */
    const struct crt_recorder *recorder; /* crt/record.h; NULL: runs are not recorded */
    const struct crt_drift_reference *drift; /* crt/drift.h; NULL: nothing is counted */
    /* The arena's parts, with CRT_MODEL_HAS_GUARD; otherwise they are not listed. */
    const struct crt_arena_part *parts;
    uint32_t num_parts;
};

/* The models of this image, in the generated metadata module. */
extern const struct crt_model *const crt_models[];
extern const uint16_t crt_num_models;

#endif
