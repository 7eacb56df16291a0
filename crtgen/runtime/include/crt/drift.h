/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model meets in the field, counted: is it still what it was made for? Models generated with `--watch` have
 * this. Windows of runs are compared with a reference by integers. SPEC.md, section 10.
 */
#ifndef CRT_DRIFT_H
#define CRT_DRIFT_H

#include <stddef.h>
#include <stdint.h>

#define CRT_DRIFT_BINS 16u    /* of the elements of the first input */
#define CRT_DRIFT_CLASSES 8u  /* of the greatest element of the first output: 0, 1, ..., the last one and beyond */
#define CRT_DRIFT_MARGINS 8u  /* of the two greatest elements, by eighths of the type's range */

/* What a window has in common with its reference. */
struct crt_drift_counts {
    uint16_t inputs[CRT_DRIFT_BINS];
    uint16_t classes[CRT_DRIFT_CLASSES];
    uint16_t margins[CRT_DRIFT_MARGINS];
    uint16_t ends; /* elements at one of the ends of their type's range: they were cut off */
};

/* In RAM, all zeros at first. */
struct crt_drift {
    struct crt_drift_counts counts; /* of the runs of this window */
    uint16_t runs;
    uint32_t windows; /* that are whole */
    uint32_t alarms;  /* of them, those beyond a limit */
    uint32_t distances[3]; /* of the last one: inputs, classes and margins */
};

/* In flash: what was measured on data that the model was made for. */
struct crt_drift_reference {
    struct crt_drift *drift;
    uint32_t elements; /* of the input */
    uint32_t step;     /* every so many elements are counted */
    uint32_t scores;   /* elements of the output; 0: classes and margins are not counted */
    uint8_t input_shift;  /* an element is (signed) bytes of this width: 0 one, 1 two */
    uint8_t is_signed;
    uint16_t runs;        /* of a window */
    uint32_t limits[3];   /* of the distances */
    struct crt_drift_counts expected;
};

/* What the code of a model calls around a run. */
void crt_drift_begin(const struct crt_drift_reference *reference, const void *input);
void crt_drift_end(const struct crt_drift_reference *reference, const void *output);

/*
 * The last window, as CBOR: a map of "windows", "alarms", "distances", "limits", and of this window "runs", "inputs",
 * "classes", "margins" and "ends". Returns its bytes; 0 if there is no room for CRT_DRIFT_CBOR.
 */
#define CRT_DRIFT_CBOR 256u
size_t crt_drift_cbor(const struct crt_drift_reference *reference, uint8_t *bytes, size_t room);

#endif
