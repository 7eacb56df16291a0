/* SPDX-License-Identifier: Apache-2.0 */
#include "crt_internal.h"

/* The most runs in a repeat. */
#define CRT_TIME_RUNS 1000000000u

/* The most loops of a calibration: at two instructions each, 32 s at 25 MHz. */
#define CRT_TIME_LOOPS 400000000

uint64_t crt_time_now(const struct crt_server *server)
{
    const struct crt_port *port = server->config.port;
    return port->ticks(port->context);
}

int crt_time_check(struct crt_server *server)
{
    const struct crt_port *port = server->config.port;
    if (port->feed != NULL) {
        port->feed(port->context);
    }
    if ((crt_time_now(server) - server->start) > ((uint64_t)CRT_SERVER_SECONDS * port->ticks_per_second)) {
        return crt_fail(server, CRT_ERR_STATE, "a request may take %d s; ask for fewer runs, or shorter waits",
                        CRT_SERVER_SECONDS);
    }
    return CRT_OK;
}

/* num / den without the library's 64-bit division, whose code would be included for each call. */
__attribute__((noinline)) static uint64_t crt_divide(uint64_t num, uint64_t den)
{
    uint64_t quotient = 0;
    uint64_t rest = 0;
    for (int i = 63; i >= 0; i--) {
        rest = rest << 1 | (num >> i & 1u);
        quotient <<= 1;
        if (rest >= den) {
            rest -= den;
            quotient |= 1u;
        }
    }
    return quotient;
}

uint64_t crt_time_ratio(uint64_t num, uint64_t den)
{
    uint64_t exponent = 1023;
    if (num == 0) {
        return 0;
    }
    for (; num < den; num <<= 1) {
        exponent--;
    }
    for (; num >= (den << 1); den <<= 1) {
        exponent++;
    }
    uint64_t mantissa = 0;
    num -= den;
    for (int i = 0; i < 52; i++) {
        num <<= 1;
        mantissa <<= 1;
        if (num >= den) {
            num -= den;
            mantissa |= 1u;
        }
    }
    return (exponent << 52) + mantissa + (num << 1 >= den);
}

/*
 * Arguments: module, name, device type, device id, number, repeat, min_repeat_ms, limit of repeats that take no time,
 * cooldown in ms, repeats to cooldown, and an action before each repeat, which is ignored. Some hosts send a
 * function's name for that, some also a size of cache to flush.
 */
int crt_time_evaluator(struct crt_call *call)
{
    struct crt_server *server = call->server;
    const TVMValue *values = call->values;
    const char *name = values[1].v_str;
    const int module = crt_module_index(server, (uint64_t)values[0].v_int64);
    const uint32_t function = crt_module_find(server, (uint32_t)module, name);
    if (function == 0) {
        return crt_fail(server, CRT_ERR_NAME, "the module to time has no function %s", name);
    }
    for (int i = 4; i < 10; i++) {
        if ((values[i].v_int64 < 0) || (values[i].v_int64 > 1000000) || ((i < 6) && (values[i].v_int64 == 0))) {
            return crt_fail(server, CRT_ERR_ARGUMENT, "argument %d of %s is out of range", i, server->running);
        }
    }
    for (int i = 10; i < call->count; i++) {
        const int none = call->codes[i] == kTVMStr ? values[i].v_str[0] == '\0' : values[i].v_int64 == 0;
        if (!none) {
            return crt_fail(server, CRT_ERR_ARGUMENT, "this device does nothing between the repeats of a timing");
        }
    }
    for (uint32_t i = 0; i < CRT_SERVER_EVALUATORS; i++) {
        struct crt_evaluator *evaluator = &server->evaluators[i];
        if (evaluator->function == 0) {
            evaluator->function = function;
            evaluator->number = (uint32_t)values[4].v_int64;
            evaluator->repeat = (uint32_t)values[5].v_int64;
            evaluator->min_repeat_ms = (uint32_t)values[6].v_int64;
            evaluator->zero_limit = (uint32_t)values[7].v_int64;
            evaluator->cooldown_ms = (uint32_t)values[8].v_int64;
            evaluator->cooldown_every = (uint32_t)values[9].v_int64;
            crt_call_return_handle(call, crt_function_handle(CRT_MODULE_EVALUATORS(server), i), kTVMPackedFuncHandle);
            return CRT_OK;
        }
    }
    return crt_fail(server, CRT_ERR_MEMORY, "this device has %u time evaluators, and all are in use",
                    CRT_SERVER_EVALUATORS);
}

/* Run a function a number of times, with the arguments of the call; `ticks` receives the time it took. */
static int crt_time_runs(struct crt_call *call, uint32_t function, uint32_t number, uint64_t *ticks)
{
    const uint64_t start = crt_time_now(call->server);
    for (uint32_t i = 0; i < number; i++) {
        struct crt_call run = *call;
        run.timing = 1;
        int error = crt_time_check(call->server);
        if (error == CRT_OK) {
            error = crt_module_call(&run, function);
        }
        if (error != CRT_OK) {
            return error;
        }
    }
    *ticks = crt_time_now(call->server) - start;
    return CRT_OK;
}

/* Return the number of runs after a repeat that was too short: min / (t / number) + 1, or number x 13/8 if more. */
static uint32_t crt_time_grow(uint32_t number, uint64_t ticks, uint64_t least)
{
    const uint64_t each = crt_divide(ticks * 1000, number);
    const uint64_t aim = each == 0 ? 0 : crt_divide(least, each) + 1;
    const uint32_t grown = number + (number >> 1) + (number >> 3) + 1;
    const uint64_t next = (aim > grown) ? aim : grown;
    return (next > CRT_TIME_RUNS) ? CRT_TIME_RUNS : (uint32_t)next;
}

/* Measure one repeat: its ticks, and the number of runs that made it long enough. */
static int crt_time_repeat(struct crt_call *call, const struct crt_evaluator *evaluator, uint32_t *number,
                           uint64_t *ticks)
{
    const uint64_t least = (uint64_t)evaluator->min_repeat_ms * call->server->config.port->ticks_per_second;
    uint32_t zeros = 0;
    for (;;) {
        const int error = crt_time_runs(call, evaluator->function, *number, ticks);
        if (error != CRT_OK || *ticks * 1000 >= least) {
            return error;
        }
        zeros += *ticks == 0;
        if ((zeros > evaluator->zero_limit) || (*number == CRT_TIME_RUNS)) {
            return CRT_OK;
        }
        *number = crt_time_grow(*number, *ticks, least);
    }
}

static int crt_time_wait(struct crt_server *server, uint32_t ms)
{
    const uint64_t ticks = (uint64_t)ms * server->config.port->ticks_per_second;
    const uint64_t start = crt_time_now(server);
    int error = CRT_OK;
    while (error == CRT_OK && (crt_time_now(server) - start) * 1000 < ticks) {
        error = crt_time_check(server);
    }
    return error;
}

/* Call a time evaluator. Bytes: the mean seconds of each repeat, float64. */
int crt_time_evaluate(struct crt_call *call)
{
    struct crt_server *server = call->server;
    const struct crt_evaluator *evaluator = &server->evaluators[call->index];
    uint32_t number = evaluator->number;
    uint64_t ticks = 0;
    uint64_t *results = crt_call_results(call, evaluator->repeat);
    if (results == NULL) {
        return CRT_ERR_MEMORY;
    }
    server->running = crt_module_name(server, evaluator->function);
    int error = crt_time_runs(call, evaluator->function, 1, &ticks); /* a warm-up */
    for (uint32_t i = 0; error == CRT_OK && i < evaluator->repeat; i++) {
        error = crt_time_repeat(call, evaluator, &number, &ticks);
        results[i] = crt_time_ratio(ticks, (uint64_t)number * server->config.port->ticks_per_second);
        if (error == CRT_OK && evaluator->cooldown_every != 0 && (i + 1) % evaluator->cooldown_every == 0) {
            error = crt_time_wait(server, evaluator->cooldown_ms);
        }
    }
    crt_call_return_bytes(call, results, evaluator->repeat * 8);
    return error;
}

/* Argument: loops. The ticks of 2 * loops instructions. */
int crt_time_calibrate(struct crt_call *call)
{
    const struct crt_port *port = call->server->config.port;
    const int64_t loops = call->values[0].v_int64;
    if ((loops < 1) || (loops > CRT_TIME_LOOPS)) {
        return crt_fail(call->server, CRT_ERR_ARGUMENT, "a calibration takes 1 to %d loops", CRT_TIME_LOOPS);
    }
    const uint64_t start = crt_time_now(call->server);
    port->spin(port->context, (uint32_t)loops);
    crt_call_return_int(call, (int64_t)(crt_time_now(call->server) - start));
    return CRT_OK;
}

/* Arguments: executor, runs. Bytes: the ticks of each run, u64. */
int crt_time_measure(struct crt_call *call)
{
    const int model = crt_call_model(call);
    const int64_t runs = call->values[1].v_int64;
    if (model < 0) {
        return model;
    }
    uint64_t *results = crt_call_results(call, crt_clamp((uint64_t)runs));
    if (results == NULL) {
        return CRT_ERR_MEMORY;
    }
    struct crt_call run = {.server = call->server, .index = (uint32_t)model, .timing = 1};
    int error = CRT_OK;
    for (int64_t i = 0; error == CRT_OK && i < runs; i++) {
        error = crt_time_check(call->server);
        const uint64_t start = crt_time_now(call->server);
        error = error == CRT_OK ? crt_executor_run(&run) : error;
        results[i] = crt_time_now(call->server) - start;
    }
    crt_call_return_bytes(call, results, (uint32_t)runs * 8);
    return error;
}
