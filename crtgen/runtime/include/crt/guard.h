/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guards of an arena: bytes before and after it that only a fault in the model's code changes. Models have them if
 * they are compiled with CRT_ARENA_GUARD, as for server images.
 */
#ifndef CRT_GUARD_H
#define CRT_GUARD_H

#include <crt/model.h>

/* A byte of a guard. */
#define CRT_GUARD_BYTE(i) ((uint8_t)(0xa5 ^ (i)))

/* Set the guards of a model, before its first run. */
static inline void crt_guard_set(const struct crt_model *model)
{
    if ((model->flags & CRT_MODEL_HAS_GUARD) != 0) {
        uint8_t *arena = model->arena;
        uint8_t *end = arena + model->arena_size;
        for (int i = 0; i < CRT_GUARD_SIZE; i++) {
            arena[i - CRT_GUARD_SIZE] = CRT_GUARD_BYTE(i);
            end[i] = CRT_GUARD_BYTE(i);
        }
    }
}

/* Return a byte of the model's guards that was changed, or NULL if there is none, as in a model without guards. */
static inline const uint8_t *crt_guard_damage(const struct crt_model *model)
{
    if ((model->flags & CRT_MODEL_HAS_GUARD) != 0) {
        const uint8_t *arena = model->arena;
        const uint8_t *end = arena + model->arena_size;
        for (int i = 0; i < CRT_GUARD_SIZE; i++) {
            if (arena[i - CRT_GUARD_SIZE] != CRT_GUARD_BYTE(i)) {
                return &arena[i - CRT_GUARD_SIZE];
            }
            if (end[i] != CRT_GUARD_BYTE(i)) {
                return &end[i];
            }
        }
    }
    return NULL;
}

#endif
