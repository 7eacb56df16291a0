/* SPDX-License-Identifier: Apache-2.0 */
#include <crt/drift.h>

#include <string.h>

/* An element of int8, uint8, int16 or uint16, from 0 on. */
static uint32_t crt_drift_element(const struct crt_drift_reference *reference, const void *data, uint32_t index)
{
    if (reference->input_shift == 0u) {
        const uint32_t byte = ((const uint8_t *)data)[index];
        return (reference->is_signed != 0u) ? (byte ^ 0x80u) : byte;
    }
    const uint32_t half = ((const uint16_t *)data)[index];
    return (reference->is_signed != 0u) ? (half ^ 0x8000u) : half;
}

void crt_drift_begin(const struct crt_drift_reference *reference, const void *input)
{
    struct crt_drift_counts *counts = &reference->drift->counts;
    const uint32_t bits = (uint32_t)8 << reference->input_shift;
    const uint32_t most = ((uint32_t)1 << bits) - 1u;
    const uint32_t right = bits - 4u;
    for (uint32_t i = 0; i < reference->elements; i += reference->step) {
        const uint32_t element = crt_drift_element(reference, input, i);
        counts->inputs[element >> right]++;
        if ((element == 0u) || (element == most)) {
            counts->ends++;
        }
    }
}

static uint32_t crt_drift_distance(const uint16_t *counts, const uint16_t *expected, uint32_t bins)
{
    uint32_t distance = 0;
    for (uint32_t i = 0; i < bins; i++) {
        distance += (counts[i] > expected[i]) ? ((uint32_t)counts[i] - expected[i]) : ((uint32_t)expected[i] - counts[i]);
    }
    return distance;
}

/* The greatest of the scores and the one behind it; int8 outputs only have them. */
static void crt_drift_scores(const struct crt_drift_reference *reference, const int8_t *scores)
{
    struct crt_drift_counts *counts = &reference->drift->counts;
    int32_t first = -129;
    int32_t second = -129;
    uint32_t best = 0;
    for (uint32_t i = 0; i < reference->scores; i++) {
        if (scores[i] > first) {
            second = first;
            first = scores[i];
            best = i;
        } else if (scores[i] > second) {
            second = scores[i];
        } else {
            /* Neither. */
        }
    }
    counts->classes[(best < CRT_DRIFT_CLASSES) ? best : (CRT_DRIFT_CLASSES - 1u)]++;
    counts->margins[(uint32_t)(first - second) / 32u % CRT_DRIFT_MARGINS]++;
}

void crt_drift_end(const struct crt_drift_reference *reference, const void *output)
{
    struct crt_drift *drift = reference->drift;
    const struct crt_drift_counts *expected = &reference->expected;
    if (reference->scores != 0u) {
        crt_drift_scores(reference, output);
    }
    drift->runs++;
    if (drift->runs < reference->runs) {
        return;
    }
    drift->distances[0] = crt_drift_distance(drift->counts.inputs, expected->inputs, CRT_DRIFT_BINS);
    drift->distances[1] = crt_drift_distance(drift->counts.classes, expected->classes, CRT_DRIFT_CLASSES);
    drift->distances[2] = crt_drift_distance(drift->counts.margins, expected->margins, CRT_DRIFT_MARGINS);
    uint32_t beyond = 0;
    for (uint32_t i = 0; i < 3u; i++) {
        beyond |= (drift->distances[i] > reference->limits[i]) ? 1u : 0u;
    }
    drift->windows++;
    drift->alarms += beyond;
    drift->runs = 0;
    (void)memset(&drift->counts, 0, sizeof drift->counts);
}

struct crt_drift_writer {
    uint8_t *at;
};

/* The head of an item: its kind and a number. */
static void crt_drift_item(struct crt_drift_writer *writer, uint8_t kind, uint32_t number)
{
    const uint8_t major = (uint8_t)(kind << 5);
    if (number < 24u) {
        *writer->at++ = (uint8_t)(major | number);
    } else if (number < 0x100u) {
        *writer->at++ = (uint8_t)(major | 24u);
        *writer->at++ = (uint8_t)number;
    } else if (number < 0x10000u) {
        *writer->at++ = (uint8_t)(major | 25u);
        *writer->at++ = (uint8_t)(number >> 8);
        *writer->at++ = (uint8_t)number;
    } else {
        *writer->at++ = (uint8_t)(major | 26u);
        for (uint32_t shift = 32; shift > 0u; shift -= 8u) {
            *writer->at++ = (uint8_t)(number >> (shift - 8u));
        }
    }
}

static void crt_drift_key(struct crt_drift_writer *writer, const char *name)
{
    const size_t size = strlen(name);
    crt_drift_item(writer, 3, (uint32_t)size);
    (void)memcpy(writer->at, name, size);
    writer->at += size;
}

static void crt_drift_number(struct crt_drift_writer *writer, const char *name, uint32_t number)
{
    crt_drift_key(writer, name);
    crt_drift_item(writer, 0, number);
}

static void crt_drift_halves(struct crt_drift_writer *writer, const char *name, const uint16_t *numbers, uint32_t count)
{
    crt_drift_key(writer, name);
    crt_drift_item(writer, 4, count);
    for (uint32_t i = 0; i < count; i++) {
        crt_drift_item(writer, 0, numbers[i]);
    }
}

static void crt_drift_words(struct crt_drift_writer *writer, const char *name, const uint32_t *numbers)
{
    crt_drift_key(writer, name);
    crt_drift_item(writer, 4, 3);
    for (uint32_t i = 0; i < 3u; i++) {
        crt_drift_item(writer, 0, numbers[i]);
    }
}

size_t crt_drift_cbor(const struct crt_drift_reference *reference, uint8_t *bytes, size_t room)
{
    const struct crt_drift *drift = reference->drift;
    struct crt_drift_writer writer = {bytes};
    if (room < CRT_DRIFT_CBOR) {
        return 0;
    }
    crt_drift_item(&writer, 5, 9);
    crt_drift_number(&writer, "windows", drift->windows);
    crt_drift_number(&writer, "alarms", drift->alarms);
    crt_drift_words(&writer, "distances", drift->distances);
    crt_drift_words(&writer, "limits", reference->limits);
    crt_drift_number(&writer, "runs", drift->runs);
    crt_drift_halves(&writer, "inputs", drift->counts.inputs, CRT_DRIFT_BINS);
    crt_drift_halves(&writer, "classes", drift->counts.classes, CRT_DRIFT_CLASSES);
    crt_drift_halves(&writer, "margins", drift->counts.margins, CRT_DRIFT_MARGINS);
    crt_drift_number(&writer, "ends", drift->counts.ends);
    return (size_t)(writer.at - bytes);
}
