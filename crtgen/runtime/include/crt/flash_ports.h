/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flashes that others have drivers for. The drivers of chips on bare metal are in platform/slots.c of a project.
 */
#ifndef CRT_FLASH_PORTS_H
#define CRT_FLASH_PORTS_H

#include <crt/flash.h>

#if defined(__ZEPHYR__)
struct device;

/* A flash of Zephyr, which is read as memory from `base` on: offset 0 of its driver lies there. */
struct crt_flash_zephyr {
    const struct device *device;
    uintptr_t base;
};

/*
 * Make `flash` erase and write it: `zephyr` has to stay. Needs CONFIG_FLASH and CONFIG_FLASH_PAGE_LAYOUT. Returns
 * CRT_ERR_ARGUMENT for a device that is not ready, or whose writes are larger than CRT_FLASH_WRITE_MOST.
 */
int32_t crt_flash_of_zephyr(struct crt_flash *flash, const struct crt_flash_zephyr *zephyr);
#endif

#if defined(__unix__) || defined(__APPLE__)
/* A file that stands for a flash, on a computer. As in a NOR flash, erasing makes all bits 1, and a unit is written once. */
struct crt_flash_file {
    uint8_t *bytes; /* where it is mapped */
    uint32_t size;
    uint32_t erase_size;
    uint32_t write_size;
};

/*
 * Map a file of `file->size` bytes, which is made, all 0xff, where there is none, and make `flash` erase and write
 * it: `file` has to stay. Where `file->bytes` is not NULL it has to be mapped there: images are linked for an
 * address. Returns CRT_ERR_ARGUMENT where that cannot be done; errno says why.
 */
int32_t crt_flash_of_file(struct crt_flash *flash, struct crt_flash_file *file, const char *path);
void crt_flash_file_close(struct crt_flash_file *file);
#endif

#endif
