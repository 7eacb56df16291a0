/* An image for a slot with each byte changed once, and cut off at each place: refused, and never read behind its slot. */
#define _GNU_SOURCE
#include <crt/crc32.h>
#include <crt/slot.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096u
#define IMAGE 1000u

int main(void)
{
    /* What lies behind the slot cannot be read. */
    uint8_t *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    uint8_t *image = memory + PAGE - IMAGE;
    static const struct crt_model model = {.name = "model"};
    const struct crt_slot_entry entry = {.model = &model};
    struct crt_slot_header header = {.magic = CRT_SLOT_MAGIC, .format = CRT_SLOT_FORMAT, .abi = CRT_SLOT_ABI};
    const struct crt_slot_place place = {.origin = (uintptr_t)image, .size = IMAGE, .work = 0x1000, .work_size = 64,
                                         .stack = 100, .least_version = 3};
    if (memory == MAP_FAILED || mprotect(memory + PAGE, PAGE, PROT_NONE) != 0) {
        return 1;
    }
    header.size = IMAGE;
    header.origin = (uint32_t)(uintptr_t)image;
    header.entry = header.origin + sizeof header;
    header.work = 0x1000;
    header.work_size = 64;
    header.stack = 100;
    header.core = CRT_CORE_HOST;
    header.version = 3;
    memset(image, 0x55, IMAGE);
    memcpy(image, &header, sizeof header);
    memcpy(image + sizeof header, &entry, sizeof entry);
    header.crc = crt_crc32(0, image + 16, IMAGE - 16);
    memcpy(image + 12, &header.crc, 4);
    if (crt_slot_check(&place) != 0) {
        printf("the image is refused: %s\n", crt_slot_reason(crt_slot_check(&place)));
        return 1;
    }
    unsigned refused = 0;
    for (uint32_t at = 0; at < IMAGE; at++) {
        for (uint32_t change = 1; change < 256; change += (at < sizeof header) ? 1 : 85) {
            image[at] ^= (uint8_t)change;
            refused += crt_slot_check(&place) != 0;
            image[at] ^= (uint8_t)change;
        }
    }
    /* Sizes that lie, with a CRC that is right as far as there are bytes. */
    for (uint32_t bits = 0; bits < 32; bits++) {
        const uint32_t lie = IMAGE ^ (1u << bits);
        memcpy(image + 8, &lie, 4);
        refused += crt_slot_check(&place) != 0;
    }
    /* Addresses that a core without unaligned loads would fault on, with a CRC that is right. */
    for (uint32_t off = 1; off < 8; off++) {
        const struct crt_slot_header whole = header;
        struct crt_slot_header *const there = (struct crt_slot_header *)image;
        for (uint32_t field = 0; field < 2; field++) {
            *there = whole;
            there->work_size = 32;
            there->entry += (field == 0) ? off : 0;
            there->work += (field == 1) ? off : 0;
            there->crc = crt_crc32(0, image + 16, IMAGE - 16);
            refused += crt_slot_check(&place) == CRT_SLOT_ELSEWHERE;
        }
    }
    printf("%u\n", refused);
    return 0;
}
