/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and what they stand for: a table of names that is constant and searched in order. SPEC.md, section 4.
 */
#ifndef CRT_REGISTRY_H
#define CRT_REGISTRY_H

#include <stddef.h>
#include <stdint.h>

#include <tvm/runtime/crt/module.h>

/* How many names the table says it has. */
uint32_t crt_names_count(const char *names);

/* Index of the first such name, or CRT_ERR_NAME. `name` is `size` bytes and needs no NUL. */
int32_t crt_names_find(const char *names, const char *name, size_t size);

/* The name at an index, or NULL. */
const char *crt_names_at(const char *names, uint32_t index);

/* The function at an index, or NULL. */
TVMBackendPackedCFunc crt_registry_at(const TVMModule *module, uint32_t index);

#endif
