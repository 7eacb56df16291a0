/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles layer by layer: ticks, and the values that a layer computed. Only in builds with CRT_PROFILE, whose
 * generated code calls crt_layer_done after each layer. That call has no context, so this is the only file of the
 * runtime with variables of its own.
 */
#include "crt_internal.h"

#ifdef CRT_PROFILE

#include <string.h>

static struct {
    const struct crt_server *server; /* NULL: nobody profiles */
    uint64_t *ticks;
    uint64_t last;
    uint32_t first;
    uint32_t count;
} crt_profiler;

static struct {
    const uint8_t *from;
    uint8_t *to; /* NULL: nobody watches */
    uint32_t nbytes;
    uint32_t layer;
} crt_watch_of;

void crt_layer_done(uint16_t layer)
{
    if (crt_watch_of.to != NULL && layer == crt_watch_of.layer) {
        (void)memcpy(crt_watch_of.to, crt_watch_of.from, crt_watch_of.nbytes);
    }
    if (crt_profiler.server != NULL) {
        const uint64_t now = crt_time_now(crt_profiler.server);
        const uint32_t place = (uint32_t)layer - crt_profiler.first; /* wraps for earlier layers */
        if (place < crt_profiler.count) {
            crt_profiler.ticks[place] += now - crt_profiler.last;
        }
        crt_profiler.last = crt_time_now(crt_profiler.server);
    }
}

/*
 * Arguments: executor, first layer. Bytes: the ticks of each layer from that one on in one run, u64, as many as an
 * answer holds; none, and no run, after the last layer.
 */
int crt_profile(struct crt_call *call)
{
    const int model = crt_call_model(call);
    if (model < 0) {
        return model;
    }
    const int64_t first = call->values[1].v_int64;
    const int64_t left = (int64_t)call->server->config.models[model]->num_layers - first;
    const int64_t room = (int64_t)(call->server->scratch_size / 8u);
    const uint32_t layers = ((first < 0) || (left <= 0)) ? 0u : (uint32_t)((left < room) ? left : room);
    uint64_t *results = crt_call_results(call, layers);
    if (results == NULL) {
        return CRT_ERR_MEMORY;
    }
    if (layers == 0u) {
        crt_call_return_bytes(call, results, 0);
        return CRT_OK;
    }
    struct crt_call run = {.server = call->server, .index = (uint32_t)model, .timing = 1};
    (void)memset(results, 0, layers * sizeof *results);
    crt_profiler.ticks = results;
    crt_profiler.first = (uint32_t)first;
    crt_profiler.count = layers;
    crt_profiler.server = call->server;
    crt_profiler.last = crt_time_now(call->server);
    const int error = crt_executor_run(&run);
    crt_profiler.server = NULL;
    crt_call_return_bytes(call, results, layers * 8);
    return error;
}

/* Arguments: executor, layer, offset in the arena, tensor, which receives the bytes there after the layer. */
int crt_watch(struct crt_call *call)
{
    const int model = crt_call_model(call);
    if (model < 0) {
        return model;
    }
    const struct crt_model *watched = call->server->config.models[model];
    const int64_t layer = call->values[1].v_int64;
    const int64_t offset = call->values[2].v_int64;
    const DLTensor *tensor = call->values[3].v_handle;
    uint8_t *to = crt_tensor_bytes(tensor);
    uint32_t nbytes;
    const int wrong = crt_memory_tensor(call->server, CRT_WRITE, tensor, &nbytes);
    if (wrong != CRT_OK) {
        return wrong;
    }
    const int64_t size = (int64_t)watched->arena_size;
    if ((layer < 0) || (layer >= (int64_t)watched->num_layers) || (offset < 0) || (offset > size)
        || ((int64_t)nbytes > size - offset)) {
        return crt_fail(call->server, CRT_ERR_ARGUMENT, "there is no such layer, or no such place in the arena");
    }
    struct crt_call run = {.server = call->server, .index = (uint32_t)model, .timing = 1};
    crt_watch_of.from = (const uint8_t *)watched->arena + offset;
    crt_watch_of.nbytes = nbytes;
    crt_watch_of.layer = (uint32_t)layer;
    crt_watch_of.to = to;
    const int error = crt_executor_run(&run);
    crt_watch_of.to = NULL;
    crt_memory_written(call->server, to, nbytes);
    return error;
}

#endif

/* A translation unit has to declare something. */
typedef int crt_profile_unit;
