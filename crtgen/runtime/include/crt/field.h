/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The black boxes (crt/record.h), the counts (crt/drift.h) and the slots (crt/slots.h) of a library, for a program
 * with its own main and no server. The program provides ports; crtgen generates the tables in <library>_field.c.
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

/* Functions of your program. Leave those NULL that you do not need. `context` is passed to all of them. */
struct crt_field_port {
    void *context;

    /*
     * Output: send text to a log: a UART, RTT, a console, a modem. The text may be overwritten when it returns. Other
     * lines may be written between two calls, but not within one.
     */
    void (*write)(void *context, const char *text, uint32_t size);

    /*
     * Storage that survives a power cut: a file, a partition, an EEPROM. It holds crt_field_size bytes from offset 0
     * on. Both functions return 0, or a negative number. Bytes that were never saved may have any value. A power cut
     * during `save` may leave any bytes: a CRC detects them, and they are dropped.
     */
    int32_t (*save)(void *context, uint32_t offset, const void *data, uint32_t size);
    int32_t (*load)(void *context, uint32_t offset, void *data, uint32_t size);

    /*
     * The flash of the slots: crt_flash_board of the library, or your own driver that follows the contract in
     * crt/flash.h. It must exist as long as the slots do. Your linker script must leave the slots, their log and
     * their working memory alone: <library>_field.c has the addresses.
     */
    const struct crt_flash *flash;

    /* Check the signature of an image for a slot, like `verify` of crt/slot.h. NULL: any image is run. */
    int32_t (*verify)(const void *image, uint32_t size, const uint8_t *signature);
};

/* A model of the library; members are NULL for features that it was generated without. */
struct crt_field_model {
    const char *name;
    const struct crt_recorder *recorder;
    const struct crt_drift_reference *drift;
};

/* The tables of a library. `slots` is NULL without slots; its `active` is -1 while no slot has a model that runs. */
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
 * Call this first at each start. A black box that RAM has lost is loaded from storage, then the slots start. Returns
 * 0, or CRT_ERR_ARGUMENT for a flash or slots that cannot work. The built-in model runs while no slot has a valid,
 * committed one: see crt_field_slot.
 */
int32_t crt_field_start(const struct crt_field *field, const struct crt_field_port *port);

/* Bytes of storage that crt_field_keep needs. */
uint32_t crt_field_size(const struct crt_field *field);

/* Save the black boxes: before the power goes, after a fault, or regularly. Returns the result of `save`. */
int32_t crt_field_keep(const struct crt_field *field, const struct crt_field_port *port);

/*
 * Send the black boxes and the counts as lines of text, at most CRT_FIELD_LINE characters each. `crtgen record
 * LIBRARY --file LOG` finds them among the other lines of a log. The models must not run meanwhile.
 */
#define CRT_FIELD_LINE 160u
void crt_field_send(const struct crt_field *field, const struct crt_field_port *port);

/*
 * Send samples of a sensor, or an input of a model, as such lines; `crtgen collect` makes labelled files of them for
 * a training. `position` counts the bytes that were sent; a jump, or 0, begins a new file. A line has 32 bytes and
 * takes about 110 characters, so a serial port of 1 Mbaud carries 29 KB a second.
 */
void crt_field_capture(const struct crt_field_port *port, const char *model, uint32_t *position, const void *data,
                       uint32_t size);

/*
 * Take an image of `crtgen slot` from a file, a modem or a radio. It is written into the slot that it was made for,
 * checked and committed. It runs from the next start on, on trial until crt_slots_confirm. A power cut at any time
 * leaves the old model or the new one. Returns 0, CRT_SLOT_ELSEWHERE for an image for no slot of this library, or the
 * error of crt_slots_load.
 */
int32_t crt_field_update(const struct crt_field *field, const struct crt_slots_source *source);

/* Return the slot whose model runs, NULL for the built-in model. <model>_run_newest calls it. */
const struct crt_slot *crt_field_slot(const struct crt_field *field);

/* Let the first model's black box record runs of the model in a slot, with that model's inputs and outputs. */
void crt_field_slot_recorder(const struct crt_field *field, struct crt_recorder *recorder);

#ifdef __cplusplus
}
#endif

#endif
