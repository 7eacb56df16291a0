/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The module of functions of an image, and the entry that every image has exactly one of.
 */
#ifndef CRT_TVM_MODULE_H
#define CRT_TVM_MODULE_H

#include <tvm/runtime/c_backend_api.h>
#include <tvm/runtime/crt/func_registry.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TVMModule {
    const TVMFuncRegistry *registry;
} TVMModule;

const TVMModule *TVMSystemLibEntryPoint(void);

#ifdef __cplusplus
}
#endif

#endif
