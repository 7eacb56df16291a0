/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets in a stream of bytes: start mark, escapes, length and CRC. No I/O and no clock: bytes in, events out.
 * SPEC.md, section 1.
 */
#ifndef CRT_FRAME_H
#define CRT_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include <crt/port.h>

#define CRT_FRAME_ESCAPE 0xffu
#define CRT_FRAME_NOP 0xfeu
#define CRT_FRAME_START 0xfdu

/* Continue a CRC-16 (polynomial 0x1021, not reflected) by one byte. The initial value is 0xffff. */
uint16_t crt_crc16(uint16_t crc, uint8_t byte);

enum crt_frame_event {
    CRT_FRAME_NONE,   /* all bytes were used */
    CRT_FRAME_PACKET, /* `length` bytes are in the buffer */
    CRT_FRAME_LARGE,  /* a valid packet that is too long: only the first `capacity` bytes are in the buffer */
};

struct crt_frame_reader {
    uint8_t *buffer;
    uint32_t capacity;
    uint32_t length;
    uint32_t received;
    uint32_t discarded; /* packets with a wrong CRC, a bad escape, or missing bytes */
    uint16_t crc;
    uint8_t state;
    uint8_t escape;
};

void crt_frame_reader_init(struct crt_frame_reader *reader, uint8_t *buffer, uint32_t capacity);

/*
 * Read from `*bytes` up to the end of the first packet among the `*size` bytes, and advance both. The packet stays in
 * the buffer until the next call.
 */
enum crt_frame_event crt_frame_read(struct crt_frame_reader *reader, const uint8_t **bytes, size_t *size);

/* Bytes that are collected before they go to the port. */
#define CRT_FRAME_CHUNK 128u

struct crt_frame_writer {
    const struct crt_port *port;
    uint16_t crc;
    uint16_t used;
    uint8_t chunk[CRT_FRAME_CHUNK];
};

/* End an escape that a reset or a fault may have cut in half. */
void crt_frame_resync(struct crt_frame_writer *writer);

/* To write a packet, begin it with its length, add its payload in pieces, and end it. */
void crt_frame_begin(struct crt_frame_writer *writer, uint32_t length);
void crt_frame_put(struct crt_frame_writer *writer, const void *bytes, size_t size);
void crt_frame_put_int(struct crt_frame_writer *writer, uint32_t value, size_t size);
void crt_frame_end(struct crt_frame_writer *writer);

#endif
