/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a build may add to the code of a model: guards around its arena, and a call after each layer of a run.
 */
#ifndef CRT_RUN_H
#define CRT_RUN_H

#include <stdint.h>

/* Bytes of a guard. */
#define CRT_GUARD_SIZE 16

/* With CRT_ARENA_GUARD, what lies on either side of an arena; see crt/guard.h. */
#ifdef CRT_ARENA_GUARD
#define CRT_ARENA_MARGIN CRT_GUARD_SIZE
#else
#define CRT_ARENA_MARGIN 0
#endif

/* With CRT_PROFILE, a run calls this function of the program after each layer; without it, it never does. */
#ifdef CRT_PROFILE
void crt_layer_done(uint16_t layer);
#define CRT_LAYER_DONE(layer) crt_layer_done(layer)
#else
#define CRT_LAYER_DONE(layer) ((void)0)
#endif

#endif
