/* SPDX-License-Identifier: Apache-2.0 */
#include <crt/frame.h>

#include <string.h>

/* States of a reader: the meaning of the next byte. */
enum {
    CRT_SEEK, /* no packet has begun */
    CRT_LENGTH,
    CRT_PAYLOAD,
    CRT_CRC,
};

uint16_t crt_crc16(uint16_t crc, uint8_t byte)
{
    uint32_t x = (uint32_t)(crc >> 8) ^ byte;
    x ^= x >> 4;
    return (uint16_t)(((uint32_t)crc << 8) ^ (x << 12) ^ (x << 5) ^ x);
}

/* 0xffff, continued by the two bytes of a packet's start. */
#define CRT_CRC_START 0x2042u

void crt_frame_reader_init(struct crt_frame_reader *reader, uint8_t *buffer, uint32_t capacity)
{
    (void)memset(reader, 0, sizeof *reader);
    reader->buffer = buffer;
    reader->capacity = capacity;
}

static void crt_frame_discard(struct crt_frame_reader *reader)
{
    reader->discarded += reader->state != CRT_SEEK;
    reader->state = CRT_SEEK;
}

static void crt_frame_restart(struct crt_frame_reader *reader)
{
    crt_frame_discard(reader);
    reader->state = CRT_LENGTH;
    reader->crc = CRT_CRC_START;
    reader->length = 0;
    reader->received = 0;
}

/* Handle one byte of the length, the payload or the CRC, without its escape. */
static enum crt_frame_event crt_frame_byte(struct crt_frame_reader *reader, uint8_t byte)
{
    const uint32_t at = reader->received++;
    if (reader->state == CRT_LENGTH) {
        reader->length |= (uint32_t)byte << (8 * at);
        if (at == 3) {
            reader->state = reader->length == 0 ? CRT_CRC : CRT_PAYLOAD;
            reader->received = 0;
        }
    } else if (reader->state == CRT_PAYLOAD) {
        if (at < reader->capacity) {
            reader->buffer[at] = byte;
        }
        if (reader->received == reader->length) {
            reader->state = CRT_CRC;
            reader->received = 0;
        }
    } else if (byte != (uint8_t)(reader->crc >> (8 * at))) {
        crt_frame_discard(reader);
    } else if (at == 1) {
        reader->state = CRT_SEEK;
        return (reader->length <= reader->capacity) ? CRT_FRAME_PACKET : CRT_FRAME_LARGE;
    } else {
        /* The second byte is to come. */
    }
    return CRT_FRAME_NONE;
}

/* Handle the byte after an escape. Returns true if it stands for a byte of the packet. */
static int crt_frame_escaped(struct crt_frame_reader *reader, uint8_t byte)
{
    reader->escape = 0;
    if (byte == CRT_FRAME_START) {
        crt_frame_restart(reader);
    } else if (reader->state == CRT_SEEK) {
        reader->escape = byte == CRT_FRAME_ESCAPE;
    } else if (byte == CRT_FRAME_ESCAPE) {
        return 1;
    } else if (byte != CRT_FRAME_NOP) {
        crt_frame_discard(reader);
    } else {
        /* A no-op. */
    }
    return 0;
}

enum crt_frame_event crt_frame_read(struct crt_frame_reader *reader, const uint8_t **bytes, size_t *size)
{
    while (*size > 0) {
        const uint8_t byte = *(*bytes)++;
        (*size)--;
        if ((reader->state == CRT_LENGTH) || (reader->state == CRT_PAYLOAD)) {
            reader->crc = crt_crc16(reader->crc, byte);
        }
        int plain = byte != CRT_FRAME_ESCAPE;
        if (reader->escape != 0) {
            plain = crt_frame_escaped(reader, byte);
        } else {
            reader->escape = !plain;
        }
        if (!plain || (reader->state == CRT_SEEK)) {
            continue;
        }
        const enum crt_frame_event event = crt_frame_byte(reader, byte);
        if (event != CRT_FRAME_NONE) {
            return event;
        }
    }
    return CRT_FRAME_NONE;
}

static void crt_frame_flush(struct crt_frame_writer *writer)
{
    const struct crt_port *port = writer->port;
    if (writer->used > 0) {
        port->write(port->context, writer->chunk, writer->used);
        writer->used = 0;
    }
}

static void crt_frame_raw(struct crt_frame_writer *writer, uint8_t byte)
{
    writer->crc = crt_crc16(writer->crc, byte);
    writer->chunk[writer->used++] = byte;
    if (writer->used == CRT_FRAME_CHUNK) {
        crt_frame_flush(writer);
    }
}

void crt_frame_put(struct crt_frame_writer *writer, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < size; i++) {
        crt_frame_raw(writer, at[i]);
        if (at[i] == CRT_FRAME_ESCAPE) {
            crt_frame_raw(writer, CRT_FRAME_ESCAPE);
        }
    }
}

void crt_frame_put_int(struct crt_frame_writer *writer, uint32_t value, size_t size)
{
    for (; size > 0; size--, value >>= 8) {
        const uint8_t byte = (uint8_t)value;
        crt_frame_put(writer, &byte, 1);
    }
}

void crt_frame_resync(struct crt_frame_writer *writer)
{
    const uint8_t nop = CRT_FRAME_NOP;
    writer->port->write(writer->port->context, &nop, 1);
}

void crt_frame_begin(struct crt_frame_writer *writer, uint32_t length)
{
    writer->used = 0;
    writer->crc = 0xffff;
    crt_frame_raw(writer, CRT_FRAME_ESCAPE);
    crt_frame_raw(writer, CRT_FRAME_START);
    crt_frame_put_int(writer, length, 4);
}

void crt_frame_end(struct crt_frame_writer *writer)
{
    crt_frame_put_int(writer, writer->crc, 2);
    crt_frame_flush(writer);
    if (writer->port->flush != NULL) {
        writer->port->flush(writer->port->context);
    }
}
