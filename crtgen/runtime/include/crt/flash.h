/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A flash, as its driver offers it. What was written whole is read as memory.
 */
#ifndef CRT_FLASH_H
#define CRT_FLASH_H

#include <stdint.h>

/* The largest `write_size`. */
#define CRT_FLASH_WRITE_MOST 256u

struct crt_flash {
    uint32_t erase_size; /* bytes that are erased at once; both sizes are powers of two */
    uint32_t write_size; /* bytes that are written at once, to a multiple of it, once after each erasing */
    void *context;

    /* Erased bytes are 0xff. Both return 0, or a negative number if the flash refused; they check nothing. */
    int32_t (*erase)(void *context, uintptr_t address, uint32_t size);
    int32_t (*write)(void *context, uintptr_t address, const void *data, uint32_t size);

    /* Where its first block begins; a simulated flash may be anywhere. That of a chip needs no more than 0. */
    uintptr_t base;

    /*
     * Copy bytes that a cut of the power may have left torn, half written or half erased. A flash with error correction
     * answers a plain load of them with an NMI or a bus fault; this returns a negative number instead, else 0. NULL: any
     * byte may be loaded.
     */
    int32_t (*read)(void *context, uintptr_t address, void *data, uint32_t size);
};

/* Copy bytes by the port of a flash, or as memory: `flash` may be NULL. Returns 0, or a negative number for torn ones. */
int32_t crt_flash_read(const struct crt_flash *flash, uintptr_t address, void *data, uint32_t size);

#endif
