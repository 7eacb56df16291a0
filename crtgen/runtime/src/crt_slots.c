/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of decisions, and the slots that it is about.
 *
 * Problem: after a power cut at any write or erase, the next start must run the old model or the new one, and it must
 * not forget how often a model on trial was started.
 *
 * Idea: the log is a ring of records in two or more erase blocks. A record holds a whole decision (which slot runs,
 * which one ran before, how many starts are left), a sequence number and a CRC. Nothing is ever changed in place: a new
 * decision is a new record, and the newest record with a right CRC counts. A decision is taken at the moment when the
 * last byte of its record is in the flash.
 *
 * Invariant: at any time the log has a complete newest record, from the first decision on. A record is torn only while
 * it is written, and then the one before it is still there: a block is erased only if the newest record is in another
 * block, which is why there must be two.
 *
 *     block 0: 5 6 7 8     block 1: . . . .      9 goes to block 1, which is erased first
 *     block 0: 5 6 7 8     block 1: 9 ? . .      power cut while 10 was written: 9 counts, ? is skipped
 *     block 0: . . . .     block 1: 9 10 11 12   13 goes to block 0; only now 5 to 8 are erased
 *
 * Models: an image is written into a slot that no decision refers to, and checked before it is committed. A commit
 * makes it active with `tries` starts; each start writes a record with one less, before the model runs, so a model that
 * crashes uses them up. Without a confirmation the previous slot is active again. Both slots are kept until then
 * (crt_slots_needs).
 *
 * Reading: a torn word may raise a fault on flash with error correction, so bytes that a cut may have torn are read
 * through the flash's port. A record that was written is read back: an entry that looked erased may not take it.
 */
#include <crt/slots.h>

#include <crt/crc32.h>
#include <crt/error.h>

#include <stddef.h>
#include <string.h>

#define CRT_SLOTS_SIGNED ((uint32_t)offsetof(struct crt_slots_record, crc))

/* Distance of two records of the log in bytes. */
static uint32_t crt_slots_cell(const struct crt_slots *slots)
{
    const uint32_t unit = slots->config.flash->write_size;
    return (unit > sizeof(struct crt_slots_record)) ? unit : (uint32_t)sizeof(struct crt_slots_record);
}

/* The address after a record; the log wraps. */
static uintptr_t crt_slots_behind(const struct crt_slots *slots, uintptr_t at)
{
    const uintptr_t next = at + crt_slots_cell(slots);
    return (next == (slots->config.log + slots->config.log_size)) ? slots->config.log : next;
}

static uintptr_t crt_slots_block(const struct crt_slots *slots, uintptr_t at)
{
    return at - ((at - slots->config.log) % slots->config.flash->erase_size);
}

/* Return whether an entry of the log, read through the flash's port, is erased. A torn one is not. */
static int crt_slots_is_erased(const struct crt_flash *flash, uintptr_t at, uint32_t size)
{
    uint8_t bytes[CRT_FLASH_WRITE_MOST];
    uint32_t i = 0;
    if (crt_flash_read(flash, at, bytes, size) != 0) {
        return 0;
    }
    while ((i < size) && (bytes[i] == 0xffu)) {
        i++;
    }
    return i == size;
}

/* Return whether an entry of the log has these bytes. */
static int crt_slots_took(const struct crt_flash *flash, uintptr_t at, const uint8_t *bytes, uint32_t size)
{
    uint8_t there[CRT_FLASH_WRITE_MOST];
    return (crt_flash_read(flash, at, there, size) == 0) && (memcmp(there, bytes, size) == 0);
}

/* A place whose bytes are read through the flash's port, if it is in flash. */
static struct crt_slot_place crt_slots_place(const struct crt_slots *slots, uint32_t slot)
{
    struct crt_slot_place place = slots->config.places[slot];
    place.flash = (place.in_ram != 0u) ? NULL : slots->config.flash;
    return place;
}

int32_t crt_slots_check(const struct crt_slots *slots, uint32_t slot)
{
    const struct crt_slot_place place = crt_slots_place(slots, slot);
    return crt_slot_check(&place);
}

/* The number of the built-in model, if there is one: it follows those of the slots. */
static int crt_slots_is_own(const struct crt_slots *slots, uint32_t number)
{
    return (slots->config.builtin != 0u) && (number == slots->config.count);
}

static int crt_slots_is_model(const struct crt_slots *slots, uint32_t number)
{
    return (number < slots->config.count) || (crt_slots_is_own(slots, number) != 0);
}

/* Find the newest complete record; a torn one does not count. */
static int crt_slots_read(struct crt_slots *slots)
{
    const uint32_t cell = crt_slots_cell(slots);
    int found = 0;
    slots->next = slots->config.log;
    for (uint32_t offset = 0; offset < slots->config.log_size; offset += cell) {
        struct crt_slots_record record;
        const int32_t error =
            crt_flash_read(slots->config.flash, slots->config.log + offset, &record, (uint32_t)sizeof record);
        const int whole = (error == 0) && (record.crc == crt_crc32(0, &record, CRT_SLOTS_SIGNED)) &&
                          (crt_slots_is_model(slots, record.active) != 0) && (crt_slots_is_model(slots, record.previous) != 0);
        /* The difference is signed, so the order survives a wrap of the sequence. */
        if (whole && (!found || ((int32_t)(record.sequence - slots->last.sequence) > 0))) {
            slots->last = record;
            slots->newest = slots->config.log + offset;
            slots->next = crt_slots_behind(slots, slots->newest);
            found = 1;
        }
    }
    return found;
}

/*
 * Append a record. The first record of an erase block is written after an erase of the block, while the newest record
 * is in another block. An entry that is not erased, or did not take the record, is skipped.
 */
static int32_t crt_slots_decide(struct crt_slots *slots, uint32_t active, uint32_t previous, uint8_t tries,
                                uint8_t trial)
{
    const struct crt_flash *flash = slots->config.flash;
    const uint32_t cell = crt_slots_cell(slots);
    struct crt_slots_record record = {.sequence = slots->last.sequence + 1u, .active = (uint8_t)active,
                                      .previous = (uint8_t)previous, .tries = tries, .trial = trial};
    uint8_t bytes[CRT_FLASH_WRITE_MOST];
    record.crc = crt_crc32(0, &record, CRT_SLOTS_SIGNED);
    (void)memset(bytes, 0xff, cell);
    (void)memcpy(bytes, &record, sizeof record);
    for (uint32_t tried = 0; tried < slots->config.log_size; tried += cell) {
        const uintptr_t at = slots->next;
        int32_t error = CRT_OK;
        slots->next = crt_slots_behind(slots, at);
        if (at == crt_slots_block(slots, at)) {
            if ((slots->newest != 0u) && (at == crt_slots_block(slots, slots->newest))) {
                return CRT_ERR_CALL; /* no place of another block took it */
            }
            error = flash->erase(flash->context, at, flash->erase_size);
        }
        if ((error == CRT_OK) && crt_slots_is_erased(flash, at, cell)) {
            error = flash->write(flash->context, at, bytes, cell);
            if ((error == CRT_OK) && crt_slots_took(flash, at, bytes, cell)) {
                slots->last = record;
                slots->newest = at;
                return CRT_OK;
            }
        }
    }
    return CRT_ERR_CALL;
}

/* Return whether the log records decisions on a slot: not without a log, and not on a slot in RAM. */
static int crt_slots_keeps(const struct crt_slots *slots, uint32_t slot)
{
    return (slots->config.log_size != 0u) && (slots->config.places[slot].in_ram == 0u);
}

static int32_t crt_slots_use(struct crt_slots *slots, uint32_t slot)
{
    if (crt_slots_is_own(slots, slot) != 0) {
        slots->active = -1;
        slots->slot.header = NULL;
        slots->slot.entry = NULL;
        return CRT_OK;
    }
    const struct crt_slot_place place = crt_slots_place(slots, slot);
    const int32_t error = crt_slot_open(&place, &slots->slot);
    slots->active = (error == CRT_OK) ? (int32_t)slot : -1;
    return error;
}

/* Find the first slot with a usable model; none if the program has a built-in one. */
static int32_t crt_slots_any(struct crt_slots *slots)
{
    int32_t first = CRT_SLOT_EMPTY;
    if (slots->config.builtin != 0u) {
        return crt_slots_use(slots, slots->config.count);
    }
    for (uint32_t slot = 0; slot < slots->config.count; slot++) {
        const int32_t error = crt_slots_use(slots, slot);
        if (error == CRT_OK) {
            return crt_slots_keeps(slots, slot) ? crt_slots_decide(slots, slot, slot, 0, 0) : CRT_OK;
        }
        first = (first == CRT_SLOT_EMPTY) ? error : first;
    }
    return first;
}

static int crt_slots_can_work(const struct crt_slots_config *config)
{
    const struct crt_flash *flash = config->flash;
    if ((config->count == 0u) || (config->count > CRT_SLOTS_MOST) || (flash->write_size > CRT_FLASH_WRITE_MOST)) {
        return 0;
    }
    return (config->log_size == 0u) ||
           ((config->log_size >= (2u * flash->erase_size)) && ((config->log_size % flash->erase_size) == 0u) &&
            (((config->log - flash->base) % flash->erase_size) == 0u));
}

int32_t crt_slots_start(struct crt_slots *slots, const struct crt_slots_config *config)
{
    (void)memset(slots, 0, sizeof *slots);
    slots->config = *config;
    slots->active = -1;
    slots->begun = -1;
    if (!crt_slots_can_work(config)) {
        return CRT_ERR_ARGUMENT;
    }
    if ((config->log_size == 0u) || (crt_slots_read(slots) == 0)) {
        return crt_slots_any(slots);
    }
    const struct crt_slots_record last = slots->last;
    const int given_up = (last.trial != 0u) && (last.tries == 0u);
    int32_t error = CRT_OK;
    /* Count the start before the model runs: a model that crashes must use up its tries. */
    if ((last.trial != 0u) && (last.tries > 0u)) {
        error = crt_slots_decide(slots, last.active, last.previous, (uint8_t)(last.tries - 1u), 1);
    }
    if ((error == CRT_OK) && !given_up && (crt_slots_use(slots, last.active) == CRT_OK)) {
        return CRT_OK;
    }
    if ((last.previous != last.active) && (crt_slots_use(slots, last.previous) == CRT_OK)) {
        return crt_slots_decide(slots, last.previous, last.previous, 0, 0);
    }
    return crt_slots_any(slots);
}

/* Return whether a slot may still be needed: one with a damaged model never is. */
static int crt_slots_needs(const struct crt_slots *slots, uint32_t slot)
{
    const struct crt_slots_record *last = &slots->last;
    const int decided = (slot == last->active) || ((slot == last->previous) && (last->trial != 0u));
    if (!crt_slots_keeps(slots, slot) || (slots->newest == 0u)) {
        return 0;
    }
    return ((int32_t)slot == slots->active) || (decided && (crt_slots_check(slots, slot) == CRT_OK));
}

int32_t crt_slots_begin(struct crt_slots *slots, uint32_t slot)
{
    const struct crt_flash *flash = slots->config.flash;
    if (slot >= slots->config.count) {
        return CRT_ERR_NAME;
    }
    if (crt_slots_needs(slots, slot) != 0) {
        return CRT_ERR_STATE;
    }
    if ((int32_t)slot == slots->active) {
        slots->active = -1;
        slots->slot.header = NULL;
        slots->slot.entry = NULL;
    }
    slots->begun = -1;
    const struct crt_slot_place *place = &slots->config.places[slot];
    const int32_t error = flash->erase(flash->context, place->origin, place->size);
    if (error == CRT_OK) {
        slots->begun = (int32_t)slot;
    }
    return error;
}

int32_t crt_slots_write(struct crt_slots *slots, uint32_t slot, uint32_t offset, const void *data, uint32_t size)
{
    const struct crt_flash *flash = slots->config.flash;
    const uint8_t *bytes = data;
    uint8_t last[CRT_FLASH_WRITE_MOST];
    if ((slot >= slots->config.count) || (slots->begun != (int32_t)slot)) {
        return CRT_ERR_STATE;
    }
    const struct crt_slot_place *place = &slots->config.places[slot];
    if (((offset % flash->write_size) != 0u) || (offset > place->size) || (size > (place->size - offset))) {
        return CRT_ERR_ADDRESS;
    }
    const uint32_t rest = size % flash->write_size;
    int32_t error = flash->write(flash->context, place->origin + offset, bytes, size - rest);
    if ((error == CRT_OK) && (rest != 0u)) {
        (void)memset(last, 0xff, flash->write_size);
        (void)memcpy(last, &bytes[size - rest], rest);
        error = flash->write(flash->context, place->origin + offset + size - rest, last, flash->write_size);
    }
    return error;
}

int32_t crt_slots_commit(struct crt_slots *slots, uint32_t slot)
{
    if (slot >= slots->config.count) {
        return CRT_ERR_NAME;
    }
    int32_t error = crt_slots_check(slots, slot);
    if (error != CRT_OK) {
        return error;
    }
    slots->begun = -1;
    if (!crt_slots_keeps(slots, slot)) {
        return crt_slots_use(slots, slot);
    }
    const struct crt_slots_record *last = &slots->last;
    const uint32_t first = (slots->config.builtin != 0u) ? slots->config.count : slot;
    /* The model to go back to: one that is still on trial is none. */
    const uint32_t good = (slots->newest == 0u) ? first : (last->trial != 0u) ? last->previous : last->active;
    const int on_trial = (slot != good) && (slots->config.tries > 0u);
    error = crt_slots_decide(slots, slot, good, on_trial ? slots->config.tries : 0u, on_trial ? 1u : 0u);
    return ((error == CRT_OK) && (slots->active < 0) && (slots->config.builtin == 0u)) ? crt_slots_use(slots, slot)
                                                                                     : error;
}

int32_t crt_slots_load(struct crt_slots *slots, uint32_t slot, const struct crt_slots_source *source)
{
    uint8_t block[CRT_FLASH_WRITE_MOST];
    int32_t error = crt_slots_begin(slots, slot);
    for (uint32_t offset = 0; (error == CRT_OK) && (offset < source->size); offset += CRT_FLASH_WRITE_MOST) {
        const uint32_t left = source->size - offset;
        const uint32_t size = (left < CRT_FLASH_WRITE_MOST) ? left : CRT_FLASH_WRITE_MOST;
        error = source->read(source->context, offset, block, size);
        if (error == CRT_OK) {
            error = crt_slots_write(slots, slot, offset, block, size);
        }
    }
    (void)memset(block, 0, sizeof block); /* of a model that is a secret */
    return (error == CRT_OK) ? crt_slots_commit(slots, slot) : error;
}

int32_t crt_slots_copy(struct crt_slots *slots, uint32_t slot, uint32_t offset, const struct crt_slots_span *from)
{
    uint8_t block[CRT_FLASH_WRITE_MOST];
    int32_t error = CRT_OK;
    if ((from->slot >= slots->config.count) || (from->offset > slots->config.places[from->slot].size) ||
        (from->size > (slots->config.places[from->slot].size - from->offset))) {
        return CRT_ERR_ADDRESS;
    }
    const struct crt_slot_place other = crt_slots_place(slots, from->slot);
    for (uint32_t done = 0; (error == CRT_OK) && (done < from->size); done += CRT_FLASH_WRITE_MOST) {
        const uint32_t left = from->size - done;
        const uint32_t size = (left < CRT_FLASH_WRITE_MOST) ? left : CRT_FLASH_WRITE_MOST;
        if (crt_flash_read(other.flash, other.origin + from->offset + done, block, size) != 0) {
            return CRT_SLOT_DAMAGED;
        }
        error = crt_slots_write(slots, slot, offset + done, block, size);
    }
    return error;
}

int32_t crt_slots_confirm(struct crt_slots *slots)
{
    const struct crt_slots_record *last = &slots->last;
    if ((slots->newest == 0u) || (slots->active != (int32_t)last->active)) {
        return CRT_ERR_STATE;
    }
    return (last->trial == 0u) ? CRT_OK : crt_slots_decide(slots, last->active, last->previous, 0, 0);
}

int32_t crt_slots_revert(struct crt_slots *slots)
{
    const struct crt_slots_record *last = &slots->last;
    if ((slots->newest == 0u) || (last->previous == last->active)) {
        return CRT_ERR_STATE;
    }
    const int32_t error = (crt_slots_is_own(slots, last->previous) != 0) ? CRT_OK : crt_slots_check(slots, last->previous);
    return (error == CRT_OK) ? crt_slots_decide(slots, last->previous, last->active, 0, 0) : error;
}
