/* Calls a generated model in every way there is, and prints the outputs: typed, packed, by its descriptor. */
#include <stdio.h>
#include <string.h>

#include <crt/model.h>
#include <crt/registry.h>
#include <tvm/runtime/metadata.h>

#include "net.h"

static int call(const char *name, TVMValue *args, int *codes, int count, TVMValue *ret, int *code)
{
    const TVMModule *module = TVMSystemLibEntryPoint();
    int32_t index = crt_names_find(module->registry->names, name);
    return index < 0 ? -1 : crt_registry_at(module, (uint32_t)index)(args, codes, count, ret, code, NULL);
}

static void print(const char *how, const int8_t *y)
{
    printf("%s %d %d %d %d %d\n", how, y[0], y[1], y[2], y[3], y[4]);
}

int main(void)
{
    static const int8_t x[12] = {-128, 127, 3, 0, 60, -60, 5, 99, -99, 17, 1, -1};
    int8_t y[5] = {0};
    const struct net_inputs inputs = {.x = x};
    struct net_outputs outputs = {.y = y};
    if (net_run(&inputs, &outputs) != 0) {
        return 1;
    }
    print("typed", y);

    memcpy(net_input_places.x, x, sizeof x);
    const struct net_inputs here = {.x = net_input_places.x};
    struct net_outputs there = net_output_places;
    net_run(&here, &there);
    print("places", net_output_places.y);

    memcpy(crt_models[0]->inputs[0].data, x, sizeof x);
    crt_models[0]->run();
    print("model", crt_models[0]->outputs[0].data);
    printf("%s %u %u %u %u\n", crt_models[0]->name, crt_models[0]->num_layers, crt_models[0]->flags,
        (unsigned)crt_models[0]->inputs[0].nbytes, crt_num_models);

    int64_t in_shape[] = NET_INPUT_X_SHAPE, out_shape[] = NET_OUTPUT_Y_SHAPE;
    memset(y, 0, sizeof y);
    DLTensor in = {(void *)x, {kDLCPU, 0}, 4, {kDLInt, 8, 1}, in_shape, NULL, 0};
    DLTensor out = {y - 1, {kDLCPU, 0}, 2, {kDLInt, 8, 1}, out_shape, NULL, 1};
    TVMValue args[2] = {{.v_handle = &in}, {.v_handle = &out}}, ret;
    int codes[2] = {kTVMDLTensorHandle, kTVMDLTensorHandle}, code = -1;
    int status = call("net_run", args, codes, 2, &ret, &code);
    print("packed", y);
    printf("status %d code %d\n", status, code);
    printf("too few %#x\n", (unsigned)call("net_run", args, codes, 1, &ret, &code));
    in_shape[0] = 2;
    printf("too large %#x\n", (unsigned)call("net_run", args, codes, 2, &ret, &code));
    codes[0] = kTVMArgInt;
    printf("no tensor %#x\n", (unsigned)call("net_run", args, codes, 2, &ret, &code));

    args[0].v_int64 = 0;
    status = call("_lookup_linked_param", args, codes, 1, &ret, &code);
    printf("param %d %d %d\n", status, code, *(const int8_t *)ret.v_handle);
    args[0].v_int64 = 1000;
    status = call("_lookup_linked_param", args, codes, 1, &ret, &code);
    printf("miss %d %d %d\n", status, code, ret.v_handle == NULL);

    call("get_c_metadata", args, codes, 0, &ret, &code);
    const void *same = ret.v_handle;
    call("tvmgen_net_get_c_metadata", args, codes, 0, &ret, &code);
    printf("same %d\n", ret.v_handle == same);
    const struct TVMMetadata *metadata = ret.v_handle;
    printf("%s %s %d %s\n", metadata->mod_name, metadata->inputs[0].name, (int)metadata->inputs[0].shape[2],
        metadata->outputs[0].name);
    return 0;
}
