/* The MPS2 board with AN386, a Cortex-M4, as QEMU simulates it. */
#include "board.h"

#define DATA (*(volatile uint32_t *)0x40004000u)
#define STATE (*(volatile uint32_t *)0x40004004u) /* bit 0: no room to send, bit 1: a byte has come */
#define CONTROL (*(volatile uint32_t *)0x40004008u)
#define DIVIDER (*(volatile uint32_t *)0x40004010u)
#define CPACR (*(volatile uint32_t *)0xE000ED88u)
#define TRIES 20000000u

void board_start(void)
{
    CPACR |= 0xFu << 20; /* the FPU is on */
    __asm volatile("dsb\n\tisb" ::: "memory");
    DIVIDER = 16;
    CONTROL = 3;
}

void board_write(const void *bytes, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++) {
        while ((STATE & 1u) != 0u) {
        }
        DATA = ((const uint8_t *)bytes)[i];
    }
}

int board_read(void)
{
    for (uint32_t i = 0; i < TRIES; i++) {
        if ((STATE & 2u) != 0u) {
            return (int)(DATA & 0xFFu);
        }
    }
    return -1;
}
