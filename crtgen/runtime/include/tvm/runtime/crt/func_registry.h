/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A function registry: a name table and, in the same order, the functions. SPEC.md, section 4.
 */
#ifndef CRT_TVM_FUNC_REGISTRY_H
#define CRT_TVM_FUNC_REGISTRY_H

#include <tvm/runtime/c_backend_api.h>

typedef struct TVMFuncRegistry {
    const char *names;
    const TVMBackendPackedCFunc *funcs;
} TVMFuncRegistry;

#endif
