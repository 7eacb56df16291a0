#include "toy.h"

#include <stdlib.h>
#include <string.h>

uint8_t *toy_pool;
struct crt_server toy_server;
struct crt_backend crt_backend;

uint32_t toy_drift;
static uint64_t clock_ticks;

static const DLDataType int8 = {kDLInt, 8, 1};

/* add: c = a + b, int8[2, 3]. */
static int8_t add_a[6], add_b[6], add_c[6];
static const int64_t add_shape[] = {2, 3};
static const struct crt_tensor add_inputs[] = {
    {"a", add_a, add_shape, 6, 2, {kDLInt, 8, 1}},
    {"b", add_b, add_shape, 6, 2, {kDLInt, 8, 1}},
};
static const struct crt_tensor add_outputs[] = {{"c", add_c, add_shape, 6, 2, {kDLInt, 8, 1}}};

static int32_t add_run(void)
{
    for (int i = 0; i < 6; i++) {
        add_c[i] = (int8_t)(add_a[i] + add_b[i]);
    }
    clock_ticks += 100;
    CRT_LAYER_TIMED(0);
    clock_ticks += 23;
    CRT_LAYER_TIMED(1);
    return 0;
}

static const struct crt_model add = {"add", add_run, NULL, add_inputs, add_outputs, 2, 1, 2, 0, NULL, 0, NULL, NULL, NULL, 0};

/* once: y = x * 2 in place, int16[4]; a second run would double again. */
static int16_t once_x[4];
static const int64_t once_shape[] = {4};
static const struct crt_tensor once_inputs[] = {{"x", once_x, once_shape, 8, 1, {kDLInt, 16, 1}}};
static const struct crt_tensor once_outputs[] = {{"y", once_x, once_shape, 8, 1, {kDLInt, 16, 1}}};

static int32_t once_run(void)
{
    for (int i = 0; i < 4; i++) {
        once_x[i] = (int16_t)(once_x[i] * 2);
    }
    clock_ticks += 50;
    return 0;
}

static void once_reset(void)
{
    memset(once_x, 0, sizeof once_x);
}

static const struct crt_model once = {"once", once_run, once_reset, once_inputs, once_outputs, 1, 1, 1,
                                      CRT_MODEL_CONSUMES_INPUTS, NULL, 0, NULL, NULL, NULL, 0};

static int32_t broken_run(void)
{
    return -3;
}

static const struct crt_model broken = {"broken", broken_run, NULL, add_inputs, add_outputs, 2, 1, 1, 0, NULL, 0, NULL, NULL, NULL, 0};

/* Two models with one arena, inputs at the same place: next adds 1 and keeps its input, half uses it up. */
static int8_t common_arena[8];
static const int64_t common_shape[] = {4};
static const struct crt_tensor next_inputs[] = {{"x", common_arena, common_shape, 4, 1, {kDLInt, 8, 1}}};
static const struct crt_tensor next_outputs[] = {{"y", common_arena + 4, common_shape, 4, 1, {kDLInt, 8, 1}}};
static const struct crt_tensor half_outputs[] = {{"y", common_arena, common_shape, 4, 1, {kDLInt, 8, 1}}};

static int32_t next_run(void)
{
    for (int i = 0; i < 4; i++) {
        common_arena[4 + i] = (int8_t)(common_arena[i] + 1);
    }
    return 0;
}

static int32_t half_run(void)
{
    for (int i = 0; i < 4; i++) {
        common_arena[i] = (int8_t)(common_arena[i] / 2);
        common_arena[4 + i] = -1;
    }
    return 0;
}

static const struct crt_model next = {"next", next_run, NULL, next_inputs, next_outputs, 1, 1, 1, 0, common_arena, 0, NULL, NULL, NULL, 0};
static const struct crt_model half = {"half", half_run, NULL, next_inputs, half_outputs, 1, 1, 1,
                                      CRT_MODEL_CONSUMES_INPUTS, common_arena, 0, NULL, NULL, NULL, 0};

/* A third one on that arena, with an input of another size at the same place. */
static const int64_t wide_shape[] = {8};
static const struct crt_tensor wide_inputs[] = {{"x", common_arena, wide_shape, 8, 1, {kDLInt, 8, 1}}};

static int32_t wide_run(void)
{
    for (int i = 0; i < 8; i++) {
        common_arena[i] = (int8_t)(common_arena[i] + 2);
    }
    return 0;
}

static const struct crt_model wide = {"wide", wide_run, NULL, wide_inputs, wide_inputs, 1, 1, 1,
                                      CRT_MODEL_CONSUMES_INPUTS, common_arena, 0, NULL, NULL, NULL, 0};

/* The captured model: it gives the captured answer. */
static int8_t captured_x[490], captured_y[12];
static const int64_t captured_x_shape[] = {1, 49, 10, 1};
static const int64_t captured_y_shape[] = {1, 12};
static const struct crt_tensor captured_inputs[] = {
    {"input_1", captured_x, captured_x_shape, 490, 4, {kDLInt, 8, 1}}};
static const struct crt_tensor captured_outputs[] = {
    {"output0", captured_y, captured_y_shape, 12, 2, {kDLInt, 8, 1}}};

static int32_t captured_run(void)
{
    memset(captured_y, -128, sizeof captured_y);
    captured_y[9] = 0x69;
    captured_y[11] = -105;
    return 0;
}

static const struct crt_model captured = {"kws", captured_run, NULL, captured_inputs, captured_outputs, 1, 1, 1, 0,
                                          NULL, 0, NULL, NULL, NULL, 0};

static const struct crt_model *const models[] = {&add, &once, &broken};
static const struct crt_model *const shared_models[] = {&next, &half, &wide};
static const struct crt_model *const captured_models[] = {&captured};

/* Functions of the registry. */
static int32_t toy_add(TVMValue *args, int *codes, int count, TVMValue *ret, int *code, void *resource)
{
    (void)ret;
    (void)code;
    (void)resource;
    for (int i = 0; i < 3; i++) {
        const DLTensor *tensor = args[i].v_handle;
        const DLTensor *first = args[0].v_handle;
        if (count != 3 || codes[i] != kTVMDLTensorHandle || tensor->ndim != 1 ||
            tensor->shape[0] != first->shape[0] || memcmp(&tensor->dtype, &int8, sizeof int8) != 0) {
            TVMAPISetLastError("toy_add adds int8");
            return -1;
        }
    }
    const DLTensor *a = args[0].v_handle;
    const DLTensor *b = args[1].v_handle;
    const DLTensor *out = args[2].v_handle;
    int8_t *sum = TVMBackendAllocWorkspace(kDLCPU, 0, (uint64_t)a->shape[0], kDLInt, 8);
    if (sum == NULL) {
        return -1;
    }
    for (int64_t i = 0; i < a->shape[0]; i++) {
        sum[i] = (int8_t)(((int8_t *)a->data)[i] + ((int8_t *)b->data)[i]);
    }
    memcpy(out->data, sum, (size_t)a->shape[0]);
    return TVMBackendFreeWorkspace(kDLCPU, 0, sum);
}

static int32_t toy_fail(TVMValue *args, int *codes, int count, TVMValue *ret, int *code, void *resource)
{
    (void)args;
    (void)codes;
    (void)count;
    (void)ret;
    (void)code;
    (void)resource;
    return -7;
}

/* Returns its argument. */
static int32_t toy_echo(TVMValue *args, int *codes, int count, TVMValue *ret, int *code, void *resource)
{
    (void)resource;
    if (count != 1) {
        return -1;
    }
    *ret = args[0];
    *code = codes[0];
    return 0;
}

/* A fault in the middle of a call, as a handler would report it. */
static int32_t toy_fault(TVMValue *args, int *codes, int count, TVMValue *ret, int *code, void *resource)
{
    static struct crt_fault fault = {.pc = 0x1234abcd, .lr = 0x80, .cfsr = 0x8200, .bfar = 0x40, .exception = 5};
    fault.registers[3] = 7;
    fault.ticks_per_second = 1000;
    fault.ticks_low = 2500;
    crt_fault_seal(&fault);
    crt_server_fault(&toy_server, &fault);
    return toy_fail(args, codes, count, ret, code, resource);
}

/* What a model's own entry of the registry does to the arena. */
static int32_t toy_half(TVMValue *args, int *codes, int count, TVMValue *ret, int *code, void *resource)
{
    (void)toy_echo(args, codes, count, ret, code, resource);
    return half_run();
}

/* The address of a constant. */
static const uint8_t toy_weights[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static const struct crt_param toy_param = {7, toy_weights, sizeof toy_weights};
static const struct crt_params toy_params = {&toy_param, 1};

static int32_t toy_constant(TVMValue *args, int *codes, int count, TVMValue *ret, int *code, void *resource)
{
    (void)args;
    (void)codes;
    (void)count;
    (void)resource;
    ret->v_handle = (void *)(uintptr_t)toy_weights;
    *code = kTVMOpaqueHandle;
    return 0;
}

static const TVMBackendPackedCFunc functions[] = {toy_add, toy_fail, toy_echo, toy_fault, toy_half, toy_constant};
static const TVMFuncRegistry registry = {
    "\006\000toy_add\000toy_fail\000toy_echo\000toy_fault\000half_run\000toy_constant\000", functions};
static const TVMModule system_lib = {&registry};

const TVMModule *TVMSystemLibEntryPoint(void)
{
    return &system_lib;
}

static uint64_t port_ticks(void *context)
{
    (void)context;
    clock_ticks += toy_drift;
    return clock_ticks;
}

static void port_spin(void *context, uint32_t loops)
{
    (void)context;
    clock_ticks += 2 * (uint64_t)loops;
}

/* The nonce that follows is 0xa8, that of the capture. */
static uint32_t port_random(void *context)
{
    (void)context;
    return 0xe5;
}

#ifdef CRT_SLOTS
/* Two slots in RAM, from the heap as well; a flash that writes 16 bytes at once. */
#define TOY_SLOT 256u

static int32_t slot_erase(void *context, uintptr_t address, uint32_t size)
{
    (void)context;
    memset((void *)address, 0xff, size);
    return 0;
}

static int32_t slot_write(void *context, uintptr_t address, const void *data, uint32_t size)
{
    (void)context;
    memcpy((void *)address, data, size);
    return 0;
}

static struct crt_slots *toy_slots(void)
{
    static const struct crt_flash flash = {
        .erase_size = TOY_SLOT, .write_size = 16, .erase = slot_erase, .write = slot_write};
    static struct crt_slot_place places[2];
    static struct crt_slots slots;
    for (int i = 0; i < 2; i++) {
        free((void *)places[i].origin);
        places[i] = (struct crt_slot_place){.origin = (uintptr_t)calloc(TOY_SLOT, 1), .size = TOY_SLOT, .in_ram = 1};
    }
    const struct crt_slots_config config = {.flash = &flash, .places = places, .count = 2};
    (void)crt_slots_start(&slots, &config);
    return &slots;
}
#endif

int toy_start(enum toy_image image, uint32_t receive_size, void (*write)(void *, const uint8_t *, size_t))
{
    static const struct crt_model *const *const images[] = {models, captured_models, shared_models};
    static const uint16_t counts[] = {3, 1, 3};
    static struct crt_port port;
    static _Alignas(16) uint8_t workspace[256];
    static uint8_t *receive;
    /* From the heap, so that the sanitizer knows where they end. */
    free(receive);
    free(toy_pool);
    receive = malloc(receive_size);
    toy_pool = malloc(TOY_POOL);
    port = (struct crt_port){
        .write = write,
        .ticks = port_ticks,
        .ticks_per_second = 1000,
        .spin = port_spin,
        .random = port_random,
    };
    const struct crt_server_config config = {
        .port = &port,
        .receive = receive,
        .receive_size = receive_size,
        .pool = toy_pool,
        .pool_size = TOY_POOL,
        .models = images[image],
        .num_models = counts[image],
        .system_lib = TVMSystemLibEntryPoint(),
        .params = &toy_params,
        .backend = &crt_backend,
#ifdef CRT_SLOTS
        .slots = toy_slots(),
#endif
    };
    crt_pool_init(&crt_backend.workspace, workspace, sizeof workspace);
    return crt_server_init(&toy_server, &config);
}
