/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session: nonces, start, end, log, and messages within the session. This side only responds. SPEC.md, section 2.
 */
#ifndef CRT_SESSION_H
#define CRT_SESSION_H

#include <crt/frame.h>

#define CRT_SESSION_HEADER 3u
#define CRT_SESSION_PROTOCOL 1u

enum crt_session_type {
    CRT_SESSION_INIT = 0x00,
    CRT_SESSION_REPLY = 0x01,
    CRT_SESSION_TERMINATE = 0x02,
    CRT_SESSION_LOG = 0x03,
    CRT_SESSION_NORMAL = 0x10,
};

enum crt_session_event {
    CRT_SESSION_NONE,
    CRT_SESSION_STARTED, /* a new session; the state of the old one is void */
    CRT_SESSION_ENDED,
    CRT_SESSION_MESSAGE, /* a message for the layer above: the packet without its header */
};

struct crt_session {
    struct crt_frame_writer writer;
    uint16_t id;
    uint8_t nonce;
    uint8_t established;
};

void crt_session_init(struct crt_session *session, const struct crt_port *port, uint8_t nonce);

/* Return the nonce after `nonce`; never 0. */
uint8_t crt_session_next_nonce(uint8_t nonce);

/* Tell the host that this side has (re)started. */
void crt_session_boot(struct crt_session *session);

/*
 * Handle a packet and return its meaning; answers one that starts a session. `stored` bytes of it are in the buffer,
 * of `length`.
 */
enum crt_session_event crt_session_receive(struct crt_session *session, const uint8_t *packet, uint32_t length);

/* Begin a message of `length` bytes; crt_frame_put and crt_frame_end complete it. */
void crt_session_begin(struct crt_session *session, enum crt_session_type type, uint32_t length);

void crt_session_log(struct crt_session *session, const char *text);

#endif
