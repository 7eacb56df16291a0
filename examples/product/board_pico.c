/* The Raspberry Pi Pico: its crystal of 12 MHz, and UART0 on GP0 and GP1 with 115200 baud. */
#include "board.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define XOSC_CONTROL REGISTER(0x40024000u)
#define XOSC_STATUS REGISTER(0x40024004u)
#define XOSC_STARTUP REGISTER(0x4002400cu)
#define CLK_REF_CONTROL REGISTER(0x40008030u)
#define CLK_REF_SELECTED REGISTER(0x40008038u)
#define CLK_PERI_CONTROL REGISTER(0x40008048u)
#define RESETS REGISTER(0x4000c000u)
#define RESETS_DONE REGISTER(0x4000c008u)
#define PINS_AND_UART ((1u << 5) | (1u << 8) | (1u << 22))
#define GPIO0_CONTROL REGISTER(0x40014004u)
#define GPIO1_CONTROL REGISTER(0x4001400cu)
#define UART_DATA REGISTER(0x40034000u)
#define UART_FLAGS REGISTER(0x40034018u) /* bit 4: nothing has come, bit 5: no room to send */
#define UART_WHOLE REGISTER(0x40034024u)
#define UART_FRACTION REGISTER(0x40034028u)
#define UART_LINE REGISTER(0x4003402cu)
#define UART_CONTROL REGISTER(0x40034030u)
#define TRIES 1000000u

void board_start(void)
{
    XOSC_CONTROL = 0xaa0;
    XOSC_STARTUP = 0x2f; /* a millisecond */
    XOSC_CONTROL |= 0xfab000u;
    while ((XOSC_STATUS & 0x80000000u) == 0u) {
    }
    CLK_REF_CONTROL = 2; /* the crystal; the core's clock follows */
    while (CLK_REF_SELECTED != 4u) {
    }
    CLK_PERI_CONTROL = 0x800;
    RESETS &= ~PINS_AND_UART;
    while ((RESETS_DONE & PINS_AND_UART) != PINS_AND_UART) {
    }
    GPIO0_CONTROL = 2;
    GPIO1_CONTROL = 2;
    UART_WHOLE = 6; /* 12 MHz / 16 / 115200 is 6 and 33/64 */
    UART_FRACTION = 33;
    UART_LINE = 0x70;
    UART_CONTROL = 0x301;
}

void board_write(const void *bytes, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++) {
        while ((UART_FLAGS & (1u << 5)) != 0u) {
        }
        UART_DATA = ((const uint8_t *)bytes)[i];
    }
}

int board_read(void)
{
    for (uint32_t i = 0; i < TRIES; i++) {
        if ((UART_FLAGS & (1u << 4)) == 0u) {
            return (int)(UART_DATA & 0xFFu);
        }
    }
    return -1;
}
