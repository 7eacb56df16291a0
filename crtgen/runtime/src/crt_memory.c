/* SPDX-License-Identifier: Apache-2.0 */
#include "crt_internal.h"

/* Return whether the bytes are within a tensor of an array of them. */
static int crt_tensors_own(const struct crt_tensor *tensors, uint32_t count, uintptr_t address, uint64_t size)
{
    for (uint32_t i = 0; i < count; i++) {
        const uintptr_t offset = address - (uintptr_t)tensors[i].data;
        if ((offset <= tensors[i].nbytes) && (size <= (tensors[i].nbytes - offset))) {
            return 1;
        }
    }
    return 0;
}

static int crt_memory_owns(const struct crt_server *server, uintptr_t address, uint64_t size)
{
    for (uint32_t i = 0; i < server->config.num_models; i++) {
        const struct crt_model *model = server->config.models[i];
        if (crt_tensors_own(model->inputs, model->num_inputs, address, size) ||
            crt_tensors_own(model->outputs, model->num_outputs, address, size)) {
            return 1;
        }
    }
    return crt_pool_owns(&server->pool, address, size);
}

/* Return whether the bytes are within a constant of a model. */
static int crt_memory_constant(const struct crt_server *server, uintptr_t address, uint64_t size)
{
    const struct crt_params *params = server->config.params;
    for (uint32_t i = 0; (params != NULL) && (i < params->count); i++) {
        const uintptr_t offset = address - (uintptr_t)params->items[i].data;
        if ((offset <= params->items[i].nbytes) && (size <= (params->items[i].nbytes - offset))) {
            return 1;
        }
    }
    return 0;
}

int crt_memory_check(struct crt_server *server, enum crt_access access, uint64_t address, uint64_t offset,
                     uint64_t size)
{
    const uint64_t at = address + offset;
    const int exists = at >= address && at == (uintptr_t)at;
    if (exists && crt_memory_owns(server, (uintptr_t)at, size)) {
        return CRT_OK;
    }
#ifdef CRT_RECORD
    if (exists && crt_recorded_owns(server, access, (uintptr_t)at, size)) {
        return CRT_OK;
    }
#endif
    if (exists && crt_memory_constant(server, (uintptr_t)at, size)) {
        return (access == CRT_READ) ? CRT_OK
                                    : crt_fail(server, CRT_ERR_ADDRESS,
                                               "%u bytes at 0x%08x are of a constant, which is only read",
                                               crt_clamp(size), (unsigned)at);
    }
    return crt_fail(server, CRT_ERR_ADDRESS,
                    "%u bytes at 0x%08x%08x are neither allocated nor a tensor of a model",
                    crt_clamp(size), (unsigned)(at >> 32), (unsigned)at);
}

int crt_memory_tensor(struct crt_server *server, enum crt_access access, const DLTensor *tensor, uint32_t *size)
{
    const int error = crt_tensor_size(server, tensor, size);
    if (error != CRT_OK) {
        return error;
    }
    return crt_memory_check(server, access, (uintptr_t)tensor->data, tensor->byte_offset, *size);
}

void crt_memory_hold(struct crt_server *server, uint32_t index)
{
    const struct crt_model *const *models = server->config.models;
    for (uint32_t i = 0; i < server->config.num_models; i++) {
        if ((i != index) && (models[i]->arena == models[index]->arena) && (models[i]->arena != NULL)) {
            server->holders &= ~(1u << i);
            server->inputs_set[i] = 0;
            server->spoiled |= 1u << i;
        }
    }
    server->holders |= 1u << index;
}

void crt_memory_claim(struct crt_server *server, const DLTensor *tensor)
{
    uint32_t owners = 0;
    uint32_t first = 0;
    uint32_t size;
    if (crt_tensor_size(server, tensor, &size) != CRT_OK) {
        return;
    }
    for (uint32_t i = server->config.num_models; i > 0; i--) {
        const struct crt_model *model = server->config.models[i - 1];
        for (uint32_t k = 0; k < model->num_inputs; k++) {
            if ((model->inputs[k].data == tensor->data) && (model->inputs[k].nbytes == size)) {
                first = i - 1;
                owners |= 1u << first;
            }
        }
    }
    if ((owners != 0) && ((owners & server->holders) == 0)) {
        crt_memory_hold(server, first);
        server->holders |= owners;
    }
}

void crt_memory_written(struct crt_server *server, const void *address, uint32_t size)
{
    for (uint32_t i = 0; i < server->config.num_models; i++) {
        const struct crt_model *model = server->config.models[i];
        const uint32_t inputs = (server->holders >> i & 1u) != 0 ? model->num_inputs : 0;
        for (uint32_t k = 0; k < inputs && k < 32; k++) {
            /* A host copies large inputs in pieces: the piece with the last byte completes it. */
            const uintptr_t last = (uintptr_t)model->inputs[k].data + model->inputs[k].nbytes - 1;
            if (last - (uintptr_t)address < size) {
                server->inputs_set[i] |= 1u << k;
            }
        }
    }
}

const struct crt_tensor *crt_memory_published(const struct crt_server *server, uint64_t handle)
{
    for (uint32_t i = 0; i < server->config.num_models; i++) {
        const struct crt_model *model = server->config.models[i];
        for (uint32_t k = 0; k < (uint32_t)model->num_inputs + model->num_outputs; k++) {
            const struct crt_tensor *tensor =
                (k < model->num_inputs) ? &model->inputs[k] : &model->outputs[k - model->num_inputs];
            if ((uintptr_t)tensor == handle) {
                return tensor;
            }
        }
    }
    return NULL;
}
