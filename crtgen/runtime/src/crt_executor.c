/* SPDX-License-Identifier: Apache-2.0 */
#include "crt_internal.h"

#include <crt/registry.h>

#include <string.h>

static const struct crt_model *crt_executor_model(const struct crt_call *call)
{
    return call->server->config.models[call->index];
}

/* Return the rest of a name after a prefix; NULL if it does not begin with the prefix. */
static const char *crt_executor_after(const char *name, const char *prefix)
{
    for (; *prefix != '\0'; name++, prefix++) {
        if (*name != *prefix) {
            return NULL;
        }
    }
    return name;
}

void crt_executor_called(struct crt_server *server, const char *name)
{
    const char *operator_name = crt_executor_after(name, "tvmgen_");
    for (uint32_t i = 0; i < server->config.num_models; i++) {
        const char *rest = crt_executor_after((operator_name != NULL) ? operator_name : name,
                                              server->config.models[i]->name);
        if (rest != NULL && (operator_name != NULL ? *rest == '_' : strcmp(rest, "_run") == 0)) {
            crt_memory_hold(server, i);
            server->inputs_set[i] = 0;
            server->spoiled |= 1u << i;
        }
    }
}

/* A name that hosts use for the only model of an image. */
static const char crt_executor_default[] = "default";

/* Arguments: system library, device, name of the model. */
int crt_executor_create(struct crt_call *call)
{
    struct crt_server *server = call->server;
    const struct crt_server_config *config = &server->config;
    const char *name = call->values[2].v_str;
    for (uint32_t i = config->num_models; i-- > 0u;) { /* from the last on, which a slot has */
        const int only = config->num_models == 1 && strcmp(name, crt_executor_default) == 0;
        if (only || strcmp(name, config->models[i]->name) == 0) {
            crt_call_return_handle(call, crt_module_handle(1 + i), kTVMModuleHandle);
            return CRT_OK;
        }
    }
    return crt_fail(server, CRT_ERR_NAME, "no model of this image is called %s", name);
}

/*
 * Arguments: graph JSON, system library, device type, device id. The JSON is ignored, because the image was made from
 * it.
 */
int crt_executor_create_graph(struct crt_call *call)
{
    if (call->server->config.num_models != 1) {
        return crt_fail(call->server, CRT_ERR_NAME, "the image has %u models: tvm.aot_executor.create takes a name",
                        call->server->config.num_models);
    }
    crt_call_return_handle(call, crt_module_handle(1), kTVMModuleHandle);
    return CRT_OK;
}

static int crt_executor_find(const struct crt_model *model, const char *name)
{
    for (int i = 0; i < model->num_inputs; i++) {
        if (strcmp(model->inputs[i].name, name) == 0) {
            return i;
        }
    }
    return CRT_ERR_NAME;
}

/* Find the input that argument 0 names or numbers. */
static const struct crt_tensor *crt_executor_input(struct crt_call *call)
{
    const struct crt_model *model = crt_executor_model(call);
    const TVMValue *value = &call->values[0];
    if (call->codes[0] == kTVMStr) {
        const int index = crt_executor_find(model, value->v_str);
        if (index >= 0) {
            return &model->inputs[index];
        }
        (void)crt_fail(call->server, CRT_ERR_NAME, "%s has no input %s", model->name, value->v_str);
        return NULL;
    }
    if (value->v_int64 >= 0 && value->v_int64 < model->num_inputs) {
        return &model->inputs[value->v_int64];
    }
    (void)crt_fail(call->server, CRT_ERR_NAME, "%s has %u inputs", model->name, model->num_inputs);
    return NULL;
}

static const struct crt_tensor *crt_executor_output(struct crt_call *call)
{
    const struct crt_model *model = crt_executor_model(call);
    const int64_t index = call->values[0].v_int64;
    if (index >= 0 && index < model->num_outputs) {
        return &model->outputs[index];
    }
    (void)crt_fail(call->server, CRT_ERR_NAME, "%s has %u outputs", model->name, model->num_outputs);
    return NULL;
}

static int crt_executor_return(struct crt_call *call, const struct crt_tensor *tensor)
{
    call->value.v_handle = (void *)(uintptr_t)tensor;
    call->code = kTVMNDArrayHandle;
    return (tensor == NULL) ? CRT_ERR_NAME : CRT_OK;
}

static int crt_executor_get_input(struct crt_call *call)
{
    crt_memory_hold(call->server, call->index);
    return crt_executor_return(call, crt_executor_input(call));
}

/* Return whether argument 1 is a tensor with the size and type of one of the model's, and may be accessed. */
static int crt_executor_same(struct crt_call *call, const struct crt_tensor *tensor, enum crt_access access)
{
    const DLTensor *given = call->values[1].v_handle;
    uint32_t size;
    const int error = crt_memory_tensor(call->server, access, given, &size);
    if ((error == CRT_OK) &&
        ((size != tensor->nbytes) || (memcmp(&given->dtype, &tensor->dtype, sizeof given->dtype) != 0))) {
        return crt_fail(call->server, CRT_ERR_ARGUMENT, "%s has %u bytes, or another type than what was given",
                        tensor->name, (unsigned)tensor->nbytes);
    }
    return error;
}

/* Arguments: index, and a tensor that receives the output; without it the output's own tensor is returned. */
static int crt_executor_get_output(struct crt_call *call)
{
    const struct crt_model *model = crt_executor_model(call);
    if ((call->server->spoiled >> call->index & 1u) != 0) {
        return crt_fail(call->server, CRT_ERR_STATE,
                        "the outputs of %s are void: set its inputs and run it", model->name);
    }
    const struct crt_tensor *output = crt_executor_output(call);
    if ((output == NULL) || (call->count < 2) || (call->codes[1] != kTVMDLTensorHandle)) {
        return crt_executor_return(call, output);
    }
    const int error = crt_executor_same(call, output, CRT_WRITE);
    if (error == CRT_OK) {
        uint8_t *to = crt_tensor_bytes(call->values[1].v_handle);
        (void)memmove(to, output->data, output->nbytes);
        crt_memory_written(call->server, to, output->nbytes);
    }
    return error;
}

/* Returns -1 if no input has the name. */
static int crt_executor_get_input_index(struct crt_call *call)
{
    const int index = crt_executor_find(crt_executor_model(call), call->values[0].v_str);
    crt_call_return_int(call, (index < 0) ? -1 : index);
    return CRT_OK;
}

static int crt_executor_get_input_name(struct crt_call *call)
{
    const struct crt_tensor *input = crt_executor_input(call);
    if (input == NULL) {
        return CRT_ERR_NAME;
    }
    crt_call_return_text(call, input->name);
    return CRT_OK;
}

static int crt_executor_get_output_name(struct crt_call *call)
{
    const struct crt_tensor *output = crt_executor_output(call);
    if (output == NULL) {
        return CRT_ERR_NAME;
    }
    crt_call_return_text(call, output->name);
    return CRT_OK;
}

static int crt_executor_get_num_inputs(struct crt_call *call)
{
    crt_call_return_int(call, crt_executor_model(call)->num_inputs);
    return CRT_OK;
}

static int crt_executor_get_num_outputs(struct crt_call *call)
{
    crt_call_return_int(call, crt_executor_model(call)->num_outputs);
    return CRT_OK;
}

static int crt_executor_params(struct crt_call *call)
{
    return crt_fail(call->server, CRT_ERR_STATE, "the parameters of %s are linked: they cannot be loaded or shared",
                    crt_executor_model(call)->name);
}

/* TVM's GraphModule looks this function up when it is created. Its result, a map, cannot be sent. */
static int crt_executor_get_input_info(struct crt_call *call)
{
    return crt_fail(call->server, CRT_ERR_STATE, "a map cannot be sent: get_input gives an input with shape and type");
}

static int crt_executor_reset(struct crt_call *call)
{
    const struct crt_model *model = crt_executor_model(call);
    if (model->reset != NULL) {
        model->reset();
    }
    return CRT_OK;
}

/* Arguments: name or index, tensor. */
static int crt_executor_set_input(struct crt_call *call)
{
    struct crt_server *server = call->server;
    const struct crt_tensor *input = crt_executor_input(call);
    const int error = (input == NULL) ? CRT_ERR_NAME : crt_executor_same(call, input, CRT_READ);
    if (error == CRT_OK) {
        crt_memory_hold(server, call->index);
        (void)memmove(input->data, crt_tensor_bytes(call->values[1].v_handle), input->nbytes);
        crt_memory_written(server, input->data, input->nbytes);
    }
    return error;
}

/* Return the result of the last run. */
static int crt_executor_ended(const struct crt_call *call)
{
    struct crt_server *server = call->server;
    const char *why = crt_call_reason(server);
    return (server->run_error == 0)
               ? CRT_OK
               : crt_fail(server, CRT_ERR_CALL, "run of %s failed with code %d%s%s", crt_executor_model(call)->name,
                          (int)server->run_error, (why[0] != '\0') ? ": " : "", why);
}

int crt_executor_run(struct crt_call *call)
{
    struct crt_server *server = call->server;
    const struct crt_model *model = crt_executor_model(call);
    const int consumes = (model->flags & CRT_MODEL_CONSUMES_INPUTS) != 0;
    const uint32_t all = (uint32_t)((UINT64_C(1) << model->num_inputs) - 1);
    const uint32_t bit = 1u << call->index;
    const int is_set = (!consumes && model->arena == NULL) || (server->inputs_set[call->index] & all) == all;
    if (!is_set && !call->timing) {
        return crt_fail(server, CRT_ERR_STATE, "the inputs of %s are not set, or used up: set all %u of them%s",
                        model->name, model->num_inputs, consumes ? "; --keep-inputs keeps them" : "");
    }
    crt_memory_hold(server, call->index);
    server->spoiled = is_set ? (server->spoiled & ~bit) : (server->spoiled | bit);
    if (consumes != 0) {
        server->inputs_set[call->index] = 0;
    }
    if (server->config.backend != NULL) {
        server->config.backend->last_error = NULL;
    }
    server->running = model->name;
    server->run_error = model->run();
    if (server->run_error != 0) {
        server->spoiled |= bit;
    }
    return crt_executor_ended(call);
}

/* Argument: a number, or none. A run with the last run's number is not repeated: the host only missed the answer. */
static int crt_executor_run_once(struct crt_call *call)
{
    struct crt_server *server = call->server;
    const uint32_t number = (call->count > 0) ? (uint32_t)call->values[0].v_int64 : 0;
    if ((number != 0) && (number == server->run_number)) {
        return crt_executor_ended(call);
    }
    const int error = crt_executor_run(call);
    server->run_number = (error == CRT_ERR_STATE) ? 0 : number;
    return error;
}

/* Written by tools/endpoints.py from crtgen/base/endpoints.py. */
static const struct crt_endpoint crt_executor_table[] = {
    {"get_input\0" "n", crt_executor_get_input},
    {"get_input_index\0" "s", crt_executor_get_input_index},
    {"get_output_name\0" "i", crt_executor_get_output_name},
    {"get_num_inputs\0", crt_executor_get_num_inputs},
    {"get_num_outputs\0", crt_executor_get_num_outputs},
    {"get_output\0" "i", crt_executor_get_output},
    {"load_params\0", crt_executor_params},
    {"run\0", crt_executor_run_once},
    {"set_input\0" "nt", crt_executor_set_input},
    {"share_params\0", crt_executor_params},
    {"get_input_name\0" "i", crt_executor_get_input_name},
    {"reset\0", crt_executor_reset},
    {"get_input_info\0", crt_executor_get_input_info},
};

const struct crt_endpoints crt_executor_endpoints = {
    crt_executor_table, sizeof(crt_executor_table) / sizeof(crt_executor_table[0])
};
