/* SPDX-License-Identifier: Apache-2.0 */
#include <crt/error.h>
#include <crt/pool.h>

#include <string.h>

void crt_pool_init(struct crt_pool *pool, void *memory, uint32_t size)
{
    pool->memory = memory;
    pool->size = memory == NULL ? 0 : size;
    pool->count = 0;
}

/* Return the first offset from `offset` on whose address is a multiple of `align`. */
static uint64_t crt_pool_aligned(const struct crt_pool *pool, uint64_t offset, uint32_t align)
{
    const uintptr_t address = (uintptr_t)pool->memory + (uintptr_t)offset;
    return offset + (-address & (uintptr_t)(align - 1u));
}

void *crt_pool_alloc(struct crt_pool *pool, uint32_t size, uint32_t align)
{
    if ((align & (align - 1u)) != 0 || pool->count == CRT_POOL_BLOCKS) {
        return NULL;
    }
    align = (align < CRT_POOL_ALIGN) ? CRT_POOL_ALIGN : align;
    size = size == 0 ? 1 : size;
    uint64_t start = 0;
    for (uint32_t i = 0; i <= pool->count; i++) {
        struct crt_block *block = &pool->blocks[i];
        const uint64_t end = (i < pool->count) ? block->offset : pool->size;
        start = crt_pool_aligned(pool, start, align);
        if ((start + size) <= end) {
            (void)memmove(block + 1, block, (pool->count - i) * sizeof *block);
            block->offset = (uint32_t)start;
            block->size = size;
            pool->count++;
            return pool->memory + start;
        }
        start = (i < pool->count) ? ((uint64_t)block->offset + block->size) : start;
    }
    return NULL;
}

int crt_pool_free(struct crt_pool *pool, uintptr_t address)
{
    for (uint32_t i = 0; i < pool->count; i++) {
        struct crt_block *block = &pool->blocks[i];
        if ((uintptr_t)pool->memory + block->offset == address) {
            pool->count--;
            (void)memmove(block, block + 1, (pool->count - i) * sizeof *block);
            return CRT_OK;
        }
    }
    return CRT_ERR_ADDRESS;
}

int crt_pool_owns(const struct crt_pool *pool, uintptr_t address, uint64_t size)
{
    for (uint32_t i = 0; i < pool->count; i++) {
        const struct crt_block *block = &pool->blocks[i];
        const uintptr_t offset = address - ((uintptr_t)pool->memory + block->offset);
        if ((offset <= block->size) && (size <= (block->size - offset))) {
            return 1;
        }
    }
    return 0;
}

uint32_t crt_pool_available(const struct crt_pool *pool)
{
    uint32_t available = pool->size;
    for (uint32_t i = 0; i < pool->count; i++) {
        available -= pool->blocks[i].size;
    }
    return available;
}
