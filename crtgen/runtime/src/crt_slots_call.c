/* SPDX-License-Identifier: Apache-2.0 */
/* The slots for hosts. */
#include "crt_internal.h"

#ifdef CRT_SLOTS

#include <string.h>

/* Read an argument of 32 bits; a larger one becomes a value that no slot, offset or size has. */
static uint32_t crt_slots_number(const struct crt_call *call, uint32_t argument)
{
    const int64_t value = call->values[argument].v_int64;
    return ((value < 0) || (value > (int64_t)UINT32_MAX)) ? UINT32_MAX : (uint32_t)value;
}

/* Handle the result of a call: tell the server if another model runs, or none. */
static int crt_slots_answer(struct crt_call *call, int32_t error)
{
    crt_server_adopt(call->server);
    switch (error) {
    case CRT_OK:
        return CRT_OK;
    case CRT_ERR_STATE:
        return crt_fail(call->server, CRT_ERR_STATE,
                        "the slot is in use, and stays as it is: take another one, or confirm what is on trial");
    case CRT_ERR_CALL:
        return crt_fail(call->server, CRT_ERR_CALL, "the flash refuses");
    case CRT_ERR_NAME:
    case CRT_ERR_ADDRESS:
        return crt_fail(call->server, error, "there is no such slot, or place in it");
    default:
        return crt_fail(call->server, CRT_ERR_CALL, "the model is refused: %s", crt_slot_reason(error));
    }
}

static struct crt_slots *crt_slots_of(struct crt_call *call)
{
    if (call->server->config.slots == NULL) {
        (void)crt_fail(call->server, CRT_ERR_STATE, "this firmware has no slots");
    }
    return call->server->config.slots;
}

/* Describe a slot: its address, the state of its model, its version, whether it is committed, 0, and its name. */
#define CRT_SLOTS_WORDS 16u

int crt_slots_about(struct crt_call *call)
{
    const struct crt_slots *slots = crt_slots_of(call);
    uint32_t count = 0;
    if (slots == NULL) {
        return CRT_ERR_STATE;
    }
    const uint32_t all = 5u + (CRT_SLOTS_WORDS * slots->config.count);
    uint64_t *result = crt_call_results(call, (all + 1u) / 2u);
    if (result == NULL) {
        return CRT_ERR_MEMORY;
    }
    int32_t *words = (int32_t *)(void *)result;
    words[count++] = slots->active;
    words[count++] = slots->last.previous;
    words[count++] = slots->last.trial;
    words[count++] = slots->last.tries;
    words[count++] = (int32_t)slots->config.flash->write_size;
    for (uint32_t i = 0; i < slots->config.count; i++) {
        const struct crt_slot_place *place = &slots->config.places[i];
        words[count++] = (int32_t)place->origin;
        words[count++] = (int32_t)place->size;
        words[count++] = (int32_t)place->work;
        words[count++] = (int32_t)place->work_size;
        const int32_t status = crt_slots_check(slots, i);
        words[count++] = status;
        (void)memset(&words[count], 0, 4u * (CRT_SLOTS_WORDS - 5u));
        if (status == CRT_OK) {
            const struct crt_slot_header *header = (const struct crt_slot_header *)place->origin;
            words[count] = (int32_t)header->version;
            words[count + 1u] = ((slots->newest != 0u) && (slots->last.active == i)) ? 1 : 0;
            (void)memcpy(&words[count + 3u], header->name, sizeof header->name);
        }
        count += CRT_SLOTS_WORDS - 5u;
    }
    crt_call_return_bytes(call, result, 4u * count);
    return CRT_OK;
}

int crt_slots_erase(struct crt_call *call)
{
    struct crt_slots *slots = crt_slots_of(call);
    return (slots == NULL) ? CRT_ERR_STATE : crt_slots_answer(call, crt_slots_begin(slots, crt_slots_number(call, 0u)));
}

int crt_slots_store(struct crt_call *call)
{
    struct crt_slots *slots = crt_slots_of(call);
    const DLTensor *tensor = call->values[2].v_handle;
    uint32_t size = 0;
    if (slots == NULL) {
        return CRT_ERR_STATE;
    }
    const int error = crt_memory_tensor(call->server, CRT_READ, tensor, &size);
    if (error != CRT_OK) {
        return error;
    }
    const int32_t written = crt_slots_write(slots, crt_slots_number(call, 0u), crt_slots_number(call, 1u),
                                            crt_tensor_bytes(tensor), size);
    return (written == CRT_ERR_STATE) ? crt_fail(call->server, CRT_ERR_STATE, "nothing was begun in that slot")
                                      : crt_slots_answer(call, written);
}

int crt_slots_transfer(struct crt_call *call)
{
    struct crt_slots *slots = crt_slots_of(call);
    const struct crt_slots_span from = {crt_slots_number(call, 2u), crt_slots_number(call, 3u),
                                        crt_slots_number(call, 4u)};
    return (slots == NULL)
               ? CRT_ERR_STATE
               : crt_slots_answer(call, crt_slots_copy(slots, crt_slots_number(call, 0u), crt_slots_number(call, 1u), &from));
}

int crt_slots_decide_for(struct crt_call *call)
{
    struct crt_slots *slots = crt_slots_of(call);
    return (slots == NULL) ? CRT_ERR_STATE : crt_slots_answer(call, crt_slots_commit(slots, crt_slots_number(call, 0u)));
}

int crt_slots_again(struct crt_call *call)
{
    struct crt_slots *slots = crt_slots_of(call);
    if (slots == NULL) {
        return CRT_ERR_STATE;
    }
    const struct crt_slots_config config = slots->config;
    return crt_slots_answer(call, crt_slots_start(slots, &config));
}

int crt_slots_keep(struct crt_call *call)
{
    struct crt_slots *slots = crt_slots_of(call);
    return (slots == NULL) ? CRT_ERR_STATE : crt_slots_answer(call, crt_slots_confirm(slots));
}

int crt_slots_back(struct crt_call *call)
{
    struct crt_slots *slots = crt_slots_of(call);
    return (slots == NULL) ? CRT_ERR_STATE : crt_slots_answer(call, crt_slots_revert(slots));
}

#endif
