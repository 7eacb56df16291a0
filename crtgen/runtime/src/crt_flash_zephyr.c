/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__ZEPHYR__)
#include <crt/flash_ports.h>

#include <crt/error.h>

#include <string.h>

#if defined(CONFIG_FLASH) && defined(CONFIG_FLASH_PAGE_LAYOUT)

#if __has_include(<zephyr/drivers/flash.h>)
#include <zephyr/drivers/flash.h>
#else
#include <drivers/flash.h>
#endif

/* Old code may be in the instruction cache: Zephyr's drivers clear the data cache only. */
static void crt_flash_zephyr_after(void)
{
#if defined(CONFIG_CPU_CORTEX_M7) || defined(CONFIG_CPU_CORTEX_M55) || defined(CONFIG_CPU_CORTEX_M85)
    __asm volatile("dsb" ::: "memory");
    *(volatile uint32_t *)0xE000EF50u = 0; /* ICIALLU */
    __asm volatile("dsb\n\tisb" ::: "memory");
#endif
}

static int32_t crt_flash_zephyr_erase(void *context, uintptr_t address, uint32_t size)
{
    const struct crt_flash_zephyr *zephyr = context;
    const int32_t error = flash_erase(zephyr->device, (off_t)(address - zephyr->base), size);
    crt_flash_zephyr_after();
    return error;
}

static int32_t crt_flash_zephyr_write(void *context, uintptr_t address, const void *data, uint32_t size)
{
    const struct crt_flash_zephyr *zephyr = context;
    const int32_t error =
        (size == 0u) ? 0 : flash_write(zephyr->device, (off_t)(address - zephyr->base), data, size);
    crt_flash_zephyr_after();
    return error;
}

/* Zephyr's drivers of flashes that fault on torn bytes return an error: that of the STM32H7 masks the bus fault. */
static int32_t crt_flash_zephyr_read(void *context, uintptr_t address, void *data, uint32_t size)
{
    const struct crt_flash_zephyr *zephyr = context;
    return flash_read(zephyr->device, (off_t)(address - zephyr->base), data, size);
}

int32_t crt_flash_of_zephyr(struct crt_flash *flash, const struct crt_flash_zephyr *zephyr)
{
    struct flash_pages_info page;
    if (!device_is_ready(zephyr->device) || (flash_get_page_info_by_offs(zephyr->device, 0, &page) != 0)) {
        return CRT_ERR_ARGUMENT;
    }
    (void)memset(flash, 0, sizeof *flash);
    flash->erase_size = (uint32_t)page.size;
    flash->write_size = (uint32_t)flash_get_write_block_size(zephyr->device);
    flash->context = (void *)(uintptr_t)zephyr;
    flash->erase = crt_flash_zephyr_erase;
    flash->write = crt_flash_zephyr_write;
    flash->read = crt_flash_zephyr_read;
    flash->base = zephyr->base;
    return ((flash->write_size == 0u) || (flash->write_size > CRT_FLASH_WRITE_MOST)) ? CRT_ERR_ARGUMENT : CRT_OK;
}

#endif
#endif

/* A translation unit has to declare something. */
typedef int crt_flash_zephyr_unit;
