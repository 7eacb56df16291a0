/*
 * The flash of a file: `flash_file FILE` prints the version of the model before, and after it was exchanged. With one
 * more argument, what becomes of images that are encrypted.
 */
#define _GNU_SOURCE
#include "flash_port.h"

#include <stdio.h>
#include <sys/mman.h>

static uint8_t stored[IMAGE];

/* A cipher of a test: each byte with one of a stream that the key begins. */
static void cipher(uint8_t *bytes, uint32_t offset, uint32_t size, uint32_t key)
{
    for (uint32_t i = 0; i < size; i++) {
        const uint32_t mixed = (offset + i + key) * 2654435761u;
        bytes[i] ^= (uint8_t)(mixed >> 24);
    }
}

static int32_t decrypt(void *context, uint32_t offset, void *data, uint32_t size)
{
    const uint32_t key = *(const uint32_t *)context;
    memcpy(data, stored + offset, size);
    cipher(data, offset, size, key);
    return (key == 0u) ? -99 : 0;
}

/* What loading an encrypted image into the other slot says, with the right key, a wrong one, and none. */
static void load(const struct crt_flash *flash, uintptr_t base, uintptr_t work)
{
    static struct crt_slots slots;
    const struct crt_slot_place places[2] = {
        {.origin = base, .size = SLOT, .work = work, .work_size = 16, .in_ram = 1},
        {.origin = base + SLOT, .size = SLOT, .work = work, .work_size = 16, .in_ram = 1},
    };
    const struct crt_slots_config config = {.flash = flash, .places = places, .count = 2};
    (void)crt_slots_start(&slots, &config);
    const uint32_t other = (slots.active == 0) ? 1u : 0u;
    make_image(stored, places[other].origin, work, CRT_CORE_HOST, 77);
    cipher(stored, 0, IMAGE, 5);
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t keys[3] = {0, 4, 5};
        uint32_t used = keys[i];
        const struct crt_slots_source source = {decrypt, &used, IMAGE};
        const int32_t said = crt_slots_load(&slots, other, &source);
        printf("%u:%d:%u ", (unsigned)used, (int)said, (said == 0) ? (unsigned)slots.slot.header->version : 0u);
    }
    puts("");
}

int main(int argc, char **argv)
{
    struct crt_flash flash;
    struct crt_flash_file file = {(uint8_t *)0x50000000u, 5 * SLOT, SLOT, 8};
    if (argc < 2 || crt_flash_of_file(&flash, &file, argv[1]) != CRT_OK) {
        puts("no flash");
        return 1;
    }
    const uintptr_t base = (uintptr_t)file.bytes;
    void *work = mmap((void *)0x51000000u, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (argc == 3) {
        load(&flash, base, (uintptr_t)work);
        return 0;
    }
    const uint8_t eight[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    printf("%d\n", (int)live(&flash, base, (uintptr_t)work, CRT_CORE_HOST));
    const uintptr_t end = base + 4 * SLOT;
    printf("%d", (int)flash.erase(flash.context, end, SLOT));
    printf(" %d", (int)flash.write(flash.context, end, eight, 8));
    printf(" %d", (int)flash.write(flash.context, end, eight, 8));
    printf(" %d", (int)flash.write(flash.context, end + 4, eight, 8));
    printf(" %d\n", (int)flash.erase(flash.context, end + 8, SLOT));
    crt_flash_file_close(&file);
    return 0;
}
