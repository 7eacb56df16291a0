/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The black boxes (crt/record.h), the counts (crt/drift.h) and the slots (crt/slots.h) of a library, for a program that
 * has a main of its own and no server. The program offers ports; crtgen generates the tables in <library>_field.c.
 */
#ifndef CRT_FIELD_H
#define CRT_FIELD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct crt_drift_reference;
struct crt_flash;
struct crt_recorder;
struct crt_slot;
struct crt_slot_place;
struct crt_slots;
struct crt_slots_source;

/* Functions of your program. Each may be NULL, and what needs it is then left out. `context` is handed to all of them. */
struct crt_field_port {
    void *context;

    /*
     * Output: send text to whoever keeps logs: a UART, RTT, a console, a modem. It returns when the text may be
     * overwritten. Other lines may come between two calls, but not within one.
     */
    void (*write)(void *context, const char *text, uint32_t size);

    /*
     * Storage that outlives the power: a file, a partition, an EEPROM. It holds crt_field_size bytes from offset 0 on.
     * Both return 0, or a negative number. Bytes that were never saved may be anything. A cut of the power during `save`
     * may leave any bytes: they are found by a CRC, and dropped.
     */
    int32_t (*save)(void *context, uint32_t offset, const void *data, uint32_t size);
    int32_t (*load)(void *context, uint32_t offset, void *data, uint32_t size);

    /*
     * The flash that the slots are in: crt_flash_board of the library, or a driver of yours by the contract in
     * crt/flash.h. It has to stay. Your linker script must leave the slots, their log and their working memory alone:
     * <library>_field.c has the addresses.
     */
    const struct crt_flash *flash;

    /* Check the signature of an image for a slot, as `verify` of crt/slot.h does. NULL: any image is run. */
    int32_t (*verify)(const void *image, uint32_t size, const uint8_t *signature);
};

/* A model of the library; NULL for what it was generated without. */
struct crt_field_model {
    const char *name;
    const struct crt_recorder *recorder;
    const struct crt_drift_reference *drift;
};

/* The tables of a library. `slots` is NULL without slots; `active` of it is -1 while no slot has a model that runs. */
struct crt_field {
    const struct crt_field_model *models;
    uint32_t num_models;
    struct crt_slots *slots;
    struct crt_slot_place *places;
    uint32_t num_places;
    uintptr_t log;
    uint32_t log_size;
    uint8_t tries;
};

/*
 * Call this first, at each start. A black box that RAM does not have any more is loaded from storage, then the slots
 * start. Returns 0, or CRT_ERR_ARGUMENT for a flash or slots that cannot work. The built-in model runs while no slot has
 * a good one that was decided for: see crt_field_slot.
 */
int32_t crt_field_start(const struct crt_field *field, const struct crt_field_port *port);

/* Bytes of storage that crt_field_keep takes. */
uint32_t crt_field_size(const struct crt_field *field);

/* Save the black boxes: before the power goes, after a fault, or now and then. Returns what `save` does. */
int32_t crt_field_keep(const struct crt_field *field, const struct crt_field_port *port);

/*
 * Send the black boxes and the counts as lines of text, at most CRT_FIELD_LINE characters each. They may stand in a log
 * among others: `crtgen record LIBRARY --file LOG` finds them. The models must not run meanwhile.
 */
#define CRT_FIELD_LINE 160u
void crt_field_send(const struct crt_field *field, const struct crt_field_port *port);

/*
 * Send samples of a sensor, or an input of a model, as such lines: `crtgen collect` makes files of them, labelled for a
 * training. `position` counts the bytes that were sent; a jump, or 0, begins a new file. A line has 32 bytes and takes
 * about 110 letters, so a serial port of 1 Mbaud carries 29 KB a second.
 */
void crt_field_capture(const struct crt_field_port *port, const char *model, uint32_t *position, const void *data,
                       uint32_t size);

/*
 * Take an image of `crtgen slot` from a file, a modem or a radio: it is written into the slot that it was made for,
 * checked and committed, and runs from the next start on, on trial until crt_slots_confirm. A cut of the power at any
 * time leaves the old model or the new one. Returns 0, CRT_SLOT_ELSEWHERE for an image for no slot of this library, or
 * what crt_slots_load does.
 */
int32_t crt_field_update(const struct crt_field *field, const struct crt_slots_source *source);

/* The slot whose model runs, NULL if it is the built-in one. <model>_run_newest asks for it. */
const struct crt_slot *crt_field_slot(const struct crt_field *field);

/* The black box of the first model for runs of the model in a slot, whose inputs and outputs it names. */
void crt_field_slot_recorder(const struct crt_field *field, struct crt_recorder *recorder);

#ifdef __cplusplus
}
#endif

#endif
