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

/* Set the guards around `size` bytes. */
static inline void crt_guard_set_around(uint8_t *start, uint32_t size)
{
    uint8_t *end = start + size;
    for (int i = 0; i < CRT_GUARD_SIZE; i++) {
        start[i - CRT_GUARD_SIZE] = CRT_GUARD_BYTE(i);
        end[i] = CRT_GUARD_BYTE(i);
    }
}

/* Return a byte of the guards around `size` bytes that was changed, or NULL. */
static inline const uint8_t *crt_guard_damage_around(const uint8_t *start, uint32_t size)
{
    const uint8_t *end = start + size;
    for (int i = 0; i < CRT_GUARD_SIZE; i++) {
        if (start[i - CRT_GUARD_SIZE] != CRT_GUARD_BYTE(i)) {
            return &start[i - CRT_GUARD_SIZE];
        }
        if (end[i] != CRT_GUARD_BYTE(i)) {
            return &end[i];
        }
    }
    return NULL;
}

/* Set the guards of a model, before its first run. */
static inline void crt_guard_set(const struct crt_model *model)
{
    if ((model->flags & CRT_MODEL_HAS_GUARD) != 0) {
        crt_guard_set_around(model->arena, model->arena_size);
        for (uint32_t i = 0; i < model->num_parts; i++) {
            crt_guard_set_around(model->parts[i].data, model->parts[i].size);
        }
    }
}

/*
 * Return a byte of the model's guards that was changed, or NULL if there is none, as in a model without guards. `part` is
 * set to the part of the arena that the byte is beside, or to NULL for the arena itself.
 */
static inline const uint8_t *crt_guard_damage(const struct crt_model *model, const struct crt_arena_part **part)
{
    const uint8_t *at = NULL;
    *part = NULL;
    if ((model->flags & CRT_MODEL_HAS_GUARD) != 0) {
        at = crt_guard_damage_around(model->arena, model->arena_size);
        for (uint32_t i = 0; (at == NULL) && (i < model->num_parts); i++) {
            *part = &model->parts[i];
            at = crt_guard_damage_around((*part)->data, (*part)->size);
        }
    }
    return at;
}

#endif
