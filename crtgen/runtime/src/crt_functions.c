/* SPDX-License-Identifier: Apache-2.0 */
#include "crt_internal.h"

uint32_t crt_function_global(const struct crt_server *server, const char *name)
{
    const int32_t index = crt_endpoint_find(&crt_global_endpoints, name);
    return (index < 0) ? 0 : crt_function_handle(CRT_MODULE_GLOBALS(server), (uint32_t)index);
}

/* Return the name of a function, NULL if no function has this handle. */
static const char *crt_function_name(const struct crt_server *server, uint32_t handle)
{
    const uint32_t module = CRT_HANDLE_MODULE(handle);
    const uint32_t index = CRT_HANDLE_INDEX(handle);
    if (CRT_MODULE_EXISTS(server, module)) {
        return crt_module_name(server, handle);
    }
    if (module == CRT_MODULE_GLOBALS(server)) {
        return crt_endpoint_name(&crt_global_endpoints, index);
    }
    const int is_evaluator = (module == CRT_MODULE_EVALUATORS(server)) && (index < CRT_SERVER_EVALUATORS) &&
                             (server->evaluators[index].function != 0);
    return is_evaluator ? "a time evaluator" : NULL;
}

const char *crt_function_check(struct crt_server *server, uint64_t handle)
{
    const char *name = ((handle >> 32) == 0) ? crt_function_name(server, (uint32_t)handle) : NULL;
    if (name == NULL) {
        (void)crt_handle_unknown(server, "function", handle);
    }
    return name;
}

int crt_function_creates_graph(const struct crt_server *server, uint64_t handle)
{
    const uint64_t first = crt_function_handle(CRT_MODULE_GLOBALS(server), 0);
    const uint64_t index = handle ^ first;
    return (index < crt_global_endpoints.count) &&
           (crt_global_endpoints.items[index].run == crt_executor_create_graph);
}

int crt_function_free(struct crt_server *server, uint64_t handle)
{
    if (crt_function_check(server, handle) == NULL) {
        return CRT_ERR_NAME;
    }
    if (CRT_HANDLE_MODULE(handle) == CRT_MODULE_EVALUATORS(server)) {
        server->evaluators[CRT_HANDLE_INDEX(handle)].function = 0;
    }
    return CRT_OK;
}

int crt_function_call(struct crt_call *call, uint64_t handle)
{
    struct crt_server *server = call->server;
    const uint32_t module = CRT_HANDLE_MODULE(handle);
    const uint32_t index = CRT_HANDLE_INDEX(handle);
    const char *name = crt_function_check(server, handle);
    if (name == NULL) {
        return CRT_ERR_NAME;
    }
    server->running = name;
    if (CRT_MODULE_EXISTS(server, module)) {
        return crt_module_call(call, (uint32_t)handle);
    }
    if (module == CRT_MODULE_GLOBALS(server)) {
        const struct crt_endpoint *endpoint = &crt_global_endpoints.items[index];
        const int error = crt_endpoint_check(call, endpoint);
        return (error == CRT_OK) ? endpoint->run(call) : error;
    }
    call->index = index;
    return crt_time_evaluate(call);
}
