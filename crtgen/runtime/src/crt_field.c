/* SPDX-License-Identifier: Apache-2.0 */
#include <crt/field.h>

#include <crt/crc32.h>
#include <crt/error.h>
#include <crt/run.h>

#include <stddef.h>
#include <string.h>

#ifdef CRT_SLOTS
#include <crt/slots.h>
#endif

#define CRT_FIELD_EACH 32u /* bytes of a line */
#define CRT_FIELD_NAME 32u /* letters of a model's name */

struct crt_field_line {
    char text[CRT_FIELD_LINE];
    uint32_t size;
};

static void crt_field_text(struct crt_field_line *line, const char *text, uint32_t most)
{
    for (uint32_t i = 0; (i < most) && (text[i] != '\0'); i++) {
        line->text[line->size] = text[i];
        line->size++;
    }
}

static void crt_field_hex(struct crt_field_line *line, uint32_t value, uint32_t digits)
{
    static const char names[] = "0123456789abcdef";
    for (uint32_t i = digits; i > 0u; i--) {
        line->text[line->size] = names[(value >> (4u * (i - 1u))) & 15u];
        line->size++;
    }
}

/* Common fields of the lines of an array of bytes; the first byte is at `base` of a stream. */
struct crt_field_stream {
    const struct crt_field_port *port;
    const char *kind;
    const char *model;
    uint32_t base;
};

/* "crt KIND MODEL TOTAL OFFSET BYTES CRC", integers in hexadecimal; the CRC is that of the text before it. */
static void crt_field_lines(const struct crt_field_stream *stream, const uint8_t *bytes, uint32_t total)
{
    const struct crt_field_port *port = stream->port;
    for (uint32_t offset = 0; offset < total; offset += CRT_FIELD_EACH) {
        const uint32_t left = total - offset;
        const uint32_t count = (left < CRT_FIELD_EACH) ? left : CRT_FIELD_EACH;
        struct crt_field_line line;
        line.size = 0;
        crt_field_text(&line, "crt ", 4u);
        crt_field_text(&line, stream->kind, CRT_FIELD_NAME);
        crt_field_text(&line, " ", 1u);
        crt_field_text(&line, stream->model, CRT_FIELD_NAME);
        crt_field_text(&line, " ", 1u);
        crt_field_hex(&line, stream->base + total, 8u);
        crt_field_text(&line, " ", 1u);
        crt_field_hex(&line, stream->base + offset, 8u);
        crt_field_text(&line, " ", 1u);
        for (uint32_t i = 0; i < count; i++) {
            crt_field_hex(&line, bytes[offset + i], 2u);
        }
        const uint32_t crc = crt_crc32(0u, (const uint8_t *)line.text, line.size);
        crt_field_text(&line, " ", 1u);
        crt_field_hex(&line, crc, 8u);
        crt_field_text(&line, "\n", 1u);
        port->write(port->context, line.text, line.size);
    }
}

void crt_field_capture(const struct crt_field_port *port, const char *model, uint32_t *position, const void *data,
                       uint32_t size)
{
    const struct crt_field_stream stream = {port, "take", model, *position};
    if (port->write != NULL) {
        crt_field_lines(&stream, data, size);
    }
    *position += size;
}

#if defined(CRT_RECORD) || defined(CRT_DRIFT)

void crt_field_send(const struct crt_field *field, const struct crt_field_port *port)
{
    if (port->write == NULL) {
        return;
    }
    for (uint32_t i = 0; i < field->num_models; i++) {
        const struct crt_field_model *model = &field->models[i];
#ifdef CRT_RECORD
        if (model->recorder != NULL) {
            const struct crt_field_stream stream = {port, "box", model->name, 0u};
            crt_field_lines(&stream, model->recorder->memory, crt_record_size(model->recorder));
        }
#endif
#ifdef CRT_DRIFT
        if (model->drift != NULL) {
            uint8_t counts[CRT_DRIFT_CBOR];
            const size_t size = crt_drift_cbor(model->drift, counts, sizeof counts);
            const struct crt_field_stream stream = {port, "drift", model->name, 0u};
            crt_field_lines(&stream, counts, (uint32_t)size);
        }
#endif
    }
}

#endif

#ifdef CRT_RECORD

#define CRT_FIELD_MAGIC 0x4b545243u /* "CRTK" */

/* Header of a black box in storage. */
struct crt_field_kept {
    uint32_t magic;
    uint32_t size;
    uint32_t layout;
    uint32_t crc;
};

static uint32_t crt_field_layout(const struct crt_recorder *recorder)
{
    return ((const struct crt_record_head *)(const void *)recorder->memory)->layout;
}

uint32_t crt_field_size(const struct crt_field *field)
{
    uint32_t size = 0;
    for (uint32_t i = 0; i < field->num_models; i++) {
        size += (uint32_t)sizeof(struct crt_field_kept) + crt_record_size(field->models[i].recorder);
    }
    return size;
}

int32_t crt_field_keep(const struct crt_field *field, const struct crt_field_port *port)
{
    uint32_t at = 0;
    int32_t error = (port->save == NULL) ? CRT_ERR_STATE : CRT_OK;
    for (uint32_t i = 0; (i < field->num_models) && (error == CRT_OK); i++) {
        const struct crt_recorder *recorder = field->models[i].recorder;
        const uint32_t size = crt_record_size(recorder);
        const struct crt_field_kept kept = {CRT_FIELD_MAGIC, size, crt_field_layout(recorder),
                                            crt_crc32(0u, recorder->memory, size)};
        error = port->save(port->context, at + (uint32_t)sizeof kept, recorder->memory, size);
        if (error == CRT_OK) {
            error = port->save(port->context, at, &kept, (uint32_t)sizeof kept);
        }
        at += (uint32_t)sizeof(struct crt_field_kept) + size;
    }
    return error;
}

/* A box in RAM is newer than one in storage. If neither is valid, the next run begins a new one. */
static void crt_field_restore(const struct crt_field *field, const struct crt_field_port *port)
{
    uint32_t at = 0;
    for (uint32_t i = 0; (i < field->num_models) && (port->load != NULL); i++) {
        const struct crt_recorder *recorder = field->models[i].recorder;
        struct crt_record_head *head = (struct crt_record_head *)(void *)recorder->memory;
        const uint32_t size = crt_record_size(recorder);
        struct crt_field_kept kept = {0, 0, 0, 0};
        if ((head->magic != CRT_RECORD_MAGIC) &&
            (port->load(port->context, at, &kept, (uint32_t)sizeof kept) == CRT_OK) &&
            (kept.magic == CRT_FIELD_MAGIC) && (kept.size == size)) {
            const int32_t error = port->load(port->context, at + (uint32_t)sizeof kept, recorder->memory, size);
            if ((error != CRT_OK) || (crt_crc32(0u, recorder->memory, size) != kept.crc)) {
                head->magic = 0;
            }
        }
        at += (uint32_t)sizeof(struct crt_field_kept) + size;
    }
}

#endif

#ifdef CRT_SLOTS

const struct crt_slot *crt_field_slot(const struct crt_field *field)
{
    return (field->slots->slot.entry == NULL) ? NULL : &field->slots->slot;
}

int32_t crt_field_update(const struct crt_field *field, const struct crt_slots_source *source)
{
    struct crt_slot_header header;
    int32_t error = CRT_SLOT_SIZE;
    if (source->size >= sizeof header) {
        error = source->read(source->context, 0u, &header, (uint32_t)sizeof header);
    }
    if (error != CRT_OK) {
        return error;
    }
    if (header.magic != CRT_SLOT_MAGIC) {
        return CRT_SLOT_EMPTY;
    }
    for (uint32_t i = 0; i < field->num_places; i++) {
        if (field->places[i].origin == header.origin) {
            return crt_slots_load(field->slots, i, source);
        }
    }
    return CRT_SLOT_ELSEWHERE;
}

static int32_t crt_field_slots(const struct crt_field *field, const struct crt_field_port *port)
{
    const struct crt_slots_config config = {
        .flash = port->flash,
        .places = field->places,
        .count = field->num_places,
        .log = field->log,
        .log_size = field->log_size,
        .tries = field->tries,
        .builtin = 1,
    };
    field->slots->active = -1;
    if (port->flash == NULL) {
        return CRT_ERR_ARGUMENT;
    }
    for (uint32_t i = 0; i < field->num_places; i++) {
        field->places[i].verify = port->verify;
    }
    return crt_slots_start(field->slots, &config);
}

#ifdef CRT_RECORD

/* If the model is exchanged, a new box begins, because the recorded runs are not those of the built-in model. */
void crt_field_slot_recorder(const struct crt_field *field, struct crt_recorder *recorder)
{
    *recorder = *field->models[0].recorder;
    recorder->layout ^= field->slots->slot.header->crc;
    recorder->state = NULL;
    recorder->state_bytes = 0;
}

#endif

#endif

int32_t crt_field_start(const struct crt_field *field, const struct crt_field_port *port)
{
    int32_t error = CRT_OK;
    (void)field;
    (void)port;
#ifdef CRT_RECORD
    crt_field_restore(field, port);
#endif
#ifdef CRT_SLOTS
    error = crt_field_slots(field, port);
#endif
    return error;
}
