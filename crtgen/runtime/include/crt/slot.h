/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model in a slot: an image of its own, code and weights, which can be exchanged without the firmware. It is linked
 * for the place where it lies and for the memory that it works in; `crtgen slot` makes it. SPEC.md, section 6.
 */
#ifndef CRT_SLOT_H
#define CRT_SLOT_H

#include <stdint.h>

#include <crt/flash.h>
#include <crt/model.h>

#define CRT_SLOT_MAGIC 0x53545243u /* "CRTS" */
#define CRT_SLOT_FORMAT 1u

/* Counts the layouts of struct crt_slot_entry, and of the structures of crt/model.h that it leads to. */
#define CRT_SLOT_ABI 1u

/* Bytes of a digest of the inputs and outputs, and of a signature behind an image. */
#define CRT_SLOT_INTERFACE 16u
#define CRT_SLOT_SIGNATURE 64u

/* What code needs of a core, a bit each. */
#define CRT_CORE_MAIN 1u /* Thumb-2, all of it */
#define CRT_CORE_DSP 2u
#define CRT_CORE_FLOAT 4u
#define CRT_CORE_DOUBLE 8u
#define CRT_CORE_HELIUM 16u
#define CRT_CORE_V8 32u   /* Armv8-M */
#define CRT_CORE_V81 64u  /* Armv8.1-M */
#define CRT_CORE_HOST 128u /* no Cortex-M at all */

/* The beginning of an image. All addresses are those of the device. */
struct crt_slot_header {
    uint32_t magic;
    uint16_t format;
    uint16_t abi;
    uint32_t size;        /* bytes of the image, from here on */
    uint32_t crc;         /* CRC-32 of what follows, to its end */
    uint32_t origin;      /* where it has to lie */
    uint32_t work;        /* where it works: arena and states */
    uint32_t work_size;
    uint32_t stack;       /* bytes of the stack that a run takes at most */
    uint32_t core;        /* bits, CRT_CORE_... */
    uint32_t version;     /* of the model */
    uint32_t entry;       /* address of a struct crt_slot_entry */
    uint32_t description; /* bytes that follow the header: inputs and outputs, for hosts */
    uint8_t interface[CRT_SLOT_INTERFACE];
    char name[32]; /* ends with a zero */
};

/* What the image offers. `run` is <model>_run, and the places are <model>_input_places and _output_places. */
struct crt_slot_entry {
    const struct crt_model *model;
    void (*run)(void);
    const void *input_places;
    const void *output_places;

    /* With CRT_PROFILE, where the firmware puts what is called after each layer; NULL without. */
    void (**layer_done)(uint16_t layer);
};

/*
 * Where the firmware has room for a model: `size` bytes at `origin` for the image, and `work_size` at `work` for what
 * it works in, which nothing else touches. A run may take `stack` bytes of the stack.
 */
struct crt_slot_place {
    uintptr_t origin;
    uint32_t size;
    uintptr_t work;
    uint32_t work_size;
    uint32_t stack;

    /* Not 0: it is in RAM. What is committed there is open at once, and gone with the power. */
    uint32_t in_ram;

    /* An older model is refused. */
    uint32_t least_version;

    /* What the inputs and outputs have to be: <MODEL>_INTERFACE of the header that crtgen made; NULL: anything. */
    const uint8_t *interface;

    /*
     * Whether the signature is that of the image: 0 if it is. A library does that for which you have a key in the
     * firmware, Ed25519 for one. NULL: images need no signature, and whoever can write one can run code.
     */
    int32_t (*verify)(const void *image, uint32_t size, const uint8_t *signature);

    /* The flash that the slot is in, if loads of torn bytes are faults there (crt/flash.h); NULL: any byte may be loaded. */
    const struct crt_flash *flash;
};

/* Why a model is refused. */
enum crt_slot_error {
    CRT_SLOT_EMPTY = -32,     /* there is no image */
    CRT_SLOT_UNKNOWN = -33,   /* a format or an ABI of another release of crtgen */
    CRT_SLOT_SIZE = -34,      /* it says that it is larger than the slot, or smaller than a header */
    CRT_SLOT_DAMAGED = -35,   /* the CRC is not that of the bytes, or some of them cannot be read */
    CRT_SLOT_UNSIGNED = -36,  /* the signature is missing or wrong */
    CRT_SLOT_CORE = -37,      /* it has instructions that this core has not */
    CRT_SLOT_ELSEWHERE = -38, /* it was linked for another place, or works in memory that it is not given or not aligned */
    CRT_SLOT_STACK = -39,     /* a run takes more of the stack than it is given */
    CRT_SLOT_OLD = -40,       /* its version is below the least one */
    CRT_SLOT_OTHER = -41,     /* it has other inputs or outputs */
};

/* An open slot: NULL in both if none is. */
struct crt_slot {
    const struct crt_slot_header *header;
    const struct crt_slot_entry *entry;
};

/* Returns 0 if the image at a place can be used, or one of enum crt_slot_error. It reads every byte, with care. */
int32_t crt_slot_check(const struct crt_slot_place *place);

/*
 * Check it and make it ready: what it works in is cleared, what lives from run to run is what it is before the first
 * one. Returns what crt_slot_check does; `slot` is then closed unless that is 0. Call it again after a write only.
 */
int32_t crt_slot_open(const struct crt_slot_place *place, struct crt_slot *slot);

/* A short English reason. */
const char *crt_slot_reason(int32_t error);

#endif
