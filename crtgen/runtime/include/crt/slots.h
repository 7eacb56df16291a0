/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several slots, one of which has the model that runs. A new model is written into another slot, committed, tried,
 * and confirmed or rolled back. A log in flash records each decision and survives a power cut at any write: after
 * each start there is a model that runs, the old one or the new one. SPEC.md, section 7.
 */
#ifndef CRT_SLOTS_H
#define CRT_SLOTS_H

#include <crt/flash.h>
#include <crt/slot.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CRT_SLOTS_MOST 8u

/* The last decision. */
struct crt_slots_record {
    uint32_t sequence; /* counts up */
    uint8_t active;    /* the slot with the model that runs */
    uint8_t previous;  /* the slot with the previous model */
    uint8_t tries;     /* starts left to confirm it */
    uint8_t trial;     /* 1: it is not confirmed yet */
    uint32_t reserved;
    uint32_t crc; /* of the others */
};

struct crt_slots_config {
    const struct crt_flash *flash;
    const struct crt_slot_place *places;
    uint32_t count;

    /* The log: two erase blocks or more; size 0 for slots in RAM, where nothing is kept. */
    uintptr_t log;
    uint32_t log_size;

    /* Number of starts within which a new model must be confirmed; 0: it needs no confirmation. */
    uint8_t tries;

    /*
     * Not 0: the program has a built-in model, which runs while no slot is open. The first model in a slot is then on
     * trial like any other, and the built-in one is its previous model. In records its number is `count`.
     */
    uint8_t builtin;
};

/* Opaque, except for `active` and `slot`. */
struct crt_slots {
    struct crt_slots_config config;
    struct crt_slots_record last;
    uintptr_t newest; /* address of the last record, 0 if there is none */
    uintptr_t next;   /* address of the next record */
    int32_t active;   /* the slot that is open, or -1 */
    int32_t begun;    /* the slot that is being written, or -1 */
    struct crt_slot slot;
};

/*
 * Call this at each start. It opens the committed model; if that cannot be used, or was tried too often, the previous
 * one; otherwise any. Returns 0, or the reason why there is none, a negative number. Returns CRT_ERR_ARGUMENT for a
 * configuration that cannot work.
 */
int32_t crt_slots_start(struct crt_slots *slots, const struct crt_slots_config *config);

/*
 * Erase a slot before it is written. It must not be a slot that may still be needed: that of the running model, or
 * that of the previous model while the running one is on trial. A slot in RAM may be that of the running model, which
 * is then closed.
 */
int32_t crt_slots_begin(struct crt_slots *slots, uint32_t slot);

/*
 * Write bytes into the slot that was begun, `offset` bytes from its start, at a multiple of the flash's `write_size`.
 * Write each byte once. A size that is no multiple is padded.
 */
int32_t crt_slots_write(struct crt_slots *slots, uint32_t slot, uint32_t offset, const void *data, uint32_t size);

/*
 * Commit the model in a slot: it runs from the next start on; one in RAM is opened at once. Returns 0, or the reason
 * why it cannot be used. The running model is not touched.
 */
int32_t crt_slots_commit(struct crt_slots *slots, uint32_t slot);

/*
 * An image that is elsewhere, in an external flash or a file, perhaps encrypted: `read` copies `size` decrypted bytes
 * from `offset` on. It is called for consecutive blocks of at most CRT_FLASH_WRITE_MOST bytes. Returns 0 or a
 * negative number.
 */
struct crt_slots_source {
    int32_t (*read)(void *context, uint32_t offset, void *data, uint32_t size);
    void *context;
    uint32_t size;
};

/* Begin, write and commit such an image. Returns the result of these, or of `read`. */
int32_t crt_slots_load(struct crt_slots *slots, uint32_t slot, const struct crt_slots_source *source);

/* Bytes in a slot. */
struct crt_slots_span {
    uint32_t slot;
    uint32_t offset;
    uint32_t size;
};

/*
 * Write bytes of another slot into the slot that was begun, like crt_slots_write. Returns CRT_SLOT_DAMAGED if they
 * cannot be read.
 */
int32_t crt_slots_copy(struct crt_slots *slots, uint32_t slot, uint32_t offset, const struct crt_slots_span *from);

/* Returns 0 if the image in a slot can be used, or one of enum crt_slot_error. */
int32_t crt_slots_check(const struct crt_slots *slots, uint32_t slot);

/* Confirm the running model: it stays. */
int32_t crt_slots_confirm(struct crt_slots *slots);

/* Roll back: the previous model runs from the next start on. */
int32_t crt_slots_revert(struct crt_slots *slots);

#ifdef __cplusplus
}
#endif

#endif
