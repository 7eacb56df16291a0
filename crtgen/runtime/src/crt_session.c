/* SPDX-License-Identifier: Apache-2.0 */
#include <crt/session.h>

#include <string.h>

void crt_session_init(struct crt_session *session, const struct crt_port *port, uint8_t nonce)
{
    (void)memset(session, 0, sizeof *session);
    session->writer.port = port;
    session->nonce = nonce;
}

uint8_t crt_session_next_nonce(uint8_t nonce)
{
    const uint8_t next = (uint8_t)((((uint32_t)nonce << 5) | ((uint32_t)nonce >> 5)) + 1u);
    return next == 0 ? 1 : next;
}

void crt_session_begin(struct crt_session *session, enum crt_session_type type, uint32_t length)
{
    const int owned = type == CRT_SESSION_NORMAL || type == CRT_SESSION_REPLY;
    crt_frame_begin(&session->writer, CRT_SESSION_HEADER + length);
    crt_frame_put_int(&session->writer, owned ? session->id : 0, 2);
    crt_frame_put_int(&session->writer, type, 1);
}

void crt_session_boot(struct crt_session *session)
{
    session->established = 0;
    crt_frame_resync(&session->writer);
    crt_session_begin(session, CRT_SESSION_TERMINATE, 0);
    crt_frame_end(&session->writer);
}

void crt_session_log(struct crt_session *session, const char *text)
{
    const size_t size = strlen(text);
    crt_session_begin(session, CRT_SESSION_LOG, (uint32_t)size);
    crt_frame_put(&session->writer, text, size);
    crt_frame_end(&session->writer);
}

/* Answer a peer that starts a session. */
static enum crt_session_event crt_session_reply(struct crt_session *session, uint8_t nonce)
{
    session->nonce = crt_session_next_nonce(session->nonce);
    session->id = (uint16_t)(nonce | (session->nonce << 8));
    session->established = 1;
    crt_session_begin(session, CRT_SESSION_REPLY, 1);
    crt_frame_put_int(&session->writer, CRT_SESSION_PROTOCOL, 1);
    crt_frame_end(&session->writer);
    return CRT_SESSION_STARTED;
}

enum crt_session_event crt_session_receive(struct crt_session *session, const uint8_t *packet, uint32_t length)
{
    if (length < CRT_SESSION_HEADER) {
        return CRT_SESSION_NONE;
    }
    const uint16_t id = (uint16_t)(packet[0] | (packet[1] << 8));
    const int ours = session->established && id == session->id;
    switch (packet[2]) {
    case CRT_SESSION_INIT:
        if (packet[0] == 0 || length != CRT_SESSION_HEADER + 1) {
            return CRT_SESSION_NONE;
        }
        if (packet[3] != CRT_SESSION_PROTOCOL) {
            crt_session_log(session, "this device speaks version 1 of the session protocol");
            return CRT_SESSION_NONE;
        }
        return crt_session_reply(session, packet[0]);
    case CRT_SESSION_TERMINATE:
        if (!ours && id != 0) {
            return CRT_SESSION_NONE;
        }
        session->established = 0;
        return CRT_SESSION_ENDED;
    case CRT_SESSION_NORMAL:
        return ours ? CRT_SESSION_MESSAGE : CRT_SESSION_NONE;
    default:
        return CRT_SESSION_NONE;
    }
}
