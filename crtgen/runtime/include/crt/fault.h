/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of a fault: the state of the core when it stopped, as words. SPEC.md, section 5.
 */
#ifndef CRT_FAULT_H
#define CRT_FAULT_H

#include <stdint.h>

#define CRT_FAULT_MAGIC 0x31544c46u /* "FLT1" */

/* In `exception`, which has 9 bits on a core: a fault that software found. */
#define CRT_FAULT_GUARD 512u /* a guard of an arena was overwritten */

/* It lies in memory that a reset leaves alone. */
struct crt_fault {
    uint32_t magic;
    uint32_t registers[13]; /* r0 to r12 */
    uint32_t sp;
    /* All 0 if the core could not store them, because the stack had overflowed. */
    uint32_t lr;
    uint32_t pc;
    uint32_t xpsr;
    uint32_t exception; /* its number; 2 is NMI: the watchdog; CRT_FAULT_GUARD */
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
 * For the fault handler of a Cortex-M: the state of the core. `saved` are r4 to r11, `sp` and `exc_return` the
 * stack pointer and lr, as the handler found them. The bounds of the stack have to be set already, and all else 0.
 */
void crt_fault_read(struct crt_fault *fault, const uint32_t *saved, uint32_t sp, uint32_t exc_return);

/* Set the magic number and the checksum. */
void crt_fault_seal(struct crt_fault *fault);

/* Whether the memory holds a fault, and not what it held when the power came. */
int crt_fault_is_valid(const struct crt_fault *fault);

/* Gives `line` the report, line by line: the stack that is in use, the fault, and where the fault lies. */
void crt_fault_report(const struct crt_fault *fault, void (*line)(void *context, const char *text), void *context);

#endif
