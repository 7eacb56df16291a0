/* Start-up for QEMU: vectors, .data and .bss, the FPU and Helium; the exit of semihosting. */
#include <stdint.h>
#include <string.h>

extern uint8_t data_start[], data_end[], data_load[], bss_start[], bss_end[];
extern uint32_t stack_top[];

int main(void);
void systick_handler(void);
void reset_handler(void);

static void leave(uint32_t reason)
{
    register uint32_t op __asm__("r0") = 0x18; /* SYS_EXIT */
    register uint32_t argument __asm__("r1") = reason;
    __asm__ volatile("bkpt 0xab" : : "r"(op), "r"(argument) : "memory");
    for (;;) {
    }
}

static void fault_handler(void)
{
    leave(0x20023u); /* ADP_Stopped_RunTimeErrorUnknown */
}

void reset_handler(void)
{
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    *(volatile uint32_t *)0xe000ed88u |= 0xfu << 20;
    __asm__ volatile("dsb\n isb");
#endif
    memcpy(data_start, data_load, (size_t)(data_end - data_start));
    memset(bss_start, 0, (size_t)(bss_end - bss_start));
    leave(main() == 0 ? 0x20026u : 0x20023u);
}

__attribute__((section(".vectors"), used)) static const uintptr_t vectors[16] = {
    (uintptr_t)stack_top,     (uintptr_t)reset_handler, (uintptr_t)fault_handler, (uintptr_t)fault_handler,
    (uintptr_t)fault_handler, (uintptr_t)fault_handler, (uintptr_t)fault_handler, 0,
    0,                        0,                        0,                        (uintptr_t)fault_handler,
    (uintptr_t)fault_handler, 0,                        (uintptr_t)fault_handler, (uintptr_t)systick_handler,
};
