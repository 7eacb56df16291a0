/* A flash driver over a RAM, for QEMU: an erase sets all bits, a write clears some. */
#include <string.h>

#include <zephyr/device.h>
#include <zephyr/devicetree.h>
#include <zephyr/drivers/flash.h>

#define NODE DT_NODELABEL(ram_flash)
#define SIZE DT_REG_SIZE(NODE)
#define BLOCK DT_PROP(DT_NODELABEL(flash1), erase_block_size)
#define UNIT DT_PROP(DT_NODELABEL(flash1), write_block_size)

static int is_inside(off_t offset, size_t size)
{
    return (offset >= 0) && ((size_t)offset <= SIZE) && (size <= SIZE - (size_t)offset);
}

/* The sum is of integers, since the memory may begin at address 0. */
static uint8_t *at(off_t offset)
{
    return (uint8_t *)((uintptr_t)DT_REG_ADDR(NODE) + (uintptr_t)offset);
}

static int ram_flash_read(const struct device *device, off_t offset, void *data, size_t size)
{
    ARG_UNUSED(device);
    if (!is_inside(offset, size)) {
        return -EINVAL;
    }
    (void)memcpy(data, at(offset), size);
    return 0;
}

static int ram_flash_write(const struct device *device, off_t offset, const void *data, size_t size)
{
    ARG_UNUSED(device);
    if (!is_inside(offset, size) || (offset % UNIT != 0) || (size % UNIT != 0)) {
        return -EINVAL;
    }
    for (size_t i = 0; i < size; i++) {
        at(offset)[i] &= ((const uint8_t *)data)[i];
    }
    return 0;
}

static int ram_flash_erase(const struct device *device, off_t offset, size_t size)
{
    ARG_UNUSED(device);
    if (!is_inside(offset, size) || (offset % BLOCK != 0) || (size % BLOCK != 0)) {
        return -EINVAL;
    }
    (void)memset(at(offset), 0xff, size);
    return 0;
}

static const struct flash_parameters *ram_flash_parameters(const struct device *device)
{
    static const struct flash_parameters parameters = {.write_block_size = UNIT, .erase_value = 0xff};
    ARG_UNUSED(device);
    return &parameters;
}

static void ram_flash_pages(const struct device *device, const struct flash_pages_layout **layout, size_t *size)
{
    static const struct flash_pages_layout pages = {.pages_count = SIZE / BLOCK, .pages_size = BLOCK};
    ARG_UNUSED(device);
    *layout = &pages;
    *size = 1;
}

static int ram_flash_start(const struct device *device)
{
    ARG_UNUSED(device);
    return 0;
}

static const struct flash_driver_api api = {
    .read = ram_flash_read,
    .write = ram_flash_write,
    .erase = ram_flash_erase,
    .get_parameters = ram_flash_parameters,
    .page_layout = ram_flash_pages,
};

DEVICE_DT_DEFINE(NODE, ram_flash_start, NULL, NULL, NULL, POST_KERNEL, CONFIG_KERNEL_INIT_PRIORITY_DEVICE, &api);
