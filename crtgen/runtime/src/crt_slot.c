/* SPDX-License-Identifier: Apache-2.0 */
#include <crt/slot.h>

#include <crt/crc32.h>
#include <crt/error.h>
#ifdef CRT_NPU
#include <crt/npu.h>
#endif

#include <stddef.h>
#include <string.h>

/* Bytes that the CRC does not cover: those before it, and itself. */
#define CRT_SLOT_BEFORE ((uint32_t)offsetof(struct crt_slot_header, crc) + 4u)

/* Bytes that are read at once. */
#define CRT_SLOT_BLOCK 128u

/* The linker scripts of images align code and arenas to these. */
#define CRT_SLOT_ALIGN 8u
#define CRT_SLOT_ALIGN_WORK 16u

/* Features of this core, as the compiler defines them. */
static uint32_t crt_slot_core(void)
{
    uint32_t core = 0;
#if !defined(__ARM_ARCH_PROFILE) || (__ARM_ARCH_PROFILE != 'M')
    core |= CRT_CORE_HOST;
#else
#if defined(__ARM_ARCH_ISA_THUMB) && (__ARM_ARCH_ISA_THUMB >= 2)
    core |= CRT_CORE_MAIN;
#endif
#ifdef __ARM_FEATURE_DSP
    core |= CRT_CORE_DSP;
#endif
#if defined(__ARM_FP) && ((__ARM_FP & 4) != 0)
    core |= CRT_CORE_FLOAT;
#endif
#if defined(__ARM_FP) && ((__ARM_FP & 8) != 0)
    core |= CRT_CORE_DOUBLE;
#endif
#ifdef __ARM_FEATURE_MVE
    core |= CRT_CORE_HELIUM | CRT_CORE_V81;
#endif
#if __ARM_ARCH >= 8
    core |= CRT_CORE_V8;
#endif
#endif
#ifdef CRT_NPU
    core |= CRT_CORE_NPU;
#endif
    return core;
}

/* Return whether an area is within another one. */
static int crt_slot_within(uintptr_t at, uint32_t bytes, uintptr_t origin, uint32_t size)
{
    const uintptr_t offset = at - origin;
    return (at >= origin) && (offset <= size) && (bytes <= (size - offset));
}

int32_t crt_flash_read(const struct crt_flash *flash, uintptr_t address, void *data, uint32_t size)
{
    if ((flash != NULL) && (flash->read != NULL)) {
        return flash->read(flash->context, address, data, size);
    }
    (void)memcpy(data, (const void *)address, size);
    return CRT_OK;
}

/*
 * Returns 0 if the header's CRC is that of the bytes. They are read in blocks through the flash's port, because any
 * of them may be torn. Afterwards they may be loaded as memory.
 */
static int32_t crt_slot_read(const struct crt_slot_place *place, const struct crt_slot_header *header)
{
    uint8_t block[CRT_SLOT_BLOCK];
    uint32_t crc = 0;
    uint32_t size = 0;
    for (uint32_t at = CRT_SLOT_BEFORE; at < header->size; at += size) {
        size = ((header->size - at) < CRT_SLOT_BLOCK) ? (header->size - at) : CRT_SLOT_BLOCK;
        if (crt_flash_read(place->flash, place->origin + at, block, size) != 0) {
            return CRT_SLOT_DAMAGED;
        }
        crc = crt_crc32(crc, block, size);
    }
    return (crc == header->crc) ? 0 : (int32_t)CRT_SLOT_DAMAGED;
}

/* Returns 0 if the signature behind an image, which was already read, belongs to a key that the firmware trusts. */
static int32_t crt_slot_signed(const struct crt_slot_place *place, uint32_t size)
{
    uint8_t signature[CRT_SLOT_SIGNATURE];
    const int32_t error = crt_flash_read(place->flash, place->origin + size, signature, CRT_SLOT_SIGNATURE);
    const int trusted = (error == 0) && (place->verify((const void *)place->origin, size, signature) == 0);
    return trusted ? 0 : (int32_t)CRT_SLOT_UNSIGNED;
}

/* Returns 0 if this core, at this place, can run the image. */
static int32_t crt_slot_fits(const struct crt_slot_place *place, const struct crt_slot_header *header)
{
    if ((header->core & ~crt_slot_core()) != 0) {
        return CRT_SLOT_CORE;
    }
    if ((header->origin != place->origin) || ((header->origin % CRT_SLOT_ALIGN) != 0u) ||
        ((header->work % CRT_SLOT_ALIGN_WORK) != 0u) || ((header->entry % CRT_SLOT_ALIGN) != 0u) ||
        !crt_slot_within(header->work, header->work_size, place->work, place->work_size) ||
        !crt_slot_within(header->entry, (uint32_t)sizeof(struct crt_slot_entry), place->origin, header->size)) {
        return CRT_SLOT_ELSEWHERE;
    }
    if (header->stack > place->stack) {
        return CRT_SLOT_STACK;
    }
    if (header->version < place->least_version) {
        return CRT_SLOT_OLD;
    }
    if ((place->interface != NULL) && (memcmp(header->interface, place->interface, CRT_SLOT_INTERFACE) != 0)) {
        return CRT_SLOT_OTHER;
    }
    return CRT_OK;
}

int32_t crt_slot_check(const struct crt_slot_place *place)
{
    struct crt_slot_header header;
    const uint32_t least = (uint32_t)sizeof header;
    uint32_t behind = 0;
    if (place->verify != NULL) {
        behind = CRT_SLOT_SIGNATURE;
    }
    if ((place->size < least) || (behind > (place->size - least))) {
        return CRT_SLOT_SIZE;
    }
    if (crt_flash_read(place->flash, place->origin, &header, (uint32_t)sizeof header) != 0) {
        return CRT_SLOT_DAMAGED;
    }
    if (header.magic != CRT_SLOT_MAGIC) {
        return CRT_SLOT_EMPTY;
    }
    if ((header.format != CRT_SLOT_FORMAT) || (header.abi != CRT_SLOT_ABI)) {
        return CRT_SLOT_UNKNOWN;
    }
    if ((header.size < sizeof header) || (header.size > place->size) || (behind > (place->size - header.size))) {
        return CRT_SLOT_SIZE;
    }
    int32_t error = crt_slot_read(place, &header);
    if ((error == CRT_OK) && (place->verify != NULL)) {
        error = crt_slot_signed(place, header.size);
    }
    return (error == CRT_OK) ? crt_slot_fits(place, &header) : error;
}

int32_t crt_slot_open(const struct crt_slot_place *place, struct crt_slot *slot)
{
    const int32_t error = crt_slot_check(place);
    slot->header = NULL;
    slot->entry = NULL;
    if (error == CRT_OK) {
        slot->header = (const struct crt_slot_header *)place->origin;
        slot->entry = (const struct crt_slot_entry *)(uintptr_t)slot->header->entry;
        (void)memset((void *)(uintptr_t)slot->header->work, 0, slot->header->work_size);
        if (slot->entry->model->reset != NULL) {
            slot->entry->model->reset();
        }
#ifdef CRT_NPU
        if ((slot->header->core & CRT_CORE_NPU) != 0u) {
            *slot->entry->npu = crt_npu_run;
        }
#endif
    }
    return error;
}

const char *crt_slot_reason(int32_t error)
{
    switch (error) {
    case CRT_SLOT_EMPTY:
        return "there is no image of a model";
    case CRT_SLOT_UNKNOWN:
        return "it is an image for another release of the runtime";
    case CRT_SLOT_SIZE:
        return "it does not fit into the slot, or is cut short";
    case CRT_SLOT_DAMAGED:
        return "its bytes are damaged";
    case CRT_SLOT_UNSIGNED:
        return "it has no signature of a key that this firmware trusts";
    case CRT_SLOT_CORE:
        return "it needs instructions that this core does not have, or an NPU";
    case CRT_SLOT_ELSEWHERE:
        return "it was linked for another place or other working memory";
    case CRT_SLOT_STACK:
        return "a run takes more of the stack than it is given";
    case CRT_SLOT_OLD:
        return "its version is older than this firmware allows";
    case CRT_SLOT_OTHER:
        return "its inputs or outputs are not those that this firmware was made for";
    default:
        return "it cannot be used";
    }
}
