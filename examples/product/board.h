/* What the product needs of a board. */
#ifndef BOARD_H
#define BOARD_H

#include <crt/flash.h>
#include <stdint.h>

void board_start(void);
void board_restart(void) __attribute__((noreturn));
void board_write(const void *bytes, uint32_t size);

/* The next byte of the serial port; -1 if none comes for a second or so. */
int board_read(void);

/* The flash of the slots: by Zephyr's driver, on bare metal by the library's. */
#if defined(__ZEPHYR__)
extern struct crt_flash crt_flash_board;
#else
extern const struct crt_flash crt_flash_board;
#endif

#endif
