/*
 * Runs each model once on its built-in input, and prints the outputs and the ticks of the run. The last line
 * has the number of runs that failed.
 */
#include <string.h>

#ifdef CRT_TVM_CODE
#include <crt/backend.h>
#endif
#include <crt/fault.h>
#include <crt/model.h>

#include "platform.h"

/* The application on its own has no built-in input: zeros. */
#if defined(__has_include) && __has_include("sample.h")
#include "sample.h"
#define SET_INPUTS(i) crt_samples[i](crt_models[i]->inputs)
#else
#define SET_INPUTS(i) clear_inputs(crt_models[i])

static void clear_inputs(const struct crt_model *model)
{
    for (uint16_t i = 0; i < model->num_inputs; i++) {
        memset(model->inputs[i].data, 0, model->inputs[i].nbytes);
    }
}
#endif

/* Print bytes as integers, and wider types as hexadecimal 32-bit words. */
static void print_tensor(const struct crt_tensor *tensor)
{
    const uint8_t *bytes = tensor->data;
    printk("%s", tensor->name);
    if (tensor->dtype.bits <= 8) {
        for (uint32_t i = 0; i < tensor->nbytes; i++)
            printk(" %d", tensor->dtype.code == kDLInt ? (int8_t)bytes[i] : bytes[i]);
    } else {
        for (uint32_t i = 0; i + 4 <= tensor->nbytes; i += 4) {
            uint32_t word;
            memcpy(&word, bytes + i, sizeof word);
            printk(" %08x", word);
        }
    }
    printk("\n");
}

static int run(const struct crt_model *model)
{
    uint64_t start = crt_clock_ticks();
    int32_t status = model->run();
    uint32_t ticks = (uint32_t)(crt_clock_ticks() - start);
    printk("%s: %s %u ticks\n", model->name, status == 0 ? "ran" : "failed after", ticks);
    for (uint16_t i = 0; i < model->num_outputs; i++)
        print_tensor(&model->outputs[i]);
    return status != 0;
}

int main(void)
{
    int failures = 0;
    crt_clock_start();
#ifdef CRT_TVM_CODE
    crt_backend.system_lib = TVMSystemLibEntryPoint();
#endif
    for (uint16_t i = 0; i < crt_num_models; i++) {
        SET_INPUTS(i);
        failures += run(crt_models[i]);
    }
    printk("finished: %d failed\n", failures);
    return 0;
}

static void print_line(void *context, const char *text)
{
    (void)context;
    printk("%s\n", text);
}

void crt_report(struct crt_fault *fault)
{
    crt_fault_report(fault, print_line, NULL);
    fault->magic = 0;
}
