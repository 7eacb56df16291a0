/* Two slots and a log on a flash of a port: each start writes the next version into the other slot and confirms it. */
#ifndef FLASH_PORT_H
#define FLASH_PORT_H

#include "images.h"

#include <crt/error.h>
#include <crt/flash_ports.h>

#define SLOT 4096u

/* Slots at `base`, whose models work at `work`. Returns the version that runs before, and after; < 0: an error. */
static int32_t live(const struct crt_flash *flash, uintptr_t base, uintptr_t work, uint32_t core)
{
    static struct crt_slots slots;
    uint8_t image[IMAGE];
    const struct crt_slot_place places[2] = {
        {.origin = base, .size = SLOT, .work = work, .work_size = 16},
        {.origin = base + SLOT, .size = SLOT, .work = work, .work_size = 16},
    };
    const struct crt_slots_config config = {
        .flash = flash, .places = places, .count = 2, .log = base + 2 * SLOT, .log_size = 2 * SLOT, .tries = 2};
    (void)crt_slots_start(&slots, &config);
    const uint32_t before = (slots.active < 0) ? 0u : slots.slot.header->version;
    const uint32_t other = (slots.active == 0) ? 1u : 0u;
    make_image(image, places[other].origin, work, core, before + 1u);
    int32_t error = crt_slots_begin(&slots, other);
    error = (error == CRT_OK) ? crt_slots_write(&slots, other, 0, image, IMAGE) : error;
    error = (error == CRT_OK) ? crt_slots_commit(&slots, other) : error;
    error = (error == CRT_OK) ? crt_slots_start(&slots, &config) : error;
    error = (error == CRT_OK) ? crt_slots_confirm(&slots) : error;
    return (error == CRT_OK) ? (int32_t)(before * 100u + slots.slot.header->version) : error;
}

#endif
