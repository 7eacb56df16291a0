/* SPDX-License-Identifier: Apache-2.0 */
#include "crt_internal.h"

#include <crt/fault.h>
#include <crt/registry.h>
#include <crt/version.h>

#include <string.h>

/*
 * A module's handle is index | 0x8000, a function's is the module's << 16 | index | 0x8000. Module 0 is the
 * system library, 1 + i is the executor of model i; then come the global functions and the evaluators.
 */
static uint32_t crt_module_globals(const struct crt_server *server)
{
    return 1u + server->config.num_models;
}

uint32_t crt_module_handle(uint32_t module)
{
    return module | CRT_HANDLE_BIT;
}

static uint32_t crt_function_handle(uint32_t module, uint32_t index)
{
    return (crt_module_handle(module) << 16) | index | CRT_HANDLE_BIT;
}

uint32_t crt_function_evaluator(const struct crt_server *server, uint32_t index)
{
    return crt_function_handle(crt_module_globals(server) + 1, index);
}

int crt_module_index(struct crt_server *server, uint64_t handle)
{
    const uint64_t index = handle ^ CRT_HANDLE_BIT;
    if (index >= crt_module_globals(server)) {
        return crt_fail(server, CRT_ERR_NAME, "there is no module 0x%08x%08x", (unsigned)(handle >> 32),
                        (unsigned)handle);
    }
    return (int)index;
}

static int crt_global_system_lib(struct crt_call *call)
{
    crt_call_return_handle(call, crt_module_handle(0), kTVMModuleHandle);
    return CRT_OK;
}

static int crt_global_get_function(struct crt_call *call)
{
    struct crt_server *server = call->server;
    const int module = crt_module_index(server, (uint64_t)call->values[0].v_int64);
    const char *name = call->values[1].v_str;
    const uint32_t handle = crt_function_find(server, (uint32_t)module, name, strlen(name));
    if (handle != 0) {
        crt_call_return_handle(call, handle, kTVMPackedFuncHandle);
    }
    return CRT_OK;
}

static int crt_global_max_packet(struct crt_call *call)
{
    crt_call_return_int(call, call->server->config.receive_size - CRT_SERVER_OVERHEAD);
    return CRT_OK;
}

/* Random bytes; the top byte of a floating-point value is 0x3f, which makes it positive and less than 2. */
static int crt_global_random_fill(struct crt_call *call)
{
    struct crt_server *server = call->server;
    const struct crt_port *port = server->config.port;
    const DLTensor *tensor = call->values[0].v_handle;
    uint8_t *data = (uint8_t *)tensor->data + tensor->byte_offset;
    const uint32_t top = tensor->dtype.code == kDLFloat ? tensor->dtype.bits / 8u - 1u : UINT32_MAX;
    uint32_t state = (port->random != NULL) ? (port->random(port->context) | 1u) : 0x9e3779b9u;
    uint32_t size;
    const int error = crt_memory_tensor(server, CRT_WRITE, tensor, &size);
    if (error != CRT_OK) {
        return error;
    }
    for (uint32_t i = 0; i < size; i++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        data[i] = (i & top) == top ? 0x3f : (uint8_t)(state >> 24);
    }
    crt_memory_written(server, data, size);
    return CRT_OK;
}

/* "crtgen <version> <model> <model> ..." */
static int crt_global_info(struct crt_call *call)
{
    struct crt_server *server = call->server;
    char *at = (char *)server->scratch;
    size_t left = server->scratch_size;
    const char *word = "crtgen " CRT_VERSION_STRING;
    for (uint32_t i = 0;; i++) {
        const size_t size = strlen(word);
        if (left < size + 1) {
            return crt_fail(server, CRT_ERR_MEMORY, "the names of the models do not fit into the receive buffer");
        }
        (void)memcpy(at, word, size);
        at += size;
        left -= size + 1;
        if (i == server->config.num_models) {
            break;
        }
        *at++ = ' ';
        word = server->config.models[i]->name;
    }
    *at = '\0';
    crt_call_return_text(call, (const char *)server->scratch);
    return CRT_OK;
}

static int crt_global_memory(struct crt_call *call)
{
    struct crt_server *server = call->server;
    const uint32_t sizes[2] = {server->pool.size, crt_pool_available(&server->pool)};
    uint64_t *result = crt_call_results(call, 1);
    if (result == NULL) {
        return CRT_ERR_MEMORY;
    }
    (void)memcpy(result, sizes, sizeof sizes);
    crt_call_return_bytes(call, result, sizeof sizes);
    return CRT_OK;
}

static int crt_global_ticks_per_second(struct crt_call *call)
{
    crt_call_return_int(call, call->server->config.port->ticks_per_second);
    return CRT_OK;
}

/* The last fault before this start; null if there was none, or a host knows of it already. */
static int crt_global_fault(struct crt_call *call)
{
    struct crt_fault *fault = call->server->config.fault;
    if ((fault == NULL) || !crt_fault_is_valid(fault)) {
        return CRT_OK;
    }
    uint64_t *result = crt_call_results(call, sizeof *fault / 8);
    if (result == NULL) {
        return CRT_ERR_MEMORY;
    }
    (void)memcpy(result, fault, sizeof *fault);
    fault->magic = 0;
    crt_call_return_bytes(call, result, sizeof *fault);
    return CRT_OK;
}

#ifdef CRT_PROFILE
#define CRT_GLOBAL_COUNT "\016"
#define CRT_GLOBAL_PROFILE "crtgen.profile\0"
#else
#define CRT_GLOBAL_COUNT "\015"
#define CRT_GLOBAL_PROFILE
#endif

/* The names, and in the same order the functions. */
static const char crt_global_names[] = CRT_GLOBAL_COUNT "\0"
                                                        "runtime.SystemLib\0"
                                                        "tvm.rpc.server.ModuleGetFunction\0"
                                                        "runtime.RPCTimeEvaluator\0"
                                                        "tvm.rpc.server.GetCRTMaxPacketSize\0"
                                                        "tvm.contrib.random.random_fill\0"
                                                        "tvm.aot_executor.create\0"
                                                        "tvm.graph_executor.create\0"
                                                        "crtgen.info\0"
                                                        "crtgen.memory\0"
                                                        "crtgen.ticks_per_second\0"
                                                        "crtgen.calibrate\0"
                                                        "crtgen.measure\0"
                                                        "crtgen.fault\0" CRT_GLOBAL_PROFILE;

static const struct crt_builtin crt_global_functions[] = {
    {"", crt_global_system_lib},
    {"ms", crt_global_get_function},
    {"msiiiiiiii", crt_time_evaluator},
    {"", crt_global_max_packet},
    {"t", crt_global_random_fill},
    {"mds", crt_executor_create},
    {"smii", crt_executor_create_graph},
    {"", crt_global_info},
    {"", crt_global_memory},
    {"", crt_global_ticks_per_second},
    {"i", crt_time_calibrate},
    {"mi", crt_time_measure},
    {"", crt_global_fault},
#ifdef CRT_PROFILE
    {"m", crt_profile},
#endif
};

/* The names of a module's functions, NULL if it has none. */
static const char *crt_module_names(const struct crt_server *server, uint32_t module)
{
    if (module == 0) {
        return (server->config.system_lib != NULL) ? server->config.system_lib->registry->names : NULL;
    }
    if (module < crt_module_globals(server)) {
        return crt_executor_names;
    }
    return module == crt_module_globals(server) ? crt_global_names : NULL;
}

uint32_t crt_function_find(const struct crt_server *server, uint32_t module, const char *name, size_t size)
{
    const char *names = crt_module_names(server, module);
    const int32_t index = names == NULL ? CRT_ERR_NAME : crt_names_find(names, name, size);
    return index < 0 ? 0 : crt_function_handle(module, (uint32_t)index);
}

uint32_t crt_function_global(const struct crt_server *server, const char *name, size_t size)
{
    return crt_function_find(server, crt_module_globals(server), name, size);
}

static struct crt_evaluator *crt_evaluator_at(struct crt_server *server, uint64_t handle)
{
    for (uint32_t i = 0; i < CRT_SERVER_EVALUATORS; i++) {
        if (server->evaluators[i].function != 0 && crt_function_evaluator(server, i) == handle) {
            return &server->evaluators[i];
        }
    }
    return NULL;
}

/* The name of a function, NULL if there is none with that handle. */
static const char *crt_function_name(struct crt_server *server, uint64_t handle)
{
    const uint32_t module = (uint32_t)(handle >> 16) ^ CRT_HANDLE_BIT;
    const uint32_t index = (uint32_t)handle & 0xffffu;
    if (crt_evaluator_at(server, handle) != NULL) {
        return "a time evaluator";
    }
    const char *names = crt_module_names(server, module);
    if (handle >> 32 != 0 || names == NULL || (index & CRT_HANDLE_BIT) == 0) {
        return NULL;
    }
    return crt_names_at(names, index ^ CRT_HANDLE_BIT);
}

int crt_function_check(struct crt_server *server, uint64_t handle)
{
    if (crt_function_name(server, handle) == NULL) {
        return crt_fail(server, CRT_ERR_NAME, "there is no function 0x%08x%08x", (unsigned)(handle >> 32),
                        (unsigned)handle);
    }
    return CRT_OK;
}

int crt_function_free(struct crt_server *server, uint64_t handle)
{
    struct crt_evaluator *evaluator = crt_evaluator_at(server, handle);
    if (evaluator != NULL) {
        evaluator->function = 0;
        return CRT_OK;
    }
    return crt_function_check(server, handle);
}

const char *crt_call_reason(const struct crt_server *server)
{
    const struct crt_backend *backend = server->config.backend;
    return ((backend != NULL) && (backend->last_error != NULL)) ? backend->last_error : "";
}

/* Whether an argument may be written, if it is a tensor. */
static int crt_argument_writable(struct crt_call *call, int index)
{
    uint32_t size;
    return (call->codes[index] == kTVMDLTensorHandle)
               ? crt_memory_tensor(call->server, CRT_WRITE, call->values[index].v_handle, &size)
               : CRT_OK;
}

/* Whether an argument is what a function takes. */
static int crt_argument_check(struct crt_call *call, int index, const struct crt_argument *wanted)
{
    const DLTensor *tensor = call->values[index].v_handle;
    const char *name = call->server->running;
    const uint32_t align = wanted->dtype.bits / 8u;
    uint32_t size = 0;
    if (wanted->dtype.bits == 0) {
        return (call->codes[index] == kTVMArgInt)
                   ? CRT_OK
                   : crt_fail(call->server, CRT_ERR_ARGUMENT, "argument %d of %s has to be an integer", index, name);
    }
    if (call->codes[index] != kTVMDLTensorHandle || crt_tensor_size(call->server, tensor, &size) != CRT_OK ||
        size != wanted->nbytes || memcmp(&tensor->dtype, &wanted->dtype, sizeof tensor->dtype) != 0) {
        return crt_fail(call->server, CRT_ERR_ARGUMENT,
                        "argument %d of %s has to be a tensor of %u bytes, type code %u, %u bits", index, name,
                        (unsigned)wanted->nbytes, (unsigned)wanted->dtype.code, (unsigned)wanted->dtype.bits);
    }
    if (align > 1 && (uintptr_t)tensor->data % align != 0) {
        return crt_fail(call->server, CRT_ERR_ADDRESS, "argument %d of %s has to lie at a multiple of %u bytes",
                        index, name, (unsigned)align);
    }
    return CRT_OK;
}

/* Whether the arguments are what a function of the registry takes: its code does not look. */
static int crt_signature_check(struct crt_call *call, uint32_t index)
{
    struct crt_server *server = call->server;
    const struct crt_signatures *signatures = server->config.signatures;
    int error = CRT_OK;
    if (signatures == NULL) {
        for (int i = 0; error == CRT_OK && i < call->count; i++) {
            error = crt_argument_writable(call, i);
        }
        return error;
    }
    const uint16_t *at = crt_signature_at(signatures, index);
    if (*at == CRT_SIGNATURE_UNKNOWN) {
        return crt_fail(server, CRT_ERR_ARGUMENT, "%s cannot be called from here: its arguments are not known",
                        server->running);
    }
    if (call->count != *at) {
        return crt_fail(server, CRT_ERR_ARGUMENT, "%s takes %u arguments, not %d", server->running,
                        (unsigned)*at, call->count);
    }
    for (int i = 0; error == CRT_OK && i < call->count; i++) {
        const uint16_t wanted = at[1 + i];
        error = crt_argument_check(call, i, &signatures->arguments[wanted & ~CRT_SIGNATURE_READS]);
        if (error == CRT_OK && (wanted & CRT_SIGNATURE_READS) == 0) {
            error = crt_argument_writable(call, i);
        }
    }
    return error;
}

/* A function of the image's registry. */
static int crt_call_packed(struct crt_call *call, uint32_t index)
{
    struct crt_server *server = call->server;
    const TVMModule *module = server->config.system_lib;
    struct crt_backend *backend = server->config.backend;
    const TVMBackendPackedCFunc function = crt_registry_at(module, index);
    if (backend != NULL) {
        backend->last_error = NULL;
    }
    int error = crt_signature_check(call, index);
    if (error != CRT_OK) {
        return error;
    }
    error = function(call->values, call->codes, call->count, &call->value, &call->code,
                               (void *)(uintptr_t)module->registry);
    crt_executor_called(server, crt_names_at(module->registry->names, index));
    for (int i = 0; i < call->count; i++) {
        if (call->codes[i] == kTVMDLTensorHandle) {
            const DLTensor *tensor = call->values[i].v_handle;
            uint32_t size;
            if (crt_tensor_size(server, tensor, &size) == CRT_OK) {
                crt_memory_written(server, (uint8_t *)tensor->data + tensor->byte_offset, size);
            }
        }
    }
    if (error != 0) {
        const char *why = crt_call_reason(server);
        return crt_fail(server, CRT_ERR_CALL, "%s failed with code %d%s%s", server->running, error,
                        (why[0] != '\0') ? ": " : "", why);
    }
    if (call->code == kTVMNDArrayHandle) {
        return crt_fail(server, CRT_ERR_CALL, "%s returns a tensor, which only executors can", server->running);
    }
    return CRT_OK;
}

int crt_function_call(struct crt_call *call, uint64_t handle)
{
    struct crt_server *server = call->server;
    const int error = crt_function_check(server, handle);
    if (error != CRT_OK) {
        return error;
    }
    server->running = crt_function_name(server, handle);
    return crt_function_invoke(call, (uint32_t)handle);
}

int crt_function_invoke(struct crt_call *call, uint32_t handle)
{
    const struct crt_server *server = call->server;
    const uint32_t module = (handle >> 16) ^ CRT_HANDLE_BIT;
    const uint32_t index = (handle & 0xffffu) ^ CRT_HANDLE_BIT;
    call->value.v_int64 = 0;
    call->code = kTVMNullptr;
    if (module == 0) {
        return crt_call_packed(call, index);
    }
    if (module == crt_module_globals(server)) {
        return crt_call_builtin(call, &crt_global_functions[index]);
    }
    if (module > crt_module_globals(server)) {
        call->index = index;
        return crt_time_evaluate(call);
    }
    call->index = module - 1;
    return crt_call_builtin(call, &crt_executor_functions[index]);
}

/* Whether a value of that type code is what a letter stands for. */
static int crt_letter_allows(char letter, int code)
{
    switch (letter) {
    case 'i':
        return code == kTVMArgInt;
    case 's':
        return code == kTVMStr;
    case 'm':
        return code == kTVMModuleHandle;
    case 'd':
        return code == kDLDevice;
    case 't':
        return code == kTVMDLTensorHandle;
    default: /* 'n': a name or an index */
        return code == kTVMStr || code == kTVMArgInt;
    }
}

int crt_call_builtin(struct crt_call *call, const struct crt_builtin *builtin)
{
    for (int i = 0; builtin->args[i] != '\0'; i++) {
        if ((i >= call->count) || !crt_letter_allows(builtin->args[i], call->codes[i])) {
            return crt_fail(call->server, CRT_ERR_ARGUMENT, "argument %d of %s is missing or of a wrong type", i,
                            call->server->running);
        }
    }
    return builtin->run(call);
}

void crt_call_return_int(struct crt_call *call, int64_t value)
{
    call->value.v_int64 = value;
    call->code = kTVMArgInt;
}

void crt_call_return_handle(struct crt_call *call, uint32_t handle, int code)
{
    call->value.v_handle = (void *)(uintptr_t)handle;
    call->code = code;
}

void crt_call_return_text(struct crt_call *call, const char *text)
{
    call->value.v_str = text;
    call->code = kTVMStr;
}

void crt_call_return_bytes(struct crt_call *call, const void *data, uint32_t size)
{
    call->server->blob.data = data;
    call->server->blob.size = size;
    call->value.v_handle = &call->server->blob;
    call->code = kTVMBytes;
}

int crt_call_model(struct crt_call *call)
{
    const int module = crt_module_index(call->server, (uint64_t)call->values[0].v_int64);
    if (module == 0) {
        return crt_fail(call->server, CRT_ERR_ARGUMENT, "%s takes an executor, not the system library",
                        call->server->running);
    }
    return module - 1;
}

uint64_t *crt_call_results(struct crt_call *call, uint32_t count)
{
    struct crt_server *server = call->server;
    if (count > server->scratch_size / 8) {
        (void)crt_fail(server, CRT_ERR_MEMORY, "%u results: the receive buffer has room for %u", (unsigned)count,
                       (unsigned)(server->scratch_size / 8));
        return NULL;
    }
    return (uint64_t *)(void *)server->scratch;
}
