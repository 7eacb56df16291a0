/* Runs every model of the table and prints its outputs as `out <hex>`, and the ticks that it took as `ticks <n>`. */
#include <string.h>

#include "print.h"
#include "runs.h"

#if defined(__arm__)
#define SYST_CSR (*(volatile uint32_t *)0xe000e010u)
#define SYST_RVR (*(volatile uint32_t *)0xe000e014u)
#define SYST_CVR (*(volatile uint32_t *)0xe000e018u)

static volatile uint32_t wraps;
void systick_handler(void);
void systick_handler(void)
{
    wraps++;
}

static void start_ticks(void)
{
    wraps = 0;
    SYST_RVR = 0xffffffu;
    SYST_CVR = 0;
    SYST_CSR = 7u;
}

static uint32_t ticks(void)
{
    return wraps * 0x1000000u + (0xffffffu - SYST_CVR);
}
#else
static void start_ticks(void)
{
}

static uint32_t ticks(void)
{
    return 0;
}
#endif

#ifdef CRT_PROFILE
static uint32_t marks[256];

void crt_layer_done(uint16_t layer)
{
    marks[layer] = ticks();
}
#endif

static void put_hex(const uint8_t *bytes, uint32_t size)
{
    static const char digits[] = "0123456789abcdef";
    char text[65];
    while (size > 0) {
        uint32_t n = size < 32 ? size : 32;
        for (uint32_t i = 0; i < n; i++) {
            text[2 * i] = digits[bytes[i] >> 4];
            text[2 * i + 1] = digits[bytes[i] & 15];
        }
        text[2 * n] = 0;
        put(text);
        bytes += n;
        size -= n;
    }
}

int main(void)
{
    for (uint32_t r = 0; r < num_runs; r++) {
        const struct crt_model *model = runs[r].model;
        const uint8_t *from = runs[r].inputs;
        for (uint32_t i = 0; i < model->num_inputs; i++) {
            memcpy(model->inputs[i].data, from, model->inputs[i].nbytes);
            from += model->inputs[i].nbytes;
        }
        start_ticks();
        if (model->reset != NULL) {
            model->reset();
        }
        int32_t status = model->run();
        uint32_t spent = ticks();
        if (status != 0) {
            return 1;
        }
        put("out ");
        for (uint32_t i = 0; i < model->num_outputs; i++) {
            put_hex(model->outputs[i].data, model->outputs[i].nbytes);
        }
        put_number("\nticks ", spent);
        put("\n");
#ifdef CRT_PROFILE
        for (uint32_t i = 0; i < model->num_layers; i++) {
            put_number("layer ", marks[i] - (i > 0 ? marks[i - 1] : 0));
            put("\n");
        }
#endif
    }
    return 0;
}
