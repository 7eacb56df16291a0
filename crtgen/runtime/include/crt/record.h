/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The black box of a model: the inputs and outputs of its last runs, and what lived from run to run before them, in
 * memory that a reset leaves alone. Models compiled with CRT_RECORD=<runs> have one. SPEC.md, section 9.
 */
#ifndef CRT_RECORD_H
#define CRT_RECORD_H

#include <stddef.h>
#include <stdint.h>

#define CRT_RECORD_MAGIC 0x42545243u /* "CRTB" */

/* An input or an output, where it lies when a run begins, or has ended. */
struct crt_record_part {
    const void *data;
    uint32_t nbytes;
};

/* The beginning of the memory. */
struct crt_record_head {
    uint32_t magic;
    uint32_t layout; /* of the model that wrote it */
    uint32_t next;   /* number of the next run */
    uint32_t first;  /* number of the first run of those that follow each other without a reset */
};

/* Before the inputs and outputs of a run. */
struct crt_record_run {
    uint32_t number;
    uint32_t ended; /* 1: the outputs are there; 0: the run did not come to its end */
};

struct crt_recorder {
    uint8_t *memory;
    uint32_t runs; /* an even number */
    uint32_t run_bytes; /* of the inputs and outputs of a run, each in whole words */
    const struct crt_record_part *inputs;
    const struct crt_record_part *outputs;
    uint16_t num_inputs;
    uint16_t num_outputs;
    uint8_t *state; /* NULL if nothing lives from run to run */
    uint32_t state_bytes;
    uint32_t layout;
    uint8_t *follows; /* 1: the next run follows the last one, 0: states were set anew, or the device started */
};

/* Of one run, with what is before it. */
#define CRT_RECORD_WORDS(nbytes) (((nbytes) + 3u) / 4u * 4u)

/* Bytes of the memory. */
#define CRT_RECORD_BYTES(runs, run_bytes, state_bytes) \
    (sizeof(struct crt_record_head) + 2u * CRT_RECORD_WORDS(state_bytes) + \
     (runs) * (sizeof(struct crt_record_run) + (run_bytes)))

/* What the code of a model calls around a run. */
void crt_record_begin(const struct crt_recorder *recorder);
void crt_record_end(const struct crt_recorder *recorder);

/* Bytes of the memory of a recorder. */
uint32_t crt_record_size(const struct crt_recorder *recorder);

/* Give all of it to a function of yours: to write it to a file, or to send it. `crtgen record --file` reads it. */
void crt_record_dump(const struct crt_recorder *recorder, void (*write)(void *context, const void *data, size_t size),
                     void *context);

#endif
