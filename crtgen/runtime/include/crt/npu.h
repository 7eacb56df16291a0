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

/* Errors of crt_npu_run, with which the run of the model ends. */
enum crt_npu_error {
    CRT_NPU_ERR_NONE = -20,    /* the program names no NPU */
    CRT_NPU_ERR_CONFIG = -21,  /* the NPU is not the one that the stream was compiled for */
    CRT_NPU_ERR_RESET = -22,   /* it does not come out of reset, or not in the wanted state */
    CRT_NPU_ERR_TIMEOUT = -23, /* its interrupt did not arrive within the ticks of the watchdog */
    CRT_NPU_ERR_BUS = -24,     /* a read or write failed on the bus: a region is missing, or not reachable */
    CRT_NPU_ERR_STREAM = -25,  /* an unknown command */
    CRT_NPU_ERR_ENDED = -26,   /* the stream does not end with STOP, or the NPU stopped earlier: the stream was cut */
    CRT_NPU_ERR_MEMORY = -27,  /* an error in the NPU's own memory (ECC) */
    CRT_NPU_ERR_JOB = -28,     /* the stream or a region is not aligned */
    CRT_NPU_ERR_DRIVER = -29   /* Arm's driver failed; its log says why */
};

/* Memory behind a base pointer. */
struct crt_npu_region {
    uintptr_t base;
    uint32_t bytes; /* 0: the region has no memory */
};

/* A stream and its memory. Bit n of `written`: the stream writes region n. */
struct crt_npu_job {
    const uint32_t *stream;
    uint32_t stream_bytes;
    uint32_t config; /* the register CONFIG of the NPU that the stream was compiled for */
    uint32_t written;
    struct crt_npu_region regions[CRT_NPU_REGIONS];
    uint32_t ports; /* two bits for each region: 0 and 1 go through the first bus port, 2 and 3 through the second */
};

/* The last failure: the register STATUS, and how many bytes of the stream the NPU had read. */
struct crt_npu_failure {
    int32_t error;
    uint32_t status;
    uint32_t offset;
};

extern struct crt_npu_failure crt_npu_failure;

/* Run a job to its end. Returns 0 or an error; after an error the NPU is reset before the next job. */
int32_t crt_npu_run(const struct crt_npu_job *job);

/*
 * If it is set, jobs go there instead of to the registers: simulators without an NPU pass them to a model on the
 * host.
 */
extern int32_t (*crt_npu_instead)(const struct crt_npu_job *job);

/* The port. */

/* Return the address of the NPU's registers; 0: there is none. */
uintptr_t crt_npu_registers(void);

/* Clean and invalidate data caches, so that the NPU sees what the core wrote, and the core what the NPU wrote. */
void crt_npu_clean(uintptr_t start, uint32_t bytes);
void crt_npu_invalidate(uintptr_t start, uint32_t bytes);

/*
 * Wait until the NPU's interrupt may have arrived. It may return at any time, because the driver checks the NPU's
 * status and calls it again. With an RTOS, take a semaphore here that the interrupt's handler gives.
 */
void crt_npu_wait(void);

/* A clock for the watchdog that wraps at 2^32, and the most ticks that a job may take; 0: no limit. */
uint32_t crt_npu_ticks(void);
extern uint32_t crt_npu_limit;

#endif
