/*
 * A device that gets new models, on a flash whose power may be cut at any erasing or writing, which is then done in
 * part. After each start there has to be a model that runs: the one before, or the new one. Prints how many cuts.
 *
 * Every other flash has error correction: a unit that was cut is torn, and may be read by the port alone. Where the
 * sanitizer is on, its bytes are poisoned, so that any other load of them ends the program.
 */
#define _GNU_SOURCE
#include "images.h"

#include <crt/error.h>

#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address))
#endif

#define SLOT 512u
#define TRIES 2u
#define FLASH_MOST (2u * SLOT + 2u * 512u)

static uint8_t *flash; /* two slots, then the log; below 4 GiB, as the addresses of a device */
static uint32_t work[4];
static int corrects; /* the flash has error correction */
static uint8_t torn[FLASH_MOST / 4u]; /* its units that may not be loaded */
static uint64_t refused;
static uint32_t erase_size, write_size;
static uint64_t operations, cut, cuts;
static uint32_t noise;
static jmp_buf power;

static uint32_t next_random(void)
{
    noise ^= noise << 13;
    noise ^= noise >> 17;
    noise ^= noise << 5;
    return noise;
}

static void expect(int truth, const char *what)
{
    if (!truth) {
        printf("cut %llu: %s\n", (unsigned long long)cut, what);
        exit(1);
    }
}

static int is_cut(void)
{
    operations++;
    return operations == cut;
}

/* Of a unit: whole again, or torn, which one that a cut left as it was is not. */
static void set_torn(uintptr_t address, int is)
{
    torn[(address - (uintptr_t)flash) / write_size] = (uint8_t)is;
    if (is) {
        ASAN_POISON_MEMORY_REGION((void *)address, write_size);
    } else {
        ASAN_UNPOISON_MEMORY_REGION((void *)address, write_size);
    }
}

static int may_tear(void)
{
    return corrects && (next_random() & 3u) != 0;
}

static int32_t flash_read(void *context, uintptr_t address, void *data, uint32_t size)
{
    (void)context;
    for (uint32_t i = 0; i < size; i++) {
        const uintptr_t offset = address + i - (uintptr_t)flash;
        if (torn[offset / write_size] != 0) {
            refused++;
            return -5;
        }
    }
    memcpy(data, (const void *)address, size);
    return 0;
}

static int32_t flash_erase(void *context, uintptr_t address, uint32_t size)
{
    (void)context;
    expect(address % erase_size == 0 && size % erase_size == 0, "an erasing of parts of blocks");
    for (uint32_t block = 0; block < size; block += erase_size) {
        uint8_t *bytes = (uint8_t *)address + block;
        const int stops = is_cut();
        for (uint32_t unit = 0; unit < erase_size; unit += write_size) {
            set_torn((uintptr_t)bytes + unit, 0);
        }
        for (uint32_t i = 0; i < erase_size; i++) {
            const uint32_t any = next_random();
            bytes[i] = (!stops || (any & 3u) == 0) ? 0xffu : (any & 4u) != 0 ? (uint8_t)(any >> 8) : bytes[i];
        }
        for (uint32_t unit = 0; stops && unit < erase_size; unit += write_size) {
            set_torn((uintptr_t)bytes + unit, may_tear());
        }
        if (stops) {
            longjmp(power, 1);
        }
    }
    return 0;
}

static int32_t flash_write(void *context, uintptr_t address, const void *data, uint32_t size)
{
    const uint8_t *from = data;
    (void)context;
    expect(address % write_size == 0 && size % write_size == 0, "a write of parts of units");
    for (uint32_t unit = 0; unit < size; unit += write_size) {
        uint8_t *bytes = (uint8_t *)address + unit;
        const int stops = is_cut();
        expect(torn[(address + unit - (uintptr_t)flash) / write_size] == 0, "a torn unit is written");
        for (uint32_t i = 0; i < write_size; i++) {
            expect(bytes[i] == 0xffu, "a byte is written twice");
            bytes[i] = stops ? (uint8_t)(from[unit + i] | next_random()) : from[unit + i];
        }
        if (stops) {
            set_torn((uintptr_t)bytes, may_tear());
            longjmp(power, 1);
        }
    }
    return 0;
}

static void make_image_for(uint8_t *image, uint32_t slot, uint32_t version)
{
    make_image(image, (uintptr_t)flash + slot * SLOT, (uintptr_t)flash + 0x10000u, CRT_CORE_HOST, version);
}

static struct crt_slots slots;
static uint8_t builtin; /* 1: the program has version 1 itself, and gives up the first model in a slot */

static int32_t start(void)
{
    const struct crt_flash driver = {.erase_size = erase_size, .write_size = write_size, .erase = flash_erase,
                                     .write = flash_write, .read = corrects ? flash_read : NULL};
    static struct crt_flash kept;
    static struct crt_slot_place places[2];
    kept = driver;
    for (uint32_t i = 0; i < 2; i++) {
        const struct crt_slot_place place = {.origin = (uintptr_t)flash + i * SLOT, .size = SLOT,
                                             .work = (uintptr_t)flash + 0x10000u, .work_size = sizeof work};
        places[i] = place;
    }
    const struct crt_slots_config config = {.flash = &kept, .places = places, .count = 2,
                                            .log = (uintptr_t)flash + 2 * SLOT, .log_size = 2 * erase_size,
                                            .tries = TRIES, .builtin = builtin};
    return crt_slots_start(&slots, &config);
}

static void update(uint32_t version)
{
    uint8_t image[IMAGE];
    const uint32_t other = (slots.active == 0) ? 1u : 0u;
    const uint32_t step = (write_size > 64u) ? write_size : 64u;
    expect(crt_slots_check(&slots, other) == CRT_OK || crt_slots_commit(&slots, other) != CRT_OK, "what is torn is committed");
    if (crt_slots_begin(&slots, other) == CRT_ERR_STATE) {
        return; /* it is needed until the next start */
    }
    const int damaged = (next_random() % 8u) == 0;
    make_image_for(image, other, version);
    image[IMAGE - 1] ^= (uint8_t)damaged;
    for (uint32_t at = 0; at < IMAGE; at += step) {
        const uint32_t size = (IMAGE - at < step) ? IMAGE - at : step;
        expect(crt_slots_write(&slots, other, at, image + at, size) == CRT_OK, "a write fails");
    }
    expect(crt_slots_commit(&slots, other) == (damaged ? CRT_SLOT_DAMAGED : CRT_OK), "a commit says something else");
}

static uint32_t base, target, phase, seen;

/* Whether the model of this phase is confirmed. */
static int keeps(void)
{
    return phase % 2 == builtin;
}

/* One life, from a start to the next. */
static void live(void)
{
    expect(start() == CRT_OK, "no model runs");
    expect(slots.active >= 0 || builtin, "no slot is open");
    const uint32_t version = (slots.active < 0) ? 1u : slots.slot.header->version;
    expect(version == base || version == target, "a model runs that is neither the old nor the new one");
    if (version == target && target != base) {
        seen = 1;
        expect(slots.last.trial != 0 || keeps(), "a model is confirmed that was never");
        expect(slots.last.trial == 0 || slots.last.previous > 1u || crt_slots_begin(&slots, 1u - (uint32_t)slots.active) == CRT_ERR_STATE,
               "the model before one on trial can be erased");
        if (keeps()) {
            expect(crt_slots_confirm(&slots) == CRT_OK, "a confirmation fails");
            base = target;
            target++;
            phase++;
            seen = 0;
        }
        return;
    }
    if (seen != 0 && !keeps()) { /* given up, as it should be */
        target++;
        phase++;
        seen = 0;
        return;
    }
    update(target);
}

/* All phases, with a cut at one operation and another one some operations later; whether the first one came. */
static int run(uint64_t first)
{
    volatile int came = 0;
    uint8_t image[IMAGE];
    cut = UINT64_MAX;
    operations = 0;
    ASAN_UNPOISON_MEMORY_REGION(flash, FLASH_MOST);
    memset(torn, 0, sizeof torn);
    memset(flash, 0xff, 2 * SLOT + 2 * erase_size);
    base = 1;
    target = 2;
    phase = seen = 0;
    make_image_for(image, 0, 1);
    if (!builtin) {
        memcpy(flash, image, IMAGE);
    }
    expect(start() == CRT_OK && slots.active == (builtin ? -1 : 0), "the first model does not run");
    cut = operations + first;
    for (volatile int lives = 0; phase < 4; lives++) {
        expect(lives < 200, "there is no end");
        if (setjmp(power) != 0) {
            cuts++;
            cut = came ? UINT64_MAX : operations + 1 + next_random() % 24u;
            came = 1;
            continue;
        }
        live();
    }
    return came;
}

int main(int argc, char **argv)
{
    const uint32_t seeds = (uint32_t)atoi(argv[argc - 1]);
    const uint32_t shapes[][2] = {{128, 8}, {128, 16}, {64, 4}, {512, 32}, {512, 256}};
    flash = mmap(NULL, 0x20000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    expect(flash != MAP_FAILED, "no memory below 4 GiB");
    for (uint32_t seed = 1; seed <= seeds; seed++) {
        erase_size = shapes[seed % 5][0];
        write_size = shapes[seed % 5][1];
        noise = seed * 2654435761u;
        corrects = write_size >= 8u && seed % 2u != 0;
        builtin = (uint8_t)(seed / 2u % 2u);
        for (uint64_t first = 1; run(first) != 0; first++) {
        }
    }
    printf("%llu %llu\n", (unsigned long long)cuts, (unsigned long long)refused);
    return 0;
}
