/* SPDX-License-Identifier: Apache-2.0 */
#include "crt_internal.h"

#include "crt_text.h"

#include <string.h>

/* Sizes on the wire. */
#define CRT_WORD 4u /* a count, a type code */
#define CRT_LONG 8u /* an integer, a handle, a length */

int crt_fail(struct crt_server *server, int error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)crt_text(server->text, sizeof server->text, format, args);
    va_end(args);
    return error;
}

static void crt_put(struct crt_server *server, uint32_t value, size_t size)
{
    crt_frame_put_int(&server->session.writer, value, size);
}

static void crt_put_long(struct crt_server *server, uint64_t value)
{
    crt_put(server, (uint32_t)value, 4);
    crt_put(server, (uint32_t)(value >> 32), 4);
}

/* Begin a message of `size` bytes after the code. */
static void crt_reply_begin(struct crt_server *server, enum crt_rpc_code code, uint32_t size)
{
    crt_session_begin(&server->session, CRT_SESSION_NORMAL, CRT_LONG + CRT_WORD + size);
    crt_put(server, CRT_WORD + size, CRT_LONG);
    crt_put(server, code, CRT_WORD);
}

static void crt_reply_end(struct crt_server *server)
{
    crt_frame_end(&server->session.writer);
    server->pending = 0;
}

void crt_reply_null(struct crt_server *server)
{
    crt_reply_begin(server, CRT_RPC_RETURN, 2 * CRT_WORD);
    crt_put(server, 1, CRT_WORD);
    crt_put(server, kTVMNullptr, CRT_WORD);
    crt_reply_end(server);
}

void crt_reply_handle(struct crt_server *server, uint64_t handle)
{
    crt_reply_begin(server, CRT_RPC_RETURN, 2 * CRT_WORD + CRT_LONG);
    crt_put(server, 1, CRT_WORD);
    crt_put(server, kTVMOpaqueHandle, CRT_WORD);
    crt_put_long(server, handle);
    crt_reply_end(server);
}

void crt_reply_data(struct crt_server *server, const void *data, uint32_t size)
{
    crt_reply_begin(server, CRT_RPC_COPY_ACK, size);
    crt_frame_put(&server->session.writer, data, size);
    crt_reply_end(server);
}

void crt_reply_error(struct crt_server *server)
{
    const size_t size = strlen(server->text);
    crt_reply_begin(server, CRT_RPC_EXCEPTION, 2 * CRT_WORD + CRT_LONG + (uint32_t)size);
    crt_put(server, 1, CRT_WORD);
    crt_put(server, kTVMStr, CRT_WORD);
    crt_put(server, (uint32_t)size, CRT_LONG);
    crt_frame_put(&server->session.writer, server->text, size);
    crt_reply_end(server);
}

/* Begin the return of a call: `count` arguments, the first of them the type, then `size` bytes. */
static void crt_return_begin(struct crt_server *server, uint32_t count, int sent, int type, uint32_t size)
{
    crt_reply_begin(server, CRT_RPC_RETURN, CRT_WORD * (count + 1) + CRT_LONG + size);
    crt_put(server, count, CRT_WORD);
    crt_put(server, kTVMArgInt, CRT_WORD);
    crt_put(server, (uint32_t)sent, CRT_WORD);
    if (count == 3) {
        crt_put(server, kTVMOpaqueHandle, CRT_WORD);
    }
    crt_put(server, (uint32_t)type, CRT_LONG);
}

static void crt_return_bytes(struct crt_server *server, int type, const char *data, size_t size)
{
    crt_return_begin(server, 2, type, type, CRT_LONG + (uint32_t)size);
    crt_put(server, (uint32_t)size, CRT_LONG);
    crt_frame_put(&server->session.writer, data, size);
}

/* A tensor of a model: its description, and the handle under which the host will release it. */
static void crt_return_tensor(struct crt_server *server, const struct crt_tensor *tensor)
{
    const uint32_t ndim = (uint32_t)tensor->ndim;
    crt_return_begin(server, 3, kTVMDLTensorHandle, kTVMNDArrayHandle, CRT_LONG * (ndim + 5));
    crt_put_long(server, (uintptr_t)tensor->data);
    crt_put(server, kDLCPU, 8);
    crt_put(server, ndim, 4);
    crt_put(server, tensor->dtype.code, 1);
    crt_put(server, tensor->dtype.bits, 1);
    crt_put(server, tensor->dtype.lanes, 2);
    for (uint32_t i = 0; i < ndim; i++) {
        crt_put_long(server, (uint64_t)tensor->shape[i]);
    }
    crt_put(server, 0, 8);
    crt_put_long(server, (uintptr_t)tensor);
}

void crt_reply_value(struct crt_server *server, const struct crt_call *call)
{
    const TVMByteArray *bytes = call->value.v_handle;
    switch (call->code) {
    case kTVMArgInt:
    case kTVMArgFloat:
        crt_return_begin(server, 2, call->code, call->code, CRT_LONG);
        crt_put_long(server, (uint64_t)call->value.v_int64);
        break;
    case kTVMOpaqueHandle:
    case kTVMModuleHandle:
    case kTVMPackedFuncHandle:
        crt_return_begin(server, 2, kTVMOpaqueHandle, call->code, CRT_LONG);
        crt_put_long(server, (uintptr_t)call->value.v_handle);
        break;
    case kTVMNullptr:
        crt_return_begin(server, 2, kTVMNullptr, kTVMNullptr, 0);
        break;
    case kTVMStr:
        crt_return_bytes(server, kTVMStr, call->value.v_str, strlen(call->value.v_str));
        break;
    case kTVMBytes:
        crt_return_bytes(server, kTVMBytes, bytes->data, bytes->size);
        break;
    case kTVMNDArrayHandle:
        crt_return_tensor(server, call->value.v_handle);
        break;
    default:
        (void)crt_fail(server, CRT_ERR_CALL, "%s returns a value of type code %d, which cannot be sent",
                       server->running, call->code);
        crt_reply_error(server);
        return;
    }
    crt_reply_end(server);
}
