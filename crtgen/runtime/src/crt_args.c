/* SPDX-License-Identifier: Apache-2.0 */
#include "crt_internal.h"

#include <string.h>

uint64_t crt_take(struct crt_cursor *cursor, size_t size)
{
    uint64_t value = 0;
    if ((size_t)(cursor->end - cursor->at) < size) {
        cursor->bad = 1;
        cursor->at = cursor->end;
        return 0;
    }
    for (size_t i = 0; i < size; i++) {
        value |= (uint64_t)*cursor->at++ << (8 * i);
    }
    return value;
}

static DLDevice crt_take_device(struct crt_cursor *cursor)
{
    DLDevice device;
    device.device_type = (int32_t)crt_take(cursor, 4);
    device.device_id = (int32_t)crt_take(cursor, 4);
    return device;
}

static DLDataType crt_take_dtype(struct crt_cursor *cursor)
{
    DLDataType dtype;
    dtype.code = (uint8_t)crt_take(cursor, 1);
    dtype.bits = (uint8_t)crt_take(cursor, 1);
    dtype.lanes = (uint16_t)crt_take(cursor, 2);
    return dtype;
}

/*
 * Read bytes with a length before them, in place. They move down by one byte, over the length, to make room for a
 * NUL.
 */
static TVMByteArray crt_take_bytes(struct crt_cursor *cursor)
{
    TVMByteArray bytes = {NULL, 0};
    const uint64_t size = crt_take(cursor, 8);
    if (cursor->bad || size > (uint64_t)(cursor->end - cursor->at)) {
        cursor->bad = 1;
        return bytes;
    }
    char *text = (char *)cursor->at - 1;
    (void)memmove(text, cursor->at, (size_t)size);
    text[size] = '\0';
    cursor->at += size;
    bytes.data = text;
    bytes.size = (size_t)size;
    return bytes;
}

/* The shape stays in the receive buffer, too. It moves down, over the fields before it, to be aligned. */
int crt_tensor_take(struct crt_server *server, struct crt_cursor *cursor, DLTensor *tensor)
{
    const uint64_t data = crt_take(cursor, 8);
    tensor->data = (void *)(uintptr_t)data;
    tensor->device = crt_take_device(cursor);
    const uint64_t ndim = crt_take(cursor, 4);
    tensor->dtype = crt_take_dtype(cursor);
    tensor->strides = NULL;
    if (cursor->bad || ndim > (uint64_t)(cursor->end - cursor->at) / 8) {
        return crt_fail(server, CRT_ERR_FORMAT, "a tensor of the request is cut short");
    }
    if (data != (uintptr_t)data) {
        return crt_fail(server, CRT_ERR_ADDRESS, "the address of a tensor has more bits than this device's");
    }
    tensor->ndim = (int32_t)ndim;
    uint8_t *shape = cursor->at - ((uintptr_t)cursor->at & 7u);
    (void)memmove(shape, cursor->at, (size_t)ndim * 8);
    tensor->shape = (int64_t *)(void *)shape;
    cursor->at += ndim * 8;
    tensor->byte_offset = crt_take(cursor, 8);
    return CRT_OK;
}

int crt_tensor_size(struct crt_server *server, const DLTensor *tensor, uint32_t *size)
{
    uint64_t bytes = ((uint64_t)tensor->dtype.bits * tensor->dtype.lanes + 7) / 8;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        const uint64_t extent = (uint64_t)tensor->shape[i];
        bytes = (extent > UINT32_MAX) ? UINT64_MAX : (bytes * extent);
        if (bytes > UINT32_MAX) {
            return crt_fail(server, CRT_ERR_ARGUMENT, "a tensor has a negative extent, or 4 GiB or more");
        }
    }
    *size = (uint32_t)bytes;
    return CRT_OK;
}

/* Read the value of argument `index`, after the type codes. */
static int crt_args_value(struct crt_server *server, struct crt_cursor *cursor, int index)
{
    TVMValue *value = &server->values[index];
    union crt_object *object = &server->objects[index];
    value->v_int64 = 0;
    switch (server->codes[index]) {
    case kTVMArgInt:
    case CRT_CODE_UINT:
    case kTVMArgFloat:
    case kTVMOpaqueHandle:
    case kTVMModuleHandle:
    case kTVMPackedFuncHandle:
        value->v_int64 = (int64_t)crt_take(cursor, 8);
        break;
    case kTVMNullptr:
        break;
    case kTVMDataType:
        value->v_type = crt_take_dtype(cursor);
        (void)crt_take(cursor, 4);
        break;
    case kDLDevice:
        value->v_device = crt_take_device(cursor);
        break;
    case kTVMDLTensorHandle:
        value->v_handle = &object->tensor;
        return crt_tensor_take(server, cursor, &object->tensor);
    case kTVMStr:
        object->bytes = crt_take_bytes(cursor);
        value->v_str = object->bytes.data;
        break;
    case kTVMBytes:
        object->bytes = crt_take_bytes(cursor);
        value->v_handle = &object->bytes;
        break;
    default:
        return crt_fail(server, CRT_ERR_FORMAT, "argument %d has type code %d, which cannot be sent", index,
                        server->codes[index]);
    }
    return CRT_OK;
}

int crt_args_take(struct crt_server *server, struct crt_cursor *cursor)
{
    const uint64_t count = crt_take(cursor, 4);
    if (count > CRT_SERVER_ARGS) {
        return crt_fail(server, CRT_ERR_ARGUMENT, "a call has at most %u arguments", CRT_SERVER_ARGS);
    }
    for (uint32_t i = 0; i < count; i++) {
        server->codes[i] = (int)crt_take(cursor, 4);
    }
    for (int i = 0; i < (int)count && !cursor->bad; i++) {
        const int error = crt_args_value(server, cursor, i);
        if (error != CRT_OK) {
            return error;
        }
    }
    if (cursor->bad != 0) {
        return crt_fail(server, CRT_ERR_FORMAT, "the arguments of the request are cut short");
    }
    return (int)count;
}
