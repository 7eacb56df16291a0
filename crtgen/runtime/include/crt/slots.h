/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several slots, of which one has the model that runs: a new model is written into another one, committed, tried, and
 * confirmed or given up. What is decided is a log on the flash, which survives a power cut at any write: after each
 * start there is a model that runs, the old one or the new one. SPEC.md, section 7.
 */
#ifndef CRT_SLOTS_H
#define CRT_SLOTS_H

#include <crt/flash.h>
#include <crt/slot.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CRT_SLOTS_MOST 8u

/* The last thing that was decided. */
struct crt_slots_record {
    uint32_t sequence; /* counts up */
    uint8_t active;    /* the slot with the model that runs */
    uint8_t previous;  /* that with the one before it */
    uint8_t tries;     /* starts that are left to confirm it */
    uint8_t trial;     /* 1: it was not confirmed yet */
    uint32_t reserved;
    uint32_t crc; /* of the others */
};

struct crt_slots_config {
    const struct crt_flash *flash;
    const struct crt_slot_place *places;
    uint32_t count;

    /* Two erase blocks or more; no bytes for slots in RAM, where nothing is kept. */
    uintptr_t log;
    uint32_t log_size;

    /* Starts within which a new model has to be confirmed; 0: it needs no confirmation. */
    uint8_t tries;

    /*
     * Not 0: the program has a model of its own, which runs while no slot is open. The first model in a slot is then on
     * trial like any other, and the program's own one is the model before it. In records it has the number `count`.
     */
    uint8_t builtin;
};

/* Read nothing from it but `active` and `slot`. */
struct crt_slots {
    struct crt_slots_config config;
    struct crt_slots_record last;
    uintptr_t newest; /* where the last record is, 0 if there is none */
    uintptr_t next;   /* where the next record goes */
    int32_t active;   /* the slot that is open, or -1 */
    int32_t begun;    /* the slot that is being written, or -1 */
    struct crt_slot slot;
};

/*
 * At each start: open the model that was decided for; if it cannot be used, or was tried too often, that before it;
 * else any. Returns 0, or why there is none, a negative number. Returns CRT_ERR_ARGUMENT for a configuration that cannot work.
 */
int32_t crt_slots_start(struct crt_slots *slots, const struct crt_slots_config *config);

/*
 * Erase a slot, to write it. It must not be one that may still be needed: that of the model that runs, and that before
 * it as long as it is on trial. A slot in RAM may be that of the model that runs, which is then closed.
 */
int32_t crt_slots_begin(struct crt_slots *slots, uint32_t slot);

/*
 * Write bytes into the slot that was begun, `offset` bytes from its start, a multiple of the flash's `write_size`.
 * Each byte is written once. A size that is no multiple is filled up.
 */
int32_t crt_slots_write(struct crt_slots *slots, uint32_t slot, uint32_t offset, const void *data, uint32_t size);

/*
 * The model in a slot is to run from the next start on; one in RAM is open at once. Returns why it cannot be used, or
 * 0. What runs is not touched.
 */
int32_t crt_slots_commit(struct crt_slots *slots, uint32_t slot);

/*
 * An image that lies elsewhere, in an external flash or a file, encrypted perhaps: `read` gives `size` bytes from
 * `offset` on, decrypted. It is called for one block after the other, of CRT_FLASH_WRITE_MOST bytes at most. Returns 0
 * or a negative number.
 */
struct crt_slots_source {
    int32_t (*read)(void *context, uint32_t offset, void *data, uint32_t size);
    void *context;
    uint32_t size;
};

/* Begin, write and commit such an image. Returns what those do, or what `read` does. */
int32_t crt_slots_load(struct crt_slots *slots, uint32_t slot, const struct crt_slots_source *source);

/* Bytes in a slot. */
struct crt_slots_span {
    uint32_t slot;
    uint32_t offset;
    uint32_t size;
};

/*
 * Write bytes of another slot into the one that was begun, as crt_slots_write does. Returns CRT_SLOT_DAMAGED if they
 * cannot be read.
 */
int32_t crt_slots_copy(struct crt_slots *slots, uint32_t slot, uint32_t offset, const struct crt_slots_span *from);

/* Returns 0 if the image in a slot can be used, or one of enum crt_slot_error. */
int32_t crt_slots_check(const struct crt_slots *slots, uint32_t slot);

/* The model that runs is good: it stays. */
int32_t crt_slots_confirm(struct crt_slots *slots);

/* The model before the one that runs is to run again, from the next start on. */
int32_t crt_slots_revert(struct crt_slots *slots);

#ifdef __cplusplus
}
#endif

#endif
