/* SPDX-License-Identifier: Apache-2.0 */
/* The interface of a flash driver. Fully written bytes can be read as memory. */
#ifndef CRT_FLASH_H
#define CRT_FLASH_H

#include <stdint.h>

/* The largest `write_size` that is supported. */
#define CRT_FLASH_WRITE_MOST 256u

struct crt_flash {
    uint32_t erase_size; /* erase block in bytes; both sizes are powers of two */
    uint32_t write_size; /* write unit in bytes: each is written once after an erase, at a multiple of this size */
    void *context;

    /*
     * Erased bytes are 0xff. Both functions return 0, or a negative number if the flash reported an error; they check
     * nothing.
     */
    int32_t (*erase)(void *context, uintptr_t address, uint32_t size);
    int32_t (*write)(void *context, uintptr_t address, const void *data, uint32_t size);

    /* Erase blocks are counted from this address: a simulated flash may begin anywhere, for a chip 0 will do. */
    uintptr_t base;

    /*
     * Copy bytes that a power cut may have left torn, half written or half erased. A flash with error correction
     * answers a plain load of them with an NMI or a bus fault; this function returns a negative number instead,
     * otherwise 0. NULL: any byte may be loaded.
     */
    int32_t (*read)(void *context, uintptr_t address, void *data, uint32_t size);
};

/*
 * Copy bytes through the port of a flash, or as memory if `flash` is NULL. Returns 0, or a negative number for torn
 * bytes.
 */
int32_t crt_flash_read(const struct crt_flash *flash, uintptr_t address, void *data, uint32_t size);

#endif
