/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver of an Ethos-U NPU: one stream of commands at a time, without a heap, without interrupts unless the port
 * has one. Generated code fills a job and calls crt_npu_run.
 *
 * The port is what differs from chip to chip. Each of its functions has a weak definition in crt_npu.c, for a core
 * without data cache that polls; a program defines those that it needs otherwise. crt_npu_registers has none that
 * works: without it every run ends with CRT_NPU_ERR_NONE.
 */
#ifndef CRT_NPU_H
#define CRT_NPU_H

#include <stdint.h>

enum {
    CRT_NPU_REGIONS = 8
};

/* What crt_npu_run returns beside 0. The run of the model ends with it. */
enum crt_npu_error {
    CRT_NPU_ERR_NONE = -20,    /* the program names no NPU */
    CRT_NPU_ERR_CONFIG = -21,  /* the NPU there is not the one that the stream is for */
    CRT_NPU_ERR_RESET = -22,   /* it does not come out of reset, or not in the wanted state */
    CRT_NPU_ERR_TIMEOUT = -23, /* its interrupt did not come within the cycles of the watchdog */
    CRT_NPU_ERR_BUS = -24,     /* a read or write failed on the bus: a region is missing, or out of its reach */
    CRT_NPU_ERR_STREAM = -25,  /* a command that it does not know */
    CRT_NPU_ERR_ENDED = -26,   /* the stream does not end with STOP, or it stopped before: the stream was cut */
    CRT_NPU_ERR_MEMORY = -27,  /* an error of its own memory (ECC) */
    CRT_NPU_ERR_JOB = -28      /* the stream or a region is not aligned */
};

/* Memory behind a base pointer. */
struct crt_npu_region {
    uintptr_t base;
    uint32_t bytes; /* 0: the region has no memory */
};

/* A stream and what it works on. Bit n of `written`: the stream writes region n. */
struct crt_npu_job {
    const uint32_t *stream;
    uint32_t stream_bytes;
    uint32_t config; /* the register CONFIG of the NPU that the stream is for */
    uint32_t written;
    struct crt_npu_region regions[CRT_NPU_REGIONS];
};

/* The last failure: the register STATUS, and in bytes how far the NPU had read the stream. */
struct crt_npu_failure {
    int32_t error;
    uint32_t status;
    uint32_t offset;
};

extern struct crt_npu_failure crt_npu_failure;

/* Runs a job to its end. Returns 0 or an error; after an error the NPU is reset before the next job. */
int32_t crt_npu_run(const struct crt_npu_job *job);

/*
 * If a program sets it, jobs go there instead of to the registers: a simulator that has no NPU hands them to a model
 * on the host.
 */
extern int32_t (*crt_npu_instead)(const struct crt_npu_job *job);

/* The port. */

/* Address of the NPU's registers; 0: there is none. */
uintptr_t crt_npu_registers(void);

/* Makes what the core wrote visible to the NPU, and what the NPU wrote to the core: data caches. */
void crt_npu_clean(uintptr_t start, uint32_t bytes);
void crt_npu_invalidate(uintptr_t start, uint32_t bytes);

/*
 * Waits until the NPU's interrupt may have come, at most as long as it likes: the driver looks at the NPU's status and
 * calls it again. An RTOS takes a semaphore here, which the interrupt's handler gives.
 */
void crt_npu_wait(void);

/* A clock for the watchdog that wraps at 2^32, and how many of its ticks a job may take; 0: as many as it likes. */
uint32_t crt_npu_ticks(void);
extern uint32_t crt_npu_limit;

#endif
