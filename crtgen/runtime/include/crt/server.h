/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The RPC server of a device. The platform gives it memory and the received bytes; it answers through the port. No
 * heap, no I/O of its own, no state outside of `struct crt_server`.
 */
#ifndef CRT_SERVER_H
#define CRT_SERVER_H

#include <crt/backend.h>
#include <crt/error.h>
#include <crt/fault.h>
#include <crt/model.h>
#include <crt/pool.h>
#include <crt/port.h>
#include <crt/registry.h>
#include <crt/session.h>
#include <crt/slots.h>

/* Limits; a build may set others. */
#ifndef CRT_SERVER_MODELS
#define CRT_SERVER_MODELS 8
#endif
#if CRT_SERVER_MODELS > 32
#error "CRT_SERVER_MODELS: a server has a bit for each model in words of 32"
#endif
#ifndef CRT_SERVER_ARGS
#define CRT_SERVER_ARGS 16
#endif
#ifndef CRT_SERVER_EVALUATORS
#define CRT_SERVER_EVALUATORS 4
#endif
#ifndef CRT_SERVER_TEXT
#define CRT_SERVER_TEXT 160
#endif
/* The longest that a request may occupy the device, and that one run of a model or function may take. */
#ifndef CRT_SERVER_SECONDS
#define CRT_SERVER_SECONDS 600
#endif

/* The smallest receive buffer. A host may send packets of up to (size - CRT_SERVER_OVERHEAD) bytes. */
#define CRT_SERVER_RECEIVE_MIN 256u
#define CRT_SERVER_OVERHEAD 11u

/* crt_server_feed: the host asked the server to stop. */
#define CRT_SERVER_SHUTDOWN 1

struct crt_server_config {
    const struct crt_port *port;

    /* Memory for received packets. */
    uint8_t *receive;
    uint32_t receive_size;

    /* Memory that a host can allocate. */
    void *pool;
    uint32_t pool_size;

    /* The models and the function registry of the image: crt_models, crt_num_models and
     * TVMSystemLibEntryPoint() of the generated metadata module. */
    const struct crt_model *const *models;
    uint16_t num_models;
    const TVMModule *system_lib;

    /* Arguments of the registry's functions: crt_signatures. NULL if all of them check their arguments themselves. */
    const struct crt_signatures *signatures;

    /* Constants whose addresses the registry hands out: crt_params; or NULL. */
    const struct crt_params *params;

#ifdef CRT_SLOTS
    /* Slots that were started, whose model is numbered after those of the image; or NULL. */
    struct crt_slots *slots;
#endif

    /* For images with C that TVM generated, otherwise NULL. */
    struct crt_backend *backend;

    /* Memory for faults, so that a host can ask for the last one after the restart; or NULL. */
    struct crt_fault *fault;
};

/* An argument that needs more than a value. */
union crt_object {
    DLTensor tensor;
    TVMByteArray bytes;
};

struct crt_evaluator {
    uint32_t function; /* a handle; 0 means that the entry is free */
    uint32_t number;
    uint32_t repeat;
    uint32_t min_repeat_ms;
    uint32_t zero_limit;
    uint32_t cooldown_ms;
    uint32_t cooldown_every;
};

/* Opaque: the members belong to the server. */
struct crt_server {
    struct crt_server_config config;
    struct crt_frame_reader reader;
    struct crt_session session;
    struct crt_pool pool;
#ifdef CRT_SLOTS
    const struct crt_model *models[CRT_SERVER_MODELS]; /* the models of the image, then that of a slot */
    uint16_t linked;                                   /* number of models of the image */
#endif

    /* The current request. */
    int pending;
    uint64_t start; /* ticks when it arrived */
    const char *running; /* name of the running function, or NULL */
    TVMValue values[CRT_SERVER_ARGS];
    int codes[CRT_SERVER_ARGS];
    union crt_object objects[CRT_SERVER_ARGS];
    uint8_t *scratch; /* the part of the receive buffer that the request does not use */
    uint32_t scratch_size;
    TVMByteArray blob; /* bytes to return */
    char text[CRT_SERVER_TEXT];

    uint32_t inputs_set[CRT_SERVER_MODELS]; /* a bit for each input that was set since the last run */
    uint32_t spoiled;                       /* a bit for each model whose outputs are invalid */
    uint32_t holders;                       /* a bit for each model that was the last one to use its arena */
    uint32_t run_number;                    /* number of the last run, 0 if it had none */
    int32_t run_error;                      /* its result */
    struct crt_evaluator evaluators[CRT_SERVER_EVALUATORS];
    int stopped;
};

/* Returns 0, or CRT_ERR_ARGUMENT if the configuration cannot work. Sends nothing. */
int crt_server_init(struct crt_server *server, const struct crt_server_config *config);

#ifdef CRT_SLOTS
/* Tell the server that the slots have another model, or none: for code that changes slots beside the server. */
void crt_server_adopt(struct crt_server *server);
#endif

/* Tell the host that the device has started. */
void crt_server_boot(struct crt_server *server);

/*
 * Take received bytes, any number at a time, and answer the requests that they complete. Returns 0, or
 * CRT_SERVER_SHUTDOWN once the host asks for it: the remaining bytes are then ignored.
 */
int crt_server_feed(struct crt_server *server, const uint8_t *bytes, size_t size);

/* Send a line for the host's log. */
void crt_server_log(struct crt_server *server, const char *text);

/*
 * For a fault handler: send the report as log messages, and an exception for the current request, if any. A fault
 * that a host has received is dropped; another one is kept for the next host.
 */
void crt_server_fault(struct crt_server *server, struct crt_fault *fault);

#endif
