/* SPDX-License-Identifier: Apache-2.0 */
/* A fault: the state of the core when it stopped, as words. SPEC.md, section 5. */
#ifndef CRT_FAULT_H
#define CRT_FAULT_H

#include <stdint.h>

#define CRT_FAULT_MAGIC 0x31544c46u /* "FLT1" */

/* Value of `exception` (which has 9 bits on a core) for a fault that software detected. */
#define CRT_FAULT_GUARD 512u /* a guard of an arena was overwritten */

/* A record of a fault, in memory that a reset does not clear. */
struct crt_fault {
    uint32_t magic;
    uint32_t registers[13]; /* r0 to r12 */
    uint32_t sp;
    /* The frame; all 0 if the core could not store it because the stack had overflowed. */
    uint32_t lr;
    uint32_t pc;
    uint32_t xpsr;
    uint32_t exception; /* number of the exception; 2 is NMI: the watchdog; or CRT_FAULT_GUARD */
    uint32_t exc_return;
    uint32_t cfsr;
    uint32_t hfsr;
    uint32_t mmfar;
    uint32_t bfar;
    uint32_t stack_bottom;
    uint32_t stack_top;
    uint32_t ticks_per_second;
    uint32_t ticks_low;
    uint32_t ticks_high;
    uint32_t crc;
};

/*
 * Store the state of a Cortex-M, called by its fault handler. `saved` are r4 to r11, `sp` and `exc_return` the stack
 * pointer and lr at the entry of the handler. The bounds of the stack must be set already, and everything else must
 * be 0.
 */
void crt_fault_read(struct crt_fault *fault, const uint32_t *saved, uint32_t sp, uint32_t exc_return);

/* Set the magic number and the checksum, which make the record valid. */
void crt_fault_seal(struct crt_fault *fault);

/* Return whether the memory holds a fault, rather than random bytes from power-up. */
int crt_fault_is_valid(const struct crt_fault *fault);

/* Pass the report to `line`, line by line: the used stack, the fault, and its address. */
void crt_fault_report(const struct crt_fault *fault, void (*line)(void *context, const char *text), void *context);

#endif
