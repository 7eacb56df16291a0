/* SPDX-License-Identifier: Apache-2.0 */
/* Functions by name: a constant table of names that is searched from its start. SPEC.md, section 4. */
#ifndef CRT_REGISTRY_H
#define CRT_REGISTRY_H

#include <stddef.h>
#include <stdint.h>

#include <dlpack/dlpack.h>
#include <tvm/runtime/crt/module.h>

/* An argument of a function: a tensor with its size and element type, or an integer if dtype.bits is 0. */
struct crt_argument {
    uint32_t nbytes;
    DLDataType dtype;
};

/* Used as the number of arguments: they are unknown. */
#define CRT_SIGNATURE_UNKNOWN 0xffffu

/* Likewise: it takes any arguments and does not access them. */
#define CRT_SIGNATURE_ANY 0xfffeu

/* Flag in the index of an argument: the function only reads it. */
#define CRT_SIGNATURE_READS 0x8000u

/* For each function, in order: the number of its arguments, then an index for each. */
struct crt_signatures {
    const struct crt_argument *arguments;
    const uint16_t *calls;
};

/* Those of the image, in the generated metadata module. */
extern const struct crt_signatures crt_signatures;

/* A constant of a model, which hosts may read. */
struct crt_param {
    int64_t sid; /* its storage id */
    const void *data;
    uint32_t nbytes;
};

struct crt_params {
    const struct crt_param *items;
    uint32_t count;
};

/* Those of the image, in the generated metadata module. */
extern const struct crt_params crt_params;

/* Return the signature of the function at an index: the number of arguments, then the indices. */
const uint16_t *crt_signature_at(const struct crt_signatures *signatures, uint32_t index);

/* Return the number of names in the table. */
uint32_t crt_names_count(const char *names);

/* Return the index of the first function with this name, or CRT_ERR_NAME. */
int32_t crt_names_find(const char *names, const char *name);

/* Return the name at an index, or NULL. */
const char *crt_names_at(const char *names, uint32_t index);

/* Return the function at an index, or NULL. */
TVMBackendPackedCFunc crt_registry_at(const TVMModule *module, uint32_t index);

#endif
