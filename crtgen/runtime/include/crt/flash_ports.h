/* SPDX-License-Identifier: Apache-2.0 */
/* Flash drivers on top of other systems' drivers. Those of chips on bare metal are in platform/slots.c of a project. */
#ifndef CRT_FLASH_PORTS_H
#define CRT_FLASH_PORTS_H

#include <crt/flash.h>

#if defined(__ZEPHYR__)
struct device;

/* A flash of Zephyr. It can be read as memory from `base` on, which is offset 0 of its driver. */
struct crt_flash_zephyr {
    const struct device *device;
    uintptr_t base;
};

/*
 * Make `flash` erase and write it; `zephyr` must exist as long as it is used. Needs CONFIG_FLASH and
 * CONFIG_FLASH_PAGE_LAYOUT. Returns CRT_ERR_ARGUMENT if the device is not ready, or if its writes are larger than
 * CRT_FLASH_WRITE_MOST.
 */
int32_t crt_flash_of_zephyr(struct crt_flash *flash, const struct crt_flash_zephyr *zephyr);
#endif

#if defined(__unix__) || defined(__APPLE__)
/* A file that plays a flash, on a computer. As in a NOR flash, an erase sets all bits, and a unit is written once. */
struct crt_flash_file {
    uint8_t *bytes; /* address of the mapping */
    uint32_t size;
    uint32_t erase_size;
    uint32_t write_size;
};

/*
 * Map a file of `file->size` bytes and make `flash` erase and write it; `file` must exist as long as it is used. A
 * missing file is created, all 0xff. If `file->bytes` is not NULL it must be mapped there, because images are linked
 * for an address. Returns CRT_ERR_ARGUMENT if that fails; errno has the reason.
 */
int32_t crt_flash_of_file(struct crt_flash *flash, struct crt_flash_file *file, const char *path);
void crt_flash_file_close(struct crt_flash_file *file);
#endif

#endif
