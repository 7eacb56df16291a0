/* SPDX-License-Identifier: Apache-2.0 */
#include "crt_internal.h"

#include <string.h>

/* Return the names of the system library's functions, NULL if it has none. */
static const char *crt_module_registry(const struct crt_server *server)
{
    return (server->config.system_lib != NULL) ? server->config.system_lib->registry->names : NULL;
}

uint32_t crt_module_find(const struct crt_server *server, uint32_t module, const char *name)
{
    const char *names = crt_module_registry(server);
    int32_t index = CRT_ERR_NAME;
    if (module != 0) {
        index = crt_endpoint_find(&crt_executor_endpoints, name);
    } else if (names != NULL) {
        index = crt_names_find(names, name);
    } else {
        /* Not found. */
    }
    return (index < 0) ? 0 : crt_function_handle(module, (uint32_t)index);
}

const char *crt_module_name(const struct crt_server *server, uint32_t handle)
{
    const uint32_t index = CRT_HANDLE_INDEX(handle);
    if (CRT_HANDLE_MODULE(handle) != 0) {
        return crt_endpoint_name(&crt_executor_endpoints, index);
    }
    const char *names = crt_module_registry(server);
    return (names != NULL) ? crt_names_at(names, index) : NULL;
}

/* Return whether an argument may be written, if it is a tensor. */
static int crt_argument_writable(struct crt_call *call, int index)
{
    uint32_t size;
    return (call->codes[index] == kTVMDLTensorHandle)
               ? crt_memory_tensor(call->server, CRT_WRITE, call->values[index].v_handle, &size)
               : CRT_OK;
}

/* Return whether an argument is what a function takes. */
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

/* Return whether the arguments are what a function of the registry takes: its code does not look. */
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
    if (*at == CRT_SIGNATURE_ANY) {
        return CRT_OK;
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
static int crt_module_packed(struct crt_call *call, uint32_t index)
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
    crt_executor_called(server, server->running);
    for (int i = 0; i < call->count; i++) {
        if (call->codes[i] == kTVMDLTensorHandle) {
            const DLTensor *tensor = call->values[i].v_handle;
            uint32_t size;
            if (crt_tensor_size(server, tensor, &size) == CRT_OK) {
                crt_memory_written(server, crt_tensor_bytes(tensor), size);
            }
        }
    }
    if (error != 0) {
        const char *why = (call->code == kTVMStr) ? call->value.v_str : crt_call_reason(server);
        return crt_fail(server, CRT_ERR_CALL, "%s failed with code %d%s%s", server->running, error,
                        (why[0] != '\0') ? ": " : "", why);
    }
    if (call->code == kTVMNDArrayHandle) {
        return crt_fail(server, CRT_ERR_CALL, "%s returns a tensor, which only executors can", server->running);
    }
    return CRT_OK;
}

int crt_module_call(struct crt_call *call, uint32_t handle)
{
    const uint32_t module = CRT_HANDLE_MODULE(handle);
    const uint32_t index = CRT_HANDLE_INDEX(handle);
    if (module == 0) {
        return crt_module_packed(call, index);
    }
    const struct crt_endpoint *endpoint = &crt_executor_endpoints.items[index];
    const int error = crt_endpoint_check(call, endpoint);
    call->index = module - 1;
    return (error == CRT_OK) ? endpoint->run(call) : error;
}
