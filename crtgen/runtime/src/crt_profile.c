/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ticks of each layer. Only in builds with CRT_PROFILE, whose generated code reports the end of each layer to
 * crt_layer_done. That call has no context, so that here, and only here, the runtime has a variable of its own.
 */
#include "crt_internal.h"

#ifdef CRT_PROFILE

#include <string.h>

static struct {
    const struct crt_server *server; /* NULL: nobody profiles */
    uint64_t *ticks;
    uint64_t last;
    uint32_t count;
} crt_profiler;

void crt_layer_done(uint16_t layer)
{
    if (crt_profiler.server != NULL && layer < crt_profiler.count) {
        const uint64_t now = crt_time_now(crt_profiler.server);
        crt_profiler.ticks[layer] += now - crt_profiler.last;
        crt_profiler.last = crt_time_now(crt_profiler.server);
    }
}

/* Argument: executor. Bytes: the ticks of each layer in one run, u64. */
int crt_profile(struct crt_call *call)
{
    const int model = crt_call_model(call);
    if (model < 0) {
        return model;
    }
    const uint32_t layers = call->server->config.models[model]->num_layers;
    uint64_t *results = crt_call_results(call, layers);
    if (results == NULL) {
        return CRT_ERR_MEMORY;
    }
    struct crt_call run = {.server = call->server, .index = (uint32_t)model, .timing = 1};
    (void)memset(results, 0, layers * sizeof *results);
    crt_profiler.ticks = results;
    crt_profiler.count = layers;
    crt_profiler.server = call->server;
    crt_profiler.last = crt_time_now(call->server);
    const int error = crt_executor_run(&run);
    crt_profiler.server = NULL;
    crt_call_return_bytes(call, results, layers * 8);
    return error;
}

#endif

/* A translation unit has to declare something. */
typedef int crt_profile_unit;
