/* SPDX-License-Identifier: Apache-2.0 */
#include "crt_internal.h"

#include <crt/crc32.h>
#include <crt/fault.h>
#include <crt/version.h>

#include <string.h>

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
    const uint32_t handle = crt_module_find(server, (uint32_t)module, name);
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

/* Random bytes. In floating-point values the top byte is 0x3f, so they are positive and less than 2. */
static int crt_global_random_fill(struct crt_call *call)
{
    struct crt_server *server = call->server;
    const struct crt_port *port = server->config.port;
    const DLTensor *tensor = call->values[0].v_handle;
    uint8_t *data = crt_tensor_bytes(tensor);
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

/* The last fault before this start; null if there was none, or if a host has already received it. */
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

/* CRC-32 of memory, as in zlib, continued from `start`. */
static int crt_global_crc32(struct crt_call *call)
{
    const uint64_t address = (uint64_t)call->values[0].v_int64;
    const uint64_t size = (uint64_t)call->values[1].v_int64;
    const int error = (size == 0) ? CRT_OK : crt_memory_check(call->server, CRT_READ, address, 0, size);
    if (error != CRT_OK) {
        return error;
    }
    const uint32_t start = (uint32_t)call->values[2].v_int64;
    crt_call_return_int(call, crt_crc32(start, (const void *)(uintptr_t)address, (uint32_t)size));
    return CRT_OK;
}

/* Written by tools/endpoints.py from crtgen/base/endpoints.py. */
static const struct crt_endpoint crt_global_table[] = {
    {"runtime.SystemLib\0", crt_global_system_lib},
    {"tvm.rpc.server.ModuleGetFunction\0" "ms", crt_global_get_function},
    {"runtime.RPCTimeEvaluator\0" "msiiiiiiii", crt_time_evaluator},
    {"tvm.rpc.server.GetCRTMaxPacketSize\0", crt_global_max_packet},
    {"tvm.contrib.random.random_fill\0" "t", crt_global_random_fill},
    {"tvm.aot_executor.create\0" "mds", crt_executor_create},
    {"tvm.graph_executor.create\0" "smii", crt_executor_create_graph},
    {"crtgen.info\0", crt_global_info},
    {"crtgen.memory\0", crt_global_memory},
    {"crtgen.ticks_per_second\0", crt_global_ticks_per_second},
    {"crtgen.calibrate\0" "i", crt_time_calibrate},
    {"crtgen.measure\0" "mi", crt_time_measure},
    {"crtgen.crc32\0" "iii", crt_global_crc32},
    {"crtgen.fault\0", crt_global_fault},
#ifdef CRT_PROFILE
    {"crtgen.profile\0" "mi", crt_profile},
#endif
#ifdef CRT_PROFILE
    {"crtgen.watch\0" "miit", crt_watch},
#endif
#ifdef CRT_RECORD
    {"crtgen.recorded\0" "m", crt_recorded},
#endif
#ifdef CRT_DRIFT
    {"crtgen.drift\0" "m", crt_drift_counted},
#endif
#ifdef CRT_SLOTS
    {"crtgen.slots\0", crt_slots_about},
#endif
#ifdef CRT_SLOTS
    {"crtgen.slot_begin\0" "i", crt_slots_erase},
#endif
#ifdef CRT_SLOTS
    {"crtgen.slot_write\0" "iit", crt_slots_store},
#endif
#ifdef CRT_SLOTS
    {"crtgen.slot_copy\0" "iiiii", crt_slots_transfer},
#endif
#ifdef CRT_SLOTS
    {"crtgen.slot_commit\0" "i", crt_slots_decide_for},
#endif
#ifdef CRT_SLOTS
    {"crtgen.slot_start\0", crt_slots_again},
#endif
#ifdef CRT_SLOTS
    {"crtgen.slot_confirm\0", crt_slots_keep},
#endif
#ifdef CRT_SLOTS
    {"crtgen.slot_revert\0", crt_slots_back},
#endif
};

const struct crt_endpoints crt_global_endpoints = {
    crt_global_table, sizeof(crt_global_table) / sizeof(crt_global_table[0])
};
