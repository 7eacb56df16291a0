/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a Cortex-M at a fault. Armv8-M Architecture Reference Manual, B3.19 (frames) and D1.2 (registers). */
#include <crt/fault.h>

#ifdef __arm__

#define CRT_REGISTER(address) (*(volatile uint32_t *)(address))
#define CRT_ICSR CRT_REGISTER(0xE000ED04u)
#define CRT_CFSR CRT_REGISTER(0xE000ED28u)
#define CRT_HFSR CRT_REGISTER(0xE000ED2Cu)
#define CRT_MMFAR CRT_REGISTER(0xE000ED34u)
#define CRT_BFAR CRT_REGISTER(0xE000ED38u)

#define CRT_CFSR_STACKING (1u << 4 | 1u << 12) /* MSTKERR, STKERR */
#define CRT_CFSR_STACK_LIMIT (1u << 20)        /* STKOF */
#define CRT_EXC_RETURN_NO_FPU (1u << 4)
#define CRT_XPSR_PADDED (1u << 9)
#define CRT_FRAME_BYTES 32u
#define CRT_FRAME_BYTES_FPU 104u

/* Return whether the core stored a frame. If a stack limit prevented it, the pointer is at the limit. */
static int crt_fault_is_stored(const struct crt_fault *fault, uint32_t sp)
{
    if ((fault->cfsr & CRT_CFSR_STACKING) != 0 ||
        ((fault->cfsr & CRT_CFSR_STACK_LIMIT) != 0 && sp == fault->stack_bottom)) {
        return 0;
    }
    return sp >= fault->stack_bottom && sp + CRT_FRAME_BYTES <= fault->stack_top;
}

void crt_fault_read(struct crt_fault *fault, const uint32_t *saved, uint32_t sp, uint32_t exc_return)
{
    const uint32_t *frame = (const uint32_t *)sp;
    for (int i = 0; i < 8; i++) {
        fault->registers[4 + i] = saved[i];
    }
    fault->exception = CRT_ICSR & 511u;
    fault->exc_return = exc_return;
#if __ARM_ARCH >= 7
    fault->cfsr = CRT_CFSR;
    fault->hfsr = CRT_HFSR;
    fault->mmfar = CRT_MMFAR;
    fault->bfar = CRT_BFAR;
#endif
    fault->sp = sp;
    if (crt_fault_is_stored(fault, sp)) {
        for (int i = 0; i < 4; i++) {
            fault->registers[i] = frame[i];
        }
        fault->registers[12] = frame[4];
        fault->lr = frame[5];
        fault->pc = frame[6];
        fault->xpsr = frame[7];
        fault->sp += (exc_return & CRT_EXC_RETURN_NO_FPU) != 0 ? CRT_FRAME_BYTES : CRT_FRAME_BYTES_FPU;
        fault->sp += (fault->xpsr & CRT_XPSR_PADDED) != 0 ? 4u : 0u;
    }
}

#endif

/* A translation unit has to declare something. */
typedef int crt_fault_core_unit;
