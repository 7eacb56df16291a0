/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the server share.
 */
#ifndef CRT_INTERNAL_H
#define CRT_INTERNAL_H

#include <crt/server.h>

/* Type codes of the wire: those of TVMArgTypeCode, and unsigned integers. */
#define CRT_CODE_UINT 1

/* Codes of RPC packets; written by tools/endpoints.py from crtgen/device/rpc/messages.py. */
enum crt_rpc_code {
    CRT_RPC_SHUTDOWN = 1,
    CRT_RPC_INIT_SERVER = 2,
    CRT_RPC_CALL_FUNC = 3,
    CRT_RPC_RETURN = 4,
    CRT_RPC_EXCEPTION = 5,
    CRT_RPC_COPY_FROM_REMOTE = 6,
    CRT_RPC_COPY_TO_REMOTE = 7,
    CRT_RPC_COPY_ACK = 8,
    CRT_RPC_GET_GLOBAL_FUNC = 9,
    CRT_RPC_FREE_HANDLE = 10,
    CRT_RPC_SET_DEVICE = 11,
    CRT_RPC_GET_ATTR = 12,
    CRT_RPC_ALLOC_DATA = 13,
    CRT_RPC_FREE_DATA = 14,
    CRT_RPC_STREAM_SYNC = 15,
    CRT_RPC_COPY_AMONG_REMOTE = 16,
    CRT_RPC_ALLOC_DATA_WITH_SCOPE = 17,
    CRT_RPC_CREATE_STREAM = 18,
    CRT_RPC_FREE_STREAM = 19,
    CRT_RPC_SET_STREAM = 20,
};

/* The bytes of a request that were not read yet. */
struct crt_cursor {
    uint8_t *at;
    uint8_t *end;
    int bad; /* a read went beyond the end */
};

/* A call of a function: its arguments and its result. */
struct crt_call {
    struct crt_server *server;
    TVMValue *values;
    int *codes;
    int count;
    uint32_t index; /* index of the model or evaluator, for functions that belong to one */
    int timing;     /* the call is measured: ignore its result */
    TVMValue value;
    int code;
};

/* A function of the runtime that hosts call. After the NUL of its name, a letter for each argument. */
struct crt_endpoint {
    const char *name;
    int (*run)(struct crt_call *call);
};

struct crt_endpoints {
    const struct crt_endpoint *items;
    uint32_t count;
};

/* crt_args.c: the values of a request. */
uint64_t crt_take(struct crt_cursor *cursor, size_t size);
/* The number of arguments, now in server->values and server->codes, or an error with its text. */
int crt_args_take(struct crt_server *server, struct crt_cursor *cursor);
int crt_tensor_take(struct crt_server *server, struct crt_cursor *cursor, DLTensor *tensor);
/* The size of a tensor in bytes, or an error with its text. */
int crt_tensor_size(struct crt_server *server, const DLTensor *tensor, uint32_t *size);

/* The first byte of a tensor. A host may leave the address null and give all of it as the offset. */
static inline uint8_t *crt_tensor_bytes(const DLTensor *tensor)
{
    return (uint8_t *)((uintptr_t)tensor->data + (uintptr_t)tensor->byte_offset);
}

/* crt_reply.c: the answers. Each completes the request in work. */
void crt_reply_null(struct crt_server *server);
void crt_reply_handle(struct crt_server *server, uint64_t handle);
void crt_reply_data(struct crt_server *server, const void *data, uint32_t size);
void crt_reply_value(struct crt_server *server, const struct crt_call *call);
/* Answer with an exception with server->text. */
void crt_reply_error(struct crt_server *server);

/* Set server->text; returns `error`. */
int crt_fail(struct crt_server *server, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* For texts: larger values are shown as the largest one. */
static inline unsigned crt_clamp(uint64_t value)
{
    return (value > UINT32_MAX) ? (unsigned)UINT32_MAX : (unsigned)value;
}

/* crt_memory.c: memory that a host may read and write. */
enum crt_access { CRT_READ, CRT_WRITE };
int crt_memory_check(struct crt_server *server, enum crt_access access, uint64_t address, uint64_t offset,
                     uint64_t size);
/* Check all bytes of a tensor, and return its size. */
int crt_memory_tensor(struct crt_server *server, enum crt_access access, const DLTensor *tensor, uint32_t *size);
/* The arena of a model now belongs to it: values of other models there are void. */
void crt_memory_hold(struct crt_server *server, uint32_t index);
/* A host copies to a tensor: the models with this input now hold the arena, unless the current holder has it, too. */
void crt_memory_claim(struct crt_server *server, const DLTensor *tensor);
/* Bytes were written, which may have been an input of a model. */
void crt_memory_written(struct crt_server *server, const void *address, uint32_t size);
const struct crt_tensor *crt_memory_published(const struct crt_server *server, uint64_t handle);

/* crt_call.c: handles, arguments and results of calls. */
#define CRT_HANDLE_BIT 0x8000u
#define CRT_HANDLE_MODULE(handle) ((uint32_t)((handle) >> 16) ^ CRT_HANDLE_BIT)
#define CRT_HANDLE_INDEX(handle) ((uint32_t)((handle) & 0xffffu) ^ CRT_HANDLE_BIT)
/*
 * Module 0 is the system library, 1 + i is the executor of model i; then follow global functions and time evaluators.
 */
#ifdef CRT_SLOTS
#define CRT_MODULE_GLOBALS(server) (2u + (server)->linked) /* handles do not change when a slot gets a model */
#else
#define CRT_MODULE_GLOBALS(server) (1u + (server)->config.num_models)
#endif
/* Return whether the module is the system library or an executor. */
#define CRT_MODULE_EXISTS(server, module) ((module) <= (server)->config.num_models)
#define CRT_MODULE_EVALUATORS(server) (CRT_MODULE_GLOBALS(server) + 1u)
static inline uint32_t crt_module_handle(uint32_t module)
{
    return module | CRT_HANDLE_BIT;
}
static inline uint32_t crt_function_handle(uint32_t module, uint32_t index)
{
    return (crt_module_handle(module) << 16) | crt_module_handle(index);
}
/* An error with its text: there is no such module, or function. */
int crt_handle_unknown(struct crt_server *server, const char *kind, uint64_t handle);
/* Return the index of a system library or an executor, or an error with its text. */
int crt_module_index(struct crt_server *server, uint64_t handle);
/* Return the index of a function, or CRT_ERR_NAME; return the name at an index, or NULL. */
int32_t crt_endpoint_find(const struct crt_endpoints *table, const char *name);
const char *crt_endpoint_name(const struct crt_endpoints *table, uint32_t index);
/* Check the arguments of a function, or return an error with its text. */
int crt_endpoint_check(struct crt_call *call, const struct crt_endpoint *endpoint);
void crt_call_return_int(struct crt_call *call, int64_t value);
void crt_call_return_handle(struct crt_call *call, uint32_t handle, int code);
void crt_call_return_text(struct crt_call *call, const char *text);
void crt_call_return_bytes(struct crt_call *call, const void *data, uint32_t size);
/* Return the model of argument 0, an executor, or an error with its text. */
int crt_call_model(struct crt_call *call);
/* Reserve room for `count` 8-byte results in the receive buffer; NULL, with an error's text, if there is none. */
uint64_t *crt_call_results(struct crt_call *call, uint32_t count);
/* Return the error text of code that TVM generated, or an empty text. */
const char *crt_call_reason(const struct crt_server *server);

/* crt_executor.c: functions of a model. */
extern const struct crt_endpoints crt_executor_endpoints;
int crt_executor_create(struct crt_call *call);
int crt_executor_create_graph(struct crt_call *call);
/* A function of the registry was called. After <model>_run and tvmgen_<model>_... the model's tensors are void. */
void crt_executor_called(struct crt_server *server, const char *name);
int crt_executor_run(struct crt_call *call);

/* crt_modules.c: the functions of the system library and of the executors. */
/* Return a handle, or 0 if the module has no function of that name. */
uint32_t crt_module_find(const struct crt_server *server, uint32_t module, const char *name);
/* Return the name of the function with a handle, or NULL if there is none. */
const char *crt_module_name(const struct crt_server *server, uint32_t handle);
/* The function has to exist. */
int crt_module_call(struct crt_call *call, uint32_t handle);

/* crt_time.c */
int crt_time_evaluator(struct crt_call *call);
int crt_time_evaluate(struct crt_call *call);
int crt_time_calibrate(struct crt_call *call);
int crt_time_measure(struct crt_call *call);
/* num / den as the bits of a float64; den and num are less than 2^62, den is not 0. */
uint64_t crt_time_ratio(uint64_t num, uint64_t den);
uint64_t crt_time_now(const struct crt_server *server);
/* Feed the watchdog; an error with its text if the request has occupied the device for CRT_SERVER_SECONDS. */
int crt_time_check(struct crt_server *server);

#ifdef CRT_SLOTS
/* crt_slots_call.c */
int crt_slots_about(struct crt_call *call);
int crt_slots_erase(struct crt_call *call);
int crt_slots_store(struct crt_call *call);
int crt_slots_transfer(struct crt_call *call);
int crt_slots_decide_for(struct crt_call *call);
int crt_slots_again(struct crt_call *call);
int crt_slots_keep(struct crt_call *call);
int crt_slots_back(struct crt_call *call);
#endif

#ifdef CRT_DRIFT
/* crt_record_call.c */
int crt_drift_counted(struct crt_call *call);
#endif

#ifdef CRT_RECORD
/* crt_record_call.c */
int crt_recorded(struct crt_call *call);
int crt_recorded_owns(const struct crt_server *server, enum crt_access access, uintptr_t address, uint64_t size);
#endif

/* crt_profile.c */
int crt_profile(struct crt_call *call);
int crt_watch(struct crt_call *call);

/* crt_globals.c: functions that belong to no module. */
extern const struct crt_endpoints crt_global_endpoints;

/* crt_functions.c: all functions of which a host has a handle. */
/* Return the name of a function, or NULL with an error's text. */
const char *crt_function_check(struct crt_server *server, uint64_t handle);
/* A handle, or 0 if there is no global function of that name. */
uint32_t crt_function_global(const struct crt_server *server, const char *name);
/* Return whether it is the function that creates graph executors. */
int crt_function_creates_graph(const struct crt_server *server, uint64_t handle);
int crt_function_free(struct crt_server *server, uint64_t handle);
int crt_function_call(struct crt_call *call, uint64_t handle);

#endif
