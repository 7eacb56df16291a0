/* SPDX-License-Identifier: Apache-2.0 */
/* Additions that a build may make to a model's code: guards around its arena, and a call after each layer of a run. */
#ifndef CRT_RUN_H
#define CRT_RUN_H

#include <stdint.h>

/* A library that records, counts or has slots brings a file of definitions. */
#ifdef __has_include
#if __has_include(<crt_config.h>)
#include <crt_config.h>
#endif
#endif

/* Bytes of a guard. */
#define CRT_GUARD_SIZE 16

/* With CRT_ARENA_GUARD, bytes before and after an arena; see crt/guard.h. */
#ifdef CRT_ARENA_GUARD
#define CRT_ARENA_MARGIN CRT_GUARD_SIZE
#else
#define CRT_ARENA_MARGIN 0
#endif

/* With CRT_PROFILE, a run calls this function of the program after each layer. */
#ifdef CRT_PROFILE
void crt_layer_done(uint16_t layer);
#define CRT_LAYER_TIMED(layer) crt_layer_done(layer)
#else
#define CRT_LAYER_TIMED(layer) ((void)0)
#endif

/* With CRT_RECORD, the last runs are recorded; see crt/record.h. */
#ifdef CRT_RECORD
#include <crt/record.h>
#ifndef CRT_RECORD_SECTION
#define CRT_RECORD_SECTION ".noinit" /* RAM that a reset does not clear */
#endif
#define CRT_RUN_BEGINS(recorder) crt_record_begin(recorder)
#define CRT_RUN_ENDS(recorder) crt_record_end(recorder)
#define CRT_RUN_STARTS_ANEW(follows) ((follows) = 0)
#else
#define CRT_RUN_BEGINS(recorder) ((void)0)
#define CRT_RUN_ENDS(recorder) ((void)0)
#define CRT_RUN_STARTS_ANEW(follows) ((void)0)
#endif

/* With CRT_DRIFT, inputs and outputs are counted; see crt/drift.h. */
#ifdef CRT_DRIFT
#include <crt/drift.h>
#define CRT_DRIFT_BEGINS(reference, input) crt_drift_begin(reference, input)
#define CRT_DRIFT_ENDS(reference, output) crt_drift_end(reference, output)
#define CRT_LAYER_COUNTED(reference, layer) crt_drift_layer(reference, layer)
#else
#define CRT_DRIFT_BEGINS(reference, input) ((void)0)
#define CRT_DRIFT_ENDS(reference, output) ((void)0)
#define CRT_LAYER_COUNTED(reference, layer) ((void)0)
#endif

/* Code after each layer. */
#define CRT_LAYER_DONE(reference, layer)         \
    do {                                         \
        CRT_LAYER_TIMED((layer));                \
        CRT_LAYER_COUNTED((reference), (layer)); \
    } while (0)

#endif
