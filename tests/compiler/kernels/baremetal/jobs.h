/* Jobs of a test program: kernels, what they read, and what they have to write. */
#ifndef JOBS_H
#define JOBS_H

#include <stdint.h>

enum kind { INPUT, OUTPUT, CONSTANT, SCRATCH };

/* An argument of a kernel; data are what is read, or for an output what it has to become.

   float32 outputs may differ by the tolerance; where it is 0, all bytes have to be equal. */
struct buffer {
    const uint8_t *data;
    uint32_t nbytes;
    uint32_t align;
    enum kind kind;
    float tolerance;
};

/* buffers[output] may overwrite buffers[input], when it begins `lead` bytes before it. */
struct permit {
    uint32_t input;
    uint32_t output;
    uint32_t lead;
};

/* A kernel with its arguments in order, of any number of outputs. */
struct job {
    void (*call)(uint8_t *const *arguments);
    const struct buffer *buffers;
    uint32_t num_buffers;
    const struct permit *permits;
    uint32_t num_permits;
};

extern const struct job jobs[];
extern const uint32_t num_jobs;

#endif
