/* SPDX-License-Identifier: Apache-2.0 */
#include "crt_internal.h"

#include <crt/guard.h>

#include <string.h>

/* Bytes before the code: the number of bytes that follow. */
#define CRT_RPC_HEADER 8u

int crt_server_init(struct crt_server *server, const struct crt_server_config *config)
{
    const struct crt_port *port = config->port;
    if (config->num_models > CRT_SERVER_MODELS || config->receive_size < CRT_SERVER_RECEIVE_MIN) {
        return CRT_ERR_ARGUMENT;
    }
    for (uint32_t i = 0; i < config->num_models; i++) {
        const struct crt_model *model = config->models[i];
        const int counted = (model->flags & CRT_MODEL_CONSUMES_INPUTS) != 0 || model->arena != NULL;
        if (counted && model->num_inputs > 32) {
            return CRT_ERR_ARGUMENT;
        }
    }
    const uint32_t seed =
        (port->random != NULL) ? port->random(port->context) : (uint32_t)port->ticks(port->context);
    (void)memset(server, 0, sizeof *server);
    server->config = *config;
#ifdef CRT_SLOTS
    server->linked = config->num_models;
    for (uint32_t i = 0; i < config->num_models; i++) {
        server->models[i] = config->models[i];
    }
    server->config.models = server->models;
    crt_server_adopt(server);
#endif
    crt_frame_reader_init(&server->reader, config->receive, config->receive_size);
    crt_session_init(&server->session, port, (uint8_t)seed);
    for (uint32_t i = 0; i < config->num_models; i++) {
        crt_guard_set(config->models[i]);
    }
    crt_pool_init(&server->pool, config->pool, config->pool_size);
    return CRT_OK;
}

#ifdef CRT_SLOTS
void crt_server_adopt(struct crt_server *server)
{
    const struct crt_slots *slots = server->config.slots;
    const uint16_t index = server->linked;
    server->config.num_models = index;
    (void)memset(server->evaluators, 0, sizeof server->evaluators);
    if ((slots != NULL) && (slots->active >= 0) && (index < CRT_SERVER_MODELS)) {
        server->models[index] = slots->slot.entry->model;
#ifdef CRT_PROFILE
        if (slots->slot.entry->layer_done != NULL) {
            *slots->slot.entry->layer_done = crt_layer_done;
        }
#endif
        server->config.num_models = (uint16_t)(index + 1u);
        server->inputs_set[index] = 0;
        server->spoiled |= 1u << index;
        server->holders &= ~(1u << index);
    }
}
#endif

void crt_server_boot(struct crt_server *server)
{
    crt_session_boot(&server->session);
}

void crt_server_log(struct crt_server *server, const char *text)
{
    crt_session_log(&server->session, text);
}

/* Return whether an argument of a call refers to memory of this device only. */
static int crt_serve_check(struct crt_server *server, int index)
{
    const TVMValue *value = &server->values[index];
    const uint64_t handle = (uint64_t)value->v_int64;
    DLTensor *tensor = value->v_handle;
    uint32_t size;
    int error;
    switch (server->codes[index]) {
    case kTVMDLTensorHandle:
        error = crt_memory_tensor(server, CRT_READ, tensor, &size);
        if (error == CRT_OK) {
            /* Generated code ignores offsets. */
            tensor->data = crt_tensor_bytes(tensor);
            tensor->byte_offset = 0;
        }
        return error;
    case kTVMOpaqueHandle:
        return handle == 0 ? CRT_OK : crt_memory_check(server, CRT_WRITE, handle, 0, 1);
    case kTVMModuleHandle:
        return crt_module_index(server, handle);
    case kTVMPackedFuncHandle:
        return (crt_function_check(server, handle) == NULL) ? CRT_ERR_NAME : CRT_OK;
    default:
        return CRT_OK;
    }
}

static void crt_server_line(void *context, const char *text)
{
    crt_server_log(context, text);
}

/* Report a fault with server->text. */
static void crt_server_report(struct crt_server *server, struct crt_fault *fault)
{
    crt_server_log(server, server->text);
    crt_fault_report(fault, crt_server_line, server);
    if (server->pending != 0) {
        crt_reply_error(server);
    }
    if (server->session.established != 0) {
        fault->magic = 0;
    }
}

/*
 * A byte beside the arena of a model, or a part of it, was overwritten: answer with an exception, and store a fault if
 * there is memory for it.
 */
static int crt_serve_damage(struct crt_server *server, const struct crt_model *model,
                            const struct crt_arena_part *part, const uint8_t *at)
{
    const struct crt_port *port = server->config.port;
    struct crt_fault *fault = server->config.fault;
    const int error =
        (part == NULL)
            ? crt_fail(server, CRT_ERR_CALL, "%s wrote outside of the arena of %s: results cannot be trusted",
                       server->running, model->name)
            : crt_fail(server, CRT_ERR_CALL,
                       "%s wrote outside of the part %s of the arena of %s: results cannot be trusted",
                       server->running, part->name, model->name);
    server->run_error = CRT_ERR_CALL;
    crt_guard_set(model);
    if (fault != NULL) {
        const uint64_t ticks = port->ticks(port->context);
        (void)memset(fault, 0, sizeof *fault);
        fault->exception = CRT_FAULT_GUARD;
        fault->registers[0] = (uint32_t)(uintptr_t)model->name;
        fault->registers[1] = (uint32_t)(uintptr_t)server->running;
        fault->registers[2] = (uint32_t)(uintptr_t)((part == NULL) ? model->arena : part->data);
        fault->registers[3] = (part == NULL) ? model->arena_size : part->size;
        fault->registers[4] = (part == NULL) ? 0u : (uint32_t)(uintptr_t)part->name;
        fault->bfar = (uint32_t)(uintptr_t)at;
        fault->ticks_per_second = port->ticks_per_second;
        fault->ticks_low = (uint32_t)ticks;
        fault->ticks_high = (uint32_t)(ticks >> 32);
        crt_fault_seal(fault);
        crt_server_report(server, fault);
        if (port->restart != NULL) {
            port->restart(port->context);
        }
    }
    return error;
}

/* Return whether a call left the guards of all arenas alone. */
static int crt_serve_guards(struct crt_server *server)
{
    for (uint32_t i = 0; i < server->config.num_models; i++) {
        const struct crt_model *model = server->config.models[i];
        const struct crt_arena_part *part;
        const uint8_t *damaged = crt_guard_damage(model, &part);
        if (damaged != NULL) {
            return crt_serve_damage(server, model, part, damaged);
        }
    }
    return CRT_OK;
}

/* CallFunc: u64 function handle, arguments. */
static int crt_serve_call(struct crt_server *server, struct crt_cursor *cursor)
{
    const uint64_t handle = crt_take(cursor, 8);
    const int count = crt_args_take(server, cursor);
    if (count < 0) {
        return count;
    }
    for (int i = 0; i < count; i++) {
        const int error = crt_serve_check(server, i);
        if (error < 0) {
            return error;
        }
    }
    struct crt_call call = {.server = server, .values = server->values, .codes = server->codes, .count = count,
                            .code = kTVMNullptr};
    int error = crt_function_call(&call, handle);
    if (error == CRT_OK) {
        error = crt_serve_guards(server);
    }
    if (error == CRT_OK) {
        crt_reply_value(server, &call);
    }
    return error;
}

/* CopyFromRemote: tensor, u64 n. CopyToRemote: tensor, u64 n, n bytes. */
static int crt_serve_copy(struct crt_server *server, struct crt_cursor *cursor, int to_device)
{
    DLTensor tensor;
    int error = crt_tensor_take(server, cursor, &tensor);
    if (error != CRT_OK) {
        return error;
    }
    const uint64_t size = crt_take(cursor, 8);
    if (cursor->bad || (to_device && size != (uint64_t)(cursor->end - cursor->at))) {
        return crt_fail(server, CRT_ERR_FORMAT, "a copy says %u bytes and brings %u",
                        crt_clamp(size), (unsigned)(cursor->end - cursor->at));
    }
    const uintptr_t address = (uintptr_t)tensor.data;
    uint8_t *data = crt_tensor_bytes(&tensor);
    error = crt_memory_check(server, to_device ? CRT_WRITE : CRT_READ, address, tensor.byte_offset, size);
    if ((error != CRT_OK) && to_device &&
        (crt_memory_check(server, CRT_READ, address, tensor.byte_offset, size) == CRT_OK) &&
        (memcmp(data, cursor->at, (size_t)size) == 0)) {
        crt_reply_null(server); /* a host may load the parameters, which are linked */
        return CRT_OK;
    }
    if (error != CRT_OK) {
        return error;
    }
    if (!to_device) {
        crt_reply_data(server, data, (uint32_t)size);
        return CRT_OK;
    }
    (void)memcpy(data, cursor->at, (size_t)size);
    crt_memory_claim(server, &tensor);
    crt_memory_written(server, data, (uint32_t)size);
    crt_reply_null(server);
    return CRT_OK;
}

/* Arguments: tensor, tensor, stream. */
static int crt_serve_copy_among(struct crt_server *server)
{
    const DLTensor *from = server->values[0].v_handle;
    const DLTensor *to = server->values[1].v_handle;
    uint32_t size;
    uint32_t room;
    int error = crt_memory_tensor(server, CRT_READ, from, &size);
    if (error == CRT_OK) {
        error = crt_memory_tensor(server, CRT_WRITE, to, &room);
    }
    if (error != CRT_OK) {
        return error;
    }
    if (size != room) {
        return crt_fail(server, CRT_ERR_ARGUMENT, "a copy from a tensor of %u bytes to one of %u", (unsigned)size,
                        (unsigned)room);
    }
    uint8_t *data = crt_tensor_bytes(to);
    (void)memmove(data, crt_tensor_bytes(from), size);
    crt_memory_claim(server, to);
    crt_memory_written(server, data, size);
    crt_reply_null(server);
    return CRT_OK;
}

static int crt_serve_block(struct crt_server *server, uint32_t size, uint32_t align)
{
    const void *memory = crt_pool_alloc(&server->pool, size, align);
    if (memory == NULL) {
        return crt_fail(server, CRT_ERR_MEMORY,
                        "no room for %u bytes: %u of %u are free, %u of %u blocks in use; --pool sets both",
                        (unsigned)size, (unsigned)crt_pool_available(&server->pool), (unsigned)server->pool.size,
                        (unsigned)server->pool.count, CRT_POOL_BLOCKS);
    }
    crt_reply_handle(server, (uintptr_t)memory);
    return CRT_OK;
}

/* Arguments: device, size, alignment, dtype. */
static int crt_serve_alloc(struct crt_server *server)
{
    const int64_t size = server->values[1].v_int64;
    const int64_t align = server->values[2].v_int64;
    if (size < 0 || size > UINT32_MAX || align < 0 || align > 4096 || (align & (align - 1)) != 0) {
        return crt_fail(server, CRT_ERR_ARGUMENT, "a size of 4 GiB or more, or an alignment that is no power of two");
    }
    return crt_serve_block(server, (uint32_t)size, (uint32_t)align);
}

/* Arguments: tensor, null or the name of a memory scope. */
static int crt_serve_alloc_scope(struct crt_server *server)
{
    uint32_t size;
    const int error = crt_tensor_size(server, server->values[0].v_handle, &size);
    if (error != CRT_OK) {
        return error;
    }
    const char *scope = server->codes[1] == kTVMStr ? server->values[1].v_str : "";
    if ((scope[0] != '\0') && (strcmp(scope, "global") != 0)) {
        return crt_fail(server, CRT_ERR_NAME, "this device has no memory scope %s", scope);
    }
    return crt_serve_block(server, size, CRT_POOL_ALIGN);
}

/* Arguments: device, handle. */
static int crt_serve_free(struct crt_server *server)
{
    const uint64_t handle = (uint64_t)server->values[1].v_int64;
    if (handle != (uintptr_t)handle || crt_pool_free(&server->pool, (uintptr_t)handle) != CRT_OK) {
        return crt_fail(server, CRT_ERR_ADDRESS, "no block of memory was allocated at 0x%08x%08x",
                        (unsigned)(handle >> 32), (unsigned)handle);
    }
    crt_reply_null(server);
    return CRT_OK;
}

/* Arguments: handle, its type. Modules and tensors are part of the image, so there is nothing to free. */
static int crt_serve_free_handle(struct crt_server *server)
{
    const uint64_t handle = (uint64_t)server->values[0].v_int64;
    const int64_t type = server->values[1].v_int64;
    int error = CRT_ERR_ARGUMENT;
    if (type == kTVMModuleHandle) {
        error = crt_module_index(server, handle);
    } else if (type == kTVMPackedFuncHandle) {
        error = crt_function_free(server, handle);
    } else if (type == kTVMNDArrayHandle && crt_memory_published(server, handle) != NULL) {
        error = CRT_OK;
    } else {
        (void)crt_fail(server, error, "0x%08x%08x is no handle of type %d", (unsigned)(handle >> 32),
                       (unsigned)handle, (int)type);
    }
    if (error < 0) {
        return error;
    }
    crt_reply_null(server);
    return CRT_OK;
}

static int crt_serve_nothing(struct crt_server *server)
{
    crt_reply_null(server);
    return CRT_OK;
}

static int crt_serve_get_global(struct crt_server *server)
{
    const uint32_t handle = crt_function_global(server, server->values[0].v_str);
    if (handle == 0) {
        crt_reply_null(server);
    } else {
        crt_reply_handle(server, handle);
    }
    return CRT_OK;
}

/* A request whose body is a sequence of arguments: their types (0xff is any), and the function that handles it. */
struct crt_service {
    uint8_t code;
    uint8_t count;
    uint8_t types[4];
    int (*serve)(struct crt_server *server);
};

#define CRT_ANY 0xffu

static const struct crt_service crt_services[] = {
    {CRT_RPC_GET_GLOBAL_FUNC, 1, {kTVMStr}, crt_serve_get_global},
    {CRT_RPC_FREE_HANDLE, 2, {kTVMOpaqueHandle, kTVMArgInt}, crt_serve_free_handle},
    {CRT_RPC_ALLOC_DATA, 4, {kDLDevice, kTVMArgInt, kTVMArgInt, kTVMDataType}, crt_serve_alloc},
    {CRT_RPC_FREE_DATA, 2, {kDLDevice, kTVMOpaqueHandle}, crt_serve_free},
    {CRT_RPC_STREAM_SYNC, 2, {kDLDevice, CRT_ANY}, crt_serve_nothing},
    {CRT_RPC_COPY_AMONG_REMOTE, 3, {kTVMDLTensorHandle, kTVMDLTensorHandle, CRT_ANY}, crt_serve_copy_among},
    {CRT_RPC_ALLOC_DATA_WITH_SCOPE, 2, {kTVMDLTensorHandle, CRT_ANY}, crt_serve_alloc_scope},
    {CRT_RPC_CREATE_STREAM, 0, {0}, crt_serve_nothing},
    {CRT_RPC_FREE_STREAM, 0, {0}, crt_serve_nothing},
    {CRT_RPC_SET_STREAM, 0, {0}, crt_serve_nothing},
};

static int crt_serve_arguments(struct crt_server *server, struct crt_cursor *cursor,
                               const struct crt_service *service)
{
    const int count = crt_args_take(server, cursor);
    if (count < 0) {
        return count;
    }
    for (int i = 0; i < service->count; i++) {
        if (i >= count || (service->types[i] != CRT_ANY && service->types[i] != server->codes[i])) {
            return crt_fail(server, CRT_ERR_ARGUMENT, "argument %d of request %d is missing or of a wrong type", i,
                            service->code);
        }
    }
    return service->serve(server);
}

/* InitServer: u64 length, version of the protocol, no arguments. */
static int crt_serve_init(struct crt_server *server, struct crt_cursor *cursor)
{
    const uint64_t size = crt_take(cursor, 8);
    if (cursor->bad || size > (uint64_t)(cursor->end - cursor->at)) {
        return crt_fail(server, CRT_ERR_FORMAT, "the version of the protocol is cut short");
    }
    crt_reply_null(server);
    return CRT_OK;
}

static int crt_serve_request(struct crt_server *server, uint32_t code, struct crt_cursor *cursor)
{
    for (size_t i = 0; i < (sizeof(crt_services) / sizeof(crt_services[0])); i++) {
        if (crt_services[i].code == code) {
            return crt_serve_arguments(server, cursor, &crt_services[i]);
        }
    }
    switch (code) {
    case CRT_RPC_INIT_SERVER:
        return crt_serve_init(server, cursor);
    case CRT_RPC_CALL_FUNC:
        return crt_serve_call(server, cursor);
    case CRT_RPC_COPY_FROM_REMOTE:
        return crt_serve_copy(server, cursor, 0);
    case CRT_RPC_COPY_TO_REMOTE:
        return crt_serve_copy(server, cursor, 1);
    default:
        return crt_fail(server, CRT_ERR_ARGUMENT, "a request of code %u is not supported", (unsigned)code);
    }
}

/* Results use the part of the receive buffer that the request leaves, from a multiple of 8 on. */
static void crt_serve_scratch(struct crt_server *server, uint8_t *end)
{
    const uint32_t room = (uint32_t)(server->config.receive + server->config.receive_size - end);
    const uint32_t pad = (uint32_t)(-(uintptr_t)end & 7u);
    server->scratch = end + (room > pad ? pad : 0);
    server->scratch_size = room > pad ? room - pad : 0;
}

/* An RPC packet: u64 bytes that follow, i32 code, body. */
static void crt_serve(struct crt_server *server, uint8_t *packet, uint32_t length)
{
    struct crt_cursor cursor = {packet, packet + length, 0};
    const uint64_t follow = crt_take(&cursor, CRT_RPC_HEADER);
    if (!cursor.bad && follow == 0) {
        return;
    }
    server->pending = 1;
    server->running = NULL;
    server->start = crt_time_now(server);
    (void)crt_time_check(server);
    crt_serve_scratch(server, cursor.end);
    const uint32_t code = (uint32_t)crt_take(&cursor, 4);
    int error;
    if (cursor.bad || (follow != (length - CRT_RPC_HEADER))) {
        error = crt_fail(server, CRT_ERR_FORMAT, "a request does not have the length that it says");
    } else if (code == CRT_RPC_SHUTDOWN) {
        server->stopped = 1;
        server->pending = 0;
        return;
    } else {
        error = crt_serve_request(server, code, &cursor);
    }
    if ((error < 0) && server->pending) {
        crt_reply_error(server);
    }
    server->running = NULL;
}

/*
 * Only the beginning of a message is in the buffer. A host that creates a graph executor sends the whole graph, which
 * nobody reads: that call is answered. All others are refused.
 */
static void crt_serve_large(struct crt_server *server, uint32_t length, uint32_t stored)
{
    struct crt_call call = {.server = server, .code = kTVMNullptr};
    struct crt_cursor cursor = {server->config.receive + CRT_SERVER_OVERHEAD, server->config.receive + stored, 0};
    const uint64_t code = crt_take(&cursor, 4);
    const uint64_t handle = crt_take(&cursor, 8);
    int error;
    if ((code == CRT_RPC_CALL_FUNC) && crt_function_creates_graph(server, handle)) {
        error = crt_executor_create_graph(&call);
    } else {
        error = crt_fail(server, CRT_ERR_FORMAT, "a packet of %u bytes: this device takes %u",
                         (unsigned)(length - CRT_SERVER_OVERHEAD), (unsigned)(stored - CRT_SERVER_OVERHEAD));
    }
    if (error == CRT_OK) {
        crt_reply_value(server, &call);
    } else {
        crt_reply_error(server);
    }
}

/* Handle a received packet; `stored` bytes of it are in the buffer. */
static void crt_server_packet(struct crt_server *server, uint32_t length, uint32_t stored)
{
    uint8_t *packet = server->config.receive;
    const enum crt_session_event event = crt_session_receive(&server->session, packet, length);
    if (event == CRT_SESSION_STARTED) {
        /* The former host is gone, and its allocations with it. */
        crt_pool_init(&server->pool, server->config.pool, server->config.pool_size);
        (void)memset(server->evaluators, 0, sizeof server->evaluators);
        server->run_number = 0;
    } else if ((event == CRT_SESSION_MESSAGE) && (stored < length)) {
        crt_serve_large(server, length, stored);
    } else if (event == CRT_SESSION_MESSAGE) {
        crt_serve(server, packet + CRT_SESSION_HEADER, length - CRT_SESSION_HEADER);
    } else {
        /* Nothing to do. */
    }
}

int crt_server_feed(struct crt_server *server, const uint8_t *bytes, size_t size)
{
    struct crt_frame_reader *reader = &server->reader;
    while (!server->stopped) {
        const enum crt_frame_event event = crt_frame_read(reader, &bytes, &size);
        if (event == CRT_FRAME_NONE) {
            return CRT_OK;
        }
        crt_server_packet(server, reader->length,
                              (event == CRT_FRAME_PACKET) ? reader->length : reader->capacity);
    }
    return CRT_SERVER_SHUTDOWN;
}

void crt_server_fault(struct crt_server *server, struct crt_fault *fault)
{
    const char *function = (server->running != NULL) ? server->running : "the server";
    if (server->config.port == NULL) {
        return; /* a fault before crt_server_init is kept for a host */
    }
    crt_frame_resync(&server->session.writer);
    (void)crt_fail(server, CRT_ERR_CALL, "fault in %s: pc 0x%08x, lr 0x%08x, cfsr 0x%08x", function,
                   (unsigned)fault->pc, (unsigned)fault->lr, (unsigned)fault->cfsr);
    crt_server_report(server, fault);
}
