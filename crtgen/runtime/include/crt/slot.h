/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model in a slot: an image with code and weights that can be exchanged without the firmware. It is linked for its
 * address and for its working memory; `crtgen slot` makes it. SPEC.md, section 6.
 */
#ifndef CRT_SLOT_H
#define CRT_SLOT_H

#include <stdint.h>

#include <crt/flash.h>
#include <crt/model.h>

#define CRT_SLOT_MAGIC 0x53545243u /* "CRTS" */
#define CRT_SLOT_FORMAT 1u

/* Version of the layout of struct crt_slot_entry, and of the structures of crt/model.h that it refers to. */
#define CRT_SLOT_ABI 1u

/* Bytes of a digest of the inputs and outputs, and of a signature behind an image. */
#define CRT_SLOT_INTERFACE 16u
#define CRT_SLOT_SIGNATURE 64u

/* Features of a core that code needs, a bit each. */
#define CRT_CORE_MAIN 1u /* Thumb-2, all of it */
#define CRT_CORE_DSP 2u
#define CRT_CORE_FLOAT 4u
#define CRT_CORE_DOUBLE 8u
#define CRT_CORE_HELIUM 16u
#define CRT_CORE_V8 32u   /* Armv8-M */
#define CRT_CORE_V81 64u  /* Armv8.1-M */
#define CRT_CORE_HOST 128u /* no Cortex-M at all */
#define CRT_CORE_NPU 256u  /* an NPU, through the firmware's driver */

/* Header of an image. All addresses are those of the device. */
struct crt_slot_header {
    uint32_t magic;
    uint16_t format;
    uint16_t abi;
    uint32_t size;        /* bytes of the image, this header included */
    uint32_t crc;         /* CRC-32 of the bytes that follow, up to the end */
    uint32_t origin;      /* address that it was linked for */
    uint32_t work;        /* working memory: arena and states */
    uint32_t work_size;
    uint32_t stack;       /* most bytes of stack that a run takes */
    uint32_t core;        /* bits, CRT_CORE_... */
    uint32_t version;     /* version of the model */
    uint32_t entry;       /* address of a struct crt_slot_entry */
    uint32_t description; /* bytes that follow the header: inputs and outputs, for hosts */
    uint8_t interface[CRT_SLOT_INTERFACE];
    char name[32]; /* terminated by a zero */
};

/* Entry of an image. `run` is <model>_run, and the places are <model>_input_places and _output_places. */
struct crt_npu_job;

struct crt_slot_entry {
    const struct crt_model *model;
    void (*run)(void);
    const void *input_places;
    const void *output_places;

    /* With CRT_PROFILE, the firmware stores here the function to call after each layer; otherwise NULL. */
    void (**layer_done)(uint16_t layer);

    /* Only of an image with CRT_CORE_NPU: the firmware stores its driver here. */
    int32_t (**npu)(const struct crt_npu_job *job);
};

/*
 * A place for a model in the firmware: `size` bytes at `origin` for the image, and `work_size` bytes at `work` for
 * its working memory, which nothing else may use. A run may take `stack` bytes of the stack.
 */
struct crt_slot_place {
    uintptr_t origin;
    uint32_t size;
    uintptr_t work;
    uint32_t work_size;
    uint32_t stack;

    /* Not 0: the place is in RAM. A committed model is open at once, and lost with the power. */
    uint32_t in_ram;

    /* The least version: older models are refused. */
    uint32_t least_version;

    /* The required interface: <MODEL>_INTERFACE of the header that crtgen made; NULL: any. */
    const uint8_t *interface;

    /*
     * Check the signature of the image: return 0 if it is right. Use a library and a public key in the firmware, for
     * example Ed25519. NULL: no signature is needed, and whoever can write an image can run code.
     */
    int32_t (*verify)(const void *image, uint32_t size, const uint8_t *signature);

    /* The flash of the slot, if loading torn bytes is a fault there (crt/flash.h); NULL: any byte may be loaded. */
    const struct crt_flash *flash;
};

/* Why a model is refused. */
enum crt_slot_error {
    CRT_SLOT_EMPTY = -32,     /* there is no image */
    CRT_SLOT_UNKNOWN = -33,   /* a format or an ABI of another release of crtgen */
    CRT_SLOT_SIZE = -34,      /* its size is larger than the slot, or smaller than a header */
    CRT_SLOT_DAMAGED = -35,   /* the CRC does not match, or some bytes cannot be read */
    CRT_SLOT_UNSIGNED = -36,  /* the signature is missing or wrong */
    CRT_SLOT_CORE = -37,      /* it has instructions that this core lacks, or wants an NPU */
    CRT_SLOT_ELSEWHERE = -38, /* it was linked for another place, or its working memory is missing or misaligned */
    CRT_SLOT_STACK = -39,     /* a run takes more stack than it may */
    CRT_SLOT_OLD = -40,       /* its version is below the least version */
    CRT_SLOT_OTHER = -41,     /* it has other inputs or outputs than required */
};

/* An open slot; both members are NULL if none is open. */
struct crt_slot {
    const struct crt_slot_header *header;
    const struct crt_slot_entry *entry;
};

/*
 * Returns 0 if the image at a place can be used, or one of enum crt_slot_error. It reads every byte, through the
 * flash's port.
 */
int32_t crt_slot_check(const struct crt_slot_place *place);

/*
 * Check the image and make it ready: clear its working memory, and set the states to their initial values. Returns
 * the result of crt_slot_check; `slot` is closed unless that is 0. Call it again only after a write.
 */
int32_t crt_slot_open(const struct crt_slot_place *place, struct crt_slot *slot);

/* Return the reason as a short English text. */
const char *crt_slot_reason(int32_t error);

#endif
