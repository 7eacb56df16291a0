/* SPDX-License-Identifier: Apache-2.0 */
/* Reads black boxes and counts, for hosts. */
#include "crt_internal.h"

#ifdef CRT_DRIFT

#include <crt/drift.h>

int crt_drift_counted(struct crt_call *call)
{
    const int module = crt_module_index(call->server, (uint64_t)call->values[0].v_int64);
    const struct crt_drift_reference *drift = (module > 0) ? call->server->config.models[module - 1]->drift : NULL;
    if (drift == NULL) {
        return CRT_OK;
    }
    uint64_t *result = crt_call_results(call, CRT_DRIFT_CBOR / 8u);
    if (result == NULL) {
        return CRT_ERR_MEMORY;
    }
    crt_call_return_bytes(call, result, (uint32_t)crt_drift_cbor(drift, (uint8_t *)result, CRT_DRIFT_CBOR));
    return CRT_OK;
}

#endif

#ifdef CRT_RECORD

#include <crt/record.h>

#include <string.h>

int crt_recorded(struct crt_call *call)
{
    const int module = crt_module_index(call->server, (uint64_t)call->values[0].v_int64);
    const struct crt_recorder *recorder = (module > 0) ? call->server->config.models[module - 1]->recorder : NULL;
    if (recorder == NULL) {
        return CRT_OK;
    }
    const uint64_t words[6] = {
        (uintptr_t)recorder->memory, crt_record_size(recorder), recorder->runs, recorder->layout,
        (uintptr_t)recorder->state,  recorder->state_bytes,
    };
    uint64_t *result = crt_call_results(call, 6);
    if (result == NULL) {
        return CRT_ERR_MEMORY;
    }
    (void)memcpy(result, words, sizeof words);
    crt_call_return_bytes(call, result, sizeof words);
    return CRT_OK;
}

static int crt_recorded_within(const uint8_t *memory, uint32_t bytes, uintptr_t address, uint64_t size)
{
    const uintptr_t offset = address - (uintptr_t)memory;
    return (memory != NULL) && (offset <= bytes) && (size <= (bytes - offset));
}

int crt_recorded_owns(const struct crt_server *server, enum crt_access access, uintptr_t address, uint64_t size)
{
    for (uint32_t i = 0; i < server->config.num_models; i++) {
        const struct crt_recorder *recorder = server->config.models[i]->recorder;
        if ((recorder != NULL) &&
            (((access == CRT_READ) && crt_recorded_within(recorder->memory, crt_record_size(recorder), address, size)) ||
             crt_recorded_within(recorder->state, recorder->state_bytes, address, size))) {
            return 1;
        }
    }
    return 0;
}

#endif
