/*
 * It listens for a word. Two libraries: `heard` makes a row of features of each 20 milliseconds of sound, and stays as it
 * is; `speech` is the network on the last second of rows, which an update replaces.
 */
#include <string.h>

#include <heard_pipeline.h>
#include <speech.h>
#include <speech_field.h>

#include "product.h"
#include "sounds.h"

#define ROW HEARD_OUTPUT_FEATURES_ELEMENTS
#define WINDOW SPEECH_INPUT_RESHAPE_1_ELEMENTS
#define DMA 160u /* samples that a microphone brings at a time */

const struct crt_field *const product_field = &speech_field;
const uint32_t product_samples = SOUNDS;
const int32_t product_known = KNOWN_WORD;

struct answer product_read(uint32_t sample)
{
    static int8_t rows[WINDOW];
    static int8_t scores[SPEECH_OUTPUT_LABELS_SOFTMAX_ELEMENTS];
    const struct speech_inputs inputs = {rows};
    const struct speech_outputs outputs = {scores};
    struct answer answer = {0, 0};
    uint32_t ready = 0;
    heard_reset();
    for (uint32_t at = 0; at + DMA <= SOUND_SAMPLES; at += DMA) {
        struct heard_event event;
        if (heard_push(&sounds[sample][at], DMA, &event) <= 0) {
            continue;
        }
        memmove(rows, &rows[ROW], WINDOW - ROW);
        memcpy(&rows[WINDOW - ROW], event.row, ROW);
        ready++;
        if (ready * ROW >= WINDOW) {
            (void)speech_run_newest(&inputs, &outputs);
            answer = best_of(scores, SPEECH_OUTPUT_LABELS_SOFTMAX_ELEMENTS);
        }
    }
    return answer;
}
