/* SPDX-License-Identifier: Apache-2.0 */
#include "crt_internal.h"

#include <string.h>

int crt_handle_unknown(struct crt_server *server, const char *kind, uint64_t handle)
{
    return crt_fail(server, CRT_ERR_NAME, "there is no %s 0x%08x%08x", kind, (unsigned)(handle >> 32),
                    (unsigned)handle);
}

int crt_module_index(struct crt_server *server, uint64_t handle)
{
    const uint64_t index = handle ^ CRT_HANDLE_BIT;
    return CRT_MODULE_EXISTS(server, index) ? (int)index : crt_handle_unknown(server, "module", handle);
}

int32_t crt_endpoint_find(const struct crt_endpoints *table, const char *name)
{
    for (uint32_t i = 0; i < table->count; i++) {
        if (strcmp(table->items[i].name, name) == 0) {
            return (int32_t)i;
        }
    }
    return CRT_ERR_NAME;
}

const char *crt_endpoint_name(const struct crt_endpoints *table, uint32_t index)
{
    return (index < table->count) ? table->items[index].name : NULL;
}

/* For each type code on the wire, the letter that stands for it in an endpoint. */
static const char crt_letters[] = "iufh_ydt_mgsb";

/* Return whether a value of that type code is what a letter stands for; 'n' is a name or an index. */
static int crt_letter_allows(char letter, int code)
{
    const char given = crt_letters[code];
    return (given == letter) || ((letter == 'n') && ((given == 's') || (given == 'i')));
}

int crt_endpoint_check(struct crt_call *call, const struct crt_endpoint *endpoint)
{
    const char *letters = endpoint->name + strlen(endpoint->name) + 1;
    for (int i = 0; letters[i] != '\0'; i++) {
        if ((i >= call->count) || !crt_letter_allows(letters[i], call->codes[i])) {
            return crt_fail(call->server, CRT_ERR_ARGUMENT, "argument %d of %s is missing or of a wrong type", i,
                            call->server->running);
        }
    }
    return CRT_OK;
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

const char *crt_call_reason(const struct crt_server *server)
{
    const struct crt_backend *backend = server->config.backend;
    return ((backend != NULL) && (backend->last_error != NULL)) ? backend->last_error : "";
}
