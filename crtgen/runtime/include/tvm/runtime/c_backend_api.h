/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that C of TVM calls while it runs. crt_backend.c defines them; crt/backend.h says what the platform
 * provides for them.
 */
#ifndef CRT_TVM_C_BACKEND_API_H
#define CRT_TVM_C_BACKEND_API_H

#include <tvm/runtime/c_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int (*TVMBackendPackedCFunc)(TVMValue *args, int *type_codes, int num_args, TVMValue *ret,
                                     int *ret_type_code, void *resource);

/* Find a function of the image. Returns 0, or -1 if there is none. */
int TVMBackendGetFuncFromEnv(void *module, const char *name, TVMFunctionHandle *out);

/* Allocate temporary memory; NULL if there is not enough. */
void *TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t nbytes, int dtype_code, int dtype_bits);

int TVMBackendFreeWorkspace(int device_type, int device_id, void *workspace);

typedef struct {
    void *sync_handle;
    int32_t num_task;
} TVMParallelGroupEnv;

typedef int (*FTVMParallelLambda)(int task, TVMParallelGroupEnv *environment, void *data);

/* Runs the only task there is. */
int TVMBackendParallelLaunch(FTVMParallelLambda lambda, void *data, int num_task);

int TVMBackendParallelBarrier(int task, TVMParallelGroupEnv *environment);

#ifdef __cplusplus
}
#endif

#endif
