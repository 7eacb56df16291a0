/* From reset to main, for any Cortex-M. A fault starts the product again. */
#include "board.h"

#define AIRCR (*(volatile uint32_t *)0xE000ED0Cu)

extern uint32_t data_load[], data_start[], data_end[], bss_start[], bss_end[], stack_top[];
int main(void);

void board_restart(void)
{
    __asm volatile("dsb" ::: "memory");
    AIRCR = 0x05FA0004u;
    for (;;) {
    }
}

void product_reset(void);
void product_reset(void)
{
    const uint32_t *from = data_load;
    for (uint32_t *to = data_start; to != data_end; to++) {
        *to = *from++;
    }
    for (uint32_t *to = bss_start; to != bss_end; to++) {
        *to = 0;
    }
    board_start();
    (void)main();
    board_restart();
}

typedef void (*handler)(void);
__attribute__((used, section(".vectors"))) static const handler vectors[16] = {
    (handler)stack_top, product_reset, board_restart, board_restart, board_restart, board_restart, board_restart, 0, 0,
    0,                  board_restart, board_restart, board_restart, 0,             board_restart, board_restart,
};
