/* Images of models that compute nothing, for slots at an address. */
#ifndef IMAGES_H
#define IMAGES_H

#include <crt/crc32.h>
#include <crt/slots.h>

#include <string.h>

#define IMAGE 208u

static const struct crt_model model = {.name = "model"};

/* The image of a version, for a slot at `origin`, of code for a core with these bits. */
static inline void make_image(uint8_t *image, uintptr_t origin, uintptr_t work, uint32_t core, uint32_t version)
{
    struct crt_slot_header header = {.magic = CRT_SLOT_MAGIC, .format = CRT_SLOT_FORMAT, .abi = CRT_SLOT_ABI};
    const struct crt_slot_entry entry = {.model = &model};
    header.size = IMAGE;
    header.origin = (uint32_t)origin;
    header.entry = header.origin + (uint32_t)sizeof header;
    header.work = (uint32_t)work;
    header.work_size = 16;
    header.core = core;
    header.version = version;
    memset(image, (int)version, IMAGE);
    memcpy(image, &header, sizeof header);
    memcpy(image + sizeof header, &entry, sizeof entry);
    header.crc = crt_crc32(0, image + 16, IMAGE - 16);
    memcpy(image + 12, &header.crc, 4);
}

#endif
