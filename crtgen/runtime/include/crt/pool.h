/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded pool of memory: first fit. Its bookkeeping is outside of the memory that it allocates. */
#ifndef CRT_POOL_H
#define CRT_POOL_H

#include <stdint.h>

/* The most blocks that may be allocated at a time. */
#ifndef CRT_POOL_BLOCKS
#define CRT_POOL_BLOCKS 32
#endif

/* The least alignment of a block. */
#define CRT_POOL_ALIGN 16u

struct crt_block {
    uint32_t offset;
    uint32_t size;
};

/* The blocks are sorted by offset. */
struct crt_pool {
    uint8_t *memory;
    uint32_t size;
    uint32_t count;
    struct crt_block blocks[CRT_POOL_BLOCKS];
};

void crt_pool_init(struct crt_pool *pool, void *memory, uint32_t size);

/* Allocate `size` bytes at a multiple of `align` (a power of two), or NULL. A block of 0 bytes has an address, too. */
void *crt_pool_alloc(struct crt_pool *pool, uint32_t size, uint32_t align);

/* Free a block. Returns 0, or CRT_ERR_ADDRESS if no block starts there. */
int crt_pool_free(struct crt_pool *pool, uintptr_t address);

/* Return whether these bytes are within one allocated block. */
int crt_pool_owns(const struct crt_pool *pool, uintptr_t address, uint64_t size);

/* Return the number of free bytes. */
uint32_t crt_pool_available(const struct crt_pool *pool);

#endif
