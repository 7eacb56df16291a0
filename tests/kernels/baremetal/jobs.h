/* Jobs of a test program: kernels, what they read, and what they have to write. */
#ifndef JOBS_H
#define JOBS_H

#include <stdint.h>

enum kind { INPUT, OUTPUT, CONSTANT, SCRATCH };

/* An argument of a kernel; data are what is read, or for an output what it has to become. */
struct buffer {
    const uint8_t *data;
    uint32_t nbytes;
    uint32_t align;
    enum kind kind;
};

/* Leave to lay the output over the input in buffers[input], at least so many bytes before it. */
struct leave {
    uint32_t input;
    uint32_t lead;
};

/* A kernel; float32 outputs may differ by the tolerance, others have to be equal. */
struct job {
    void (*call)(uint8_t *const *arguments);
    const struct buffer *buffers;
    uint32_t num_buffers;
    const struct leave *leaves;
    uint32_t num_leaves;
    float tolerance;
};

extern const struct job jobs[];
extern const uint32_t num_jobs;

#endif
