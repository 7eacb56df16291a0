/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts what a model meets in the field: does it still resemble the data that the model was made for? Models
 * generated with `--watch` have this. Windows of runs are compared with a reference, in integers. SPEC.md, section
 * 10.
 */
#ifndef CRT_DRIFT_H
#define CRT_DRIFT_H

#include <stddef.h>
#include <stdint.h>

#define CRT_DRIFT_BINS 16u    /* bins for elements of the first input */
#define CRT_DRIFT_CLASSES 8u  /* bins for the first output's largest element: 0, 1, ..., the last one and beyond */
#define CRT_DRIFT_MARGINS 8u  /* bins for the difference of the two largest elements, by eighths of the type's range */
#define CRT_DRIFT_LAYERS 4u   /* layers whose outputs are counted */
#define CRT_DRIFT_PARTS 5u    /* quantities that are compared: inputs, classes, margins, saturated, entropy */

/* Alarm if this many of 16 windows are unusual: one of ten is by chance, seven of 16 are once in 2,000. */
#define CRT_DRIFT_LASTING 7u

/* The counts of a window, and of the reference. */
struct crt_drift_counts {
    uint16_t inputs[CRT_DRIFT_BINS];
    uint16_t classes[CRT_DRIFT_CLASSES];
    uint16_t margins[CRT_DRIFT_MARGINS];
    uint16_t saturated[CRT_DRIFT_LAYERS]; /* elements of a layer's output at an end of their type's range */
    uint16_t entropy; /* entropy of the scores in 64ths of a bit, summed over the runs */
    uint16_t ends; /* elements of the input at an end of their type's range: they were clipped */
};

/* State of the counters in RAM; all zeros at first. */
struct crt_drift {
    struct crt_drift_counts counts; /* of the current window */
    uint16_t runs;
    uint16_t distances[CRT_DRIFT_PARTS]; /* of the last window */
    uint16_t unusual; /* a bit for each of the last 16 windows, bit 0 for the newest: a lower limit was exceeded */
    uint32_t windows; /* complete windows */
    uint32_t alarms;  /* windows beyond a limit, or with which CRT_DRIFT_LASTING of 16 were unusual */
};

/* Every `step`th element of an array of integers: bytes, or halfwords if `shift` is 1. */
struct crt_drift_values {
    uint32_t elements;
    uint32_t step;
    uint8_t shift;
    uint8_t is_signed;
};

/* The output of a layer, and its number in the order of execution. */
struct crt_drift_output {
    struct crt_drift_values values;
    const void *place;
    uint16_t layer;
};

/* The reference in flash: measured on data that the model was made for. */
struct crt_drift_reference {
    struct crt_drift *drift;
    struct crt_drift_values input;
    uint32_t scores; /* elements of the output; 0: classes and margins are not counted */
    const uint8_t *entropy; /* 256 times -p log2(p) of a score from -128 on; NULL if scores are no probabilities */
    const struct crt_drift_output *layers;
    uint32_t num_layers;
    uint32_t watched; /* bit n: a layer with number n modulo 32 is counted */
    uint16_t runs;                    /* runs of a window */
    uint16_t limits[CRT_DRIFT_PARTS]; /* limits of the distances: a window beyond one is an alarm */
    uint16_t lasting[CRT_DRIFT_PARTS]; /* lower limits: a window beyond one is unusual */
    struct crt_drift_counts expected;
};

/* Called by the code of a model before and after a run. */
void crt_drift_begin(const struct crt_drift_reference *reference, const void *input);
void crt_drift_layer(const struct crt_drift_reference *reference, uint16_t layer);
void crt_drift_end(const struct crt_drift_reference *reference, const void *output);

/*
 * Write the last window as CBOR: a map of "windows", "alarms", "distances", "limits", "lasting" (how many of the last
 * 16 were unusual), and of this window "runs", "inputs", "classes", "margins", "saturated", "entropy" and "ends".
 * Returns its size in bytes, or 0 if there is no room for CRT_DRIFT_CBOR.
 */
#define CRT_DRIFT_CBOR 256u
size_t crt_drift_cbor(const struct crt_drift_reference *reference, uint8_t *bytes, size_t room);

#endif
