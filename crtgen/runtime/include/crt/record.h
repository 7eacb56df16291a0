/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The black box of a model: inputs and outputs of its last runs, and the states before them, in memory that a reset
 * does not clear. Models compiled with CRT_RECORD=<runs> have one. SPEC.md, section 9.
 */
#ifndef CRT_RECORD_H
#define CRT_RECORD_H

#include <stddef.h>
#include <stdint.h>

#define CRT_RECORD_MAGIC 0x42545243u /* "CRTB" */

/* An input before a run, or an output after it, at its place. */
struct crt_record_part {
    const void *data;
    uint32_t nbytes;
};

/* Header of the memory. */
struct crt_record_head {
    uint32_t magic;
    uint32_t layout; /* digest of the model that wrote it */
    uint32_t next;   /* number of the next run */
    uint32_t first;  /* number of the first run since the last reset or gap */
};

/* Header of a run, before its inputs and outputs. */
struct crt_record_run {
    uint32_t number;
    uint32_t ended; /* 1: the outputs are there; 0: the run was interrupted */
};

struct crt_recorder {
    uint8_t *memory;
    uint32_t runs; /* an even number */
    uint32_t run_bytes; /* bytes of the inputs and outputs of a run, each rounded up to words */
    const struct crt_record_part *inputs;
    const struct crt_record_part *outputs;
    uint16_t num_inputs;
    uint16_t num_outputs;
    uint8_t *state; /* NULL without states */
    uint32_t state_bytes;
    uint32_t layout;
    uint8_t *follows; /* 1: the next run continues the last one, 0: states were reset, or the device started */
};

/* Bytes of one run with its header. */
#define CRT_RECORD_WORDS(nbytes) (((nbytes) + 3u) / 4u * 4u)

/* Bytes of the whole memory. */
#define CRT_RECORD_BYTES(runs, run_bytes, state_bytes) \
    (sizeof(struct crt_record_head) + 2u * CRT_RECORD_WORDS(state_bytes) + \
     (runs) * (sizeof(struct crt_record_run) + (run_bytes)))

/* Called by the code of a model before and after a run. */
void crt_record_begin(const struct crt_recorder *recorder);
void crt_record_end(const struct crt_recorder *recorder);

/* Return the bytes of a recorder's memory. */
uint32_t crt_record_size(const struct crt_recorder *recorder);

/* Pass the whole memory to your function, which writes it to a file or sends it. `crtgen record --file` reads it. */
void crt_record_dump(const struct crt_recorder *recorder, void (*write)(void *context, const void *data, size_t size),
                     void *context);

#endif
