/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__ZEPHYR__)
#include <crt/flash_ports.h>

#include <crt/error.h>

#if defined(CONFIG_FLASH) && defined(CONFIG_FLASH_PAGE_LAYOUT)

#if __has_include(<zephyr/drivers/flash.h>)
#include <zephyr/drivers/flash.h>
#else
#include <drivers/flash.h>
#endif

static int32_t crt_flash_zephyr_erase(void *context, uintptr_t address, uint32_t size)
{
    const struct crt_flash_zephyr *zephyr = context;
    return flash_erase(zephyr->device, (off_t)(address - zephyr->base), size);
}

static int32_t crt_flash_zephyr_write(void *context, uintptr_t address, const void *data, uint32_t size)
{
    const struct crt_flash_zephyr *zephyr = context;
    return (size == 0u) ? 0 : flash_write(zephyr->device, (off_t)(address - zephyr->base), data, size);
}

int32_t crt_flash_of_zephyr(struct crt_flash *flash, const struct crt_flash_zephyr *zephyr)
{
    struct flash_pages_info page;
    if (!device_is_ready(zephyr->device) || (flash_get_page_info_by_offs(zephyr->device, 0, &page) != 0)) {
        return CRT_ERR_ARGUMENT;
    }
    flash->erase_size = (uint32_t)page.size;
    flash->write_size = (uint32_t)flash_get_write_block_size(zephyr->device);
    flash->context = (void *)(uintptr_t)zephyr;
    flash->erase = crt_flash_zephyr_erase;
    flash->write = crt_flash_zephyr_write;
    flash->base = zephyr->base;
    return ((flash->write_size == 0u) || (flash->write_size > CRT_FLASH_WRITE_MOST)) ? CRT_ERR_ARGUMENT : CRT_OK;
}

#endif
#endif

/* A translation unit has to declare something. */
typedef int crt_flash_zephyr_unit;
