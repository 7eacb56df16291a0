/* SPDX-License-Identifier: Apache-2.0 */
#include <crt/drift.h>

#include <string.h>

_Static_assert(sizeof(struct crt_drift) <= 100u, "the counts are small on purpose");

/* Return whether an element is at an end of its range, 0 to `most`. */
#define CRT_DRIFT_AT_END(element, most) (((((element) + 1u) & (most)) < 2u) ? 1u : 0u)

/* Count elements at the ends of their type's range and, unless `bins` is NULL, all elements by sixteenths of it. */
static uint32_t crt_drift_bytes(const struct crt_drift_values *values, const uint8_t *data, uint16_t *bins)
{
    const uint8_t *end = &data[values->elements];
    const uint32_t step = values->step;
    const uint32_t sign = (values->is_signed != 0u) ? (uint32_t)0x80 : (uint32_t)0;
    uint32_t ends = 0;
    if (bins == NULL) {
        for (const uint8_t *at = data; at < end; at += step) {
            ends += CRT_DRIFT_AT_END((uint32_t)*at ^ sign, 0xffu);
        }
        return ends;
    }
    for (const uint8_t *at = data; at < end; at += step) {
        const uint32_t element = (uint32_t)*at ^ sign;
        bins[element >> 4]++;
        ends += CRT_DRIFT_AT_END(element, 0xffu);
    }
    return ends;
}

static uint32_t crt_drift_halves_of(const struct crt_drift_values *values, const uint16_t *data, uint16_t *bins)
{
    const uint32_t sign = (values->is_signed != 0u) ? (uint32_t)0x8000 : (uint32_t)0;
    uint32_t ends = 0;
    for (uint32_t i = 0; i < values->elements; i += values->step) {
        const uint32_t element = (uint32_t)data[i] ^ sign;
        if (bins != NULL) {
            bins[element >> 12]++;
        }
        ends += CRT_DRIFT_AT_END(element, 0xffffu);
    }
    return ends;
}

static uint16_t crt_drift_count(const struct crt_drift_values *values, const void *data, uint16_t *bins)
{
    const uint32_t ends =
        (values->shift == 0u) ? crt_drift_bytes(values, data, bins) : crt_drift_halves_of(values, data, bins);
    return (uint16_t)ends;
}

void crt_drift_begin(const struct crt_drift_reference *reference, const void *input)
{
    struct crt_drift_counts *counts = &reference->drift->counts;
    counts->ends += crt_drift_count(&reference->input, input, counts->inputs);
}

void crt_drift_layer(const struct crt_drift_reference *reference, uint16_t layer)
{
    if (((reference->watched >> (layer % 32u)) & 1u) == 0u) {
        return;
    }
    for (uint32_t i = 0; i < reference->num_layers; i++) {
        const struct crt_drift_output *watched = &reference->layers[i];
        if (watched->layer == layer) {
            reference->drift->counts.saturated[i] += crt_drift_count(&watched->values, watched->place, NULL);
        }
    }
}

static uint16_t crt_drift_distance(const uint16_t *counts, const uint16_t *expected, uint32_t bins)
{
    uint32_t distance = 0;
    for (uint32_t i = 0; i < bins; i++) {
        distance += (counts[i] > expected[i]) ? ((uint32_t)counts[i] - expected[i]) : ((uint32_t)expected[i] - counts[i]);
    }
    return (uint16_t)((distance < 0xffffu) ? distance : 0xffffu);
}

/* The two greatest scores; for int8 outputs only. */
static void crt_drift_scores(const struct crt_drift_reference *reference, const int8_t *scores)
{
    struct crt_drift_counts *counts = &reference->drift->counts;
    int32_t first = -129;
    int32_t second = -129;
    uint32_t best = 0;
    uint32_t entropy = 0;
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
        entropy += (reference->entropy != NULL) ? reference->entropy[(uint8_t)scores[i] ^ 0x80u] : 0u;
    }
    counts->entropy += (uint16_t)(entropy / 4u);
    counts->classes[(best < CRT_DRIFT_CLASSES) ? best : (CRT_DRIFT_CLASSES - 1u)]++;
    counts->margins[(uint32_t)(first - second) / 32u % CRT_DRIFT_MARGINS]++;
}

static uint32_t crt_drift_lasting(const struct crt_drift *drift)
{
    uint32_t count = 0;
    for (uint32_t bits = drift->unusual; bits != 0u; bits &= bits - 1u) {
        count++;
    }
    return count;
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
    drift->distances[3] = crt_drift_distance(drift->counts.saturated, expected->saturated, CRT_DRIFT_LAYERS);
    drift->distances[4] = crt_drift_distance(&drift->counts.entropy, &expected->entropy, 1);
    uint32_t beyond = 0;
    uint32_t unusual = 0;
    for (uint32_t i = 0; i < CRT_DRIFT_PARTS; i++) {
        beyond |= (drift->distances[i] > reference->limits[i]) ? 1u : 0u;
        unusual |= (drift->distances[i] > reference->lasting[i]) ? 1u : 0u;
    }
    drift->unusual = (uint16_t)((((uint32_t)drift->unusual << 1) | unusual) & 0xffffu);
    drift->windows++;
    drift->alarms += ((beyond != 0u) || (crt_drift_lasting(drift) >= CRT_DRIFT_LASTING)) ? 1u : 0u;
    drift->runs = 0;
    (void)memset(&drift->counts, 0, sizeof drift->counts);
}

struct crt_drift_writer {
    uint8_t *at;
};

/* Write the head of a CBOR item: its kind and a number. */
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

size_t crt_drift_cbor(const struct crt_drift_reference *reference, uint8_t *bytes, size_t room)
{
    const struct crt_drift *drift = reference->drift;
    struct crt_drift_writer writer = {bytes};
    if (room < CRT_DRIFT_CBOR) {
        return 0;
    }
    crt_drift_item(&writer, 5, 12);
    crt_drift_number(&writer, "windows", drift->windows);
    crt_drift_number(&writer, "alarms", drift->alarms);
    crt_drift_halves(&writer, "distances", drift->distances, CRT_DRIFT_PARTS);
    crt_drift_halves(&writer, "limits", reference->limits, CRT_DRIFT_PARTS);
    crt_drift_number(&writer, "lasting", crt_drift_lasting(drift));
    crt_drift_number(&writer, "runs", drift->runs);
    crt_drift_halves(&writer, "inputs", drift->counts.inputs, CRT_DRIFT_BINS);
    crt_drift_halves(&writer, "classes", drift->counts.classes, CRT_DRIFT_CLASSES);
    crt_drift_halves(&writer, "margins", drift->counts.margins, CRT_DRIFT_MARGINS);
    crt_drift_halves(&writer, "saturated", drift->counts.saturated, CRT_DRIFT_LAYERS);
    crt_drift_number(&writer, "entropy", drift->counts.entropy);
    crt_drift_number(&writer, "ends", drift->counts.ends);
    return (size_t)(writer.at - bytes);
}
