/* What the product needs of a board, from Zephyr: the console's UART, a restart, and the flash around the partition. */
#include "board.h"

#include <digits_field.h>

#include <crt/flash_ports.h>

#include <stddef.h>

#include <zephyr/device.h>
#include <zephyr/devicetree.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/reboot.h>

#define PARTITION DT_NODELABEL(models_partition)
#define FLASH DT_GPARENT(PARTITION) /* the memory; its parent is what writes it */
#define SILENCE 1000                /* milliseconds without a byte */

int product_main(void);

static const struct device *const uart = DEVICE_DT_GET(DT_CHOSEN(zephyr_console));
static const struct crt_flash_zephyr zephyr = {DEVICE_DT_GET(DT_PARENT(FLASH)), DT_REG_ADDR(FLASH)};

struct crt_flash crt_flash_board;

void board_start(void)
{
}

void board_restart(void)
{
    sys_reboot(SYS_REBOOT_COLD);
    for (;;) {
    }
}

void board_write(const void *bytes, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++) {
        uart_poll_out(uart, ((const unsigned char *)bytes)[i]);
    }
}

int board_read(void)
{
    const int64_t start = k_uptime_get();
    unsigned char byte = 0;
    while (uart_poll_in(uart, &byte) != 0) {
        if (k_uptime_get() - start > SILENCE) {
            return -1;
        }
    }
    return byte;
}

static int is_in_partition(uintptr_t origin, uint32_t size)
{
    const uintptr_t start = DT_REG_ADDR(FLASH) + DT_REG_ADDR(PARTITION);
    return (origin >= start) && (size <= DT_REG_SIZE(PARTITION)) &&
           (origin - start <= DT_REG_SIZE(PARTITION) - size);
}

/* The slots are where the board's file of crtgen says, for which images are linked: the partition must hold them. */
static int is_partition_right(void)
{
    int is_right = is_in_partition(digits_field.log, digits_field.log_size);
    for (uint32_t i = 0; i < digits_field.num_places; i++) {
        const struct crt_slot_place *place = &digits_field.places[i];
        is_right = is_right && ((place->in_ram != 0u) || is_in_partition(place->origin, place->size));
    }
    return is_right;
}

int main(void)
{
    static const char wrong[] = "the partition does not hold the slots\n";
    if (!is_partition_right() || (crt_flash_of_zephyr(&crt_flash_board, &zephyr) != 0)) {
        board_write(wrong, sizeof wrong - 1u);
        return 1;
    }
    return product_main();
}
