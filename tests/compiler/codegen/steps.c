/* Runs a model three times in steps, and prints its outputs: a byte of each input is the number of the run. */
#include <stdio.h>
#include <string.h>

#include MODEL_HEADER

#define NAME_(a, b) a##b
#define NAME(a, b) NAME_(a, b)

int main(void)
{
    for (int run = 0; run < 3; run++) {
        memset(NAME(MODEL, _input_places).INPUT, 17 * run, INPUT_BYTES);
        for (uint32_t step = 0; step < STEPS; step++) {
            if (NAME(MODEL, _step)(step) != 0) {
                return 1;
            }
        }
        const uint8_t *bytes = (const uint8_t *)NAME(MODEL, _output_places).OUTPUT;
        for (int i = 0; i < OUTPUT_BYTES; i++) {
            printf("%d ", bytes[i]);
        }
    }
    return NAME(MODEL, _step)(STEPS) == -1 ? 0 : 2;
}
