/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that C of TVM calls. Linked only if there is such code; crt/backend.h. */
#include <crt/backend.h>
#include <crt/registry.h>

#include <string.h>

void TVMAPISetLastError(const char *text)
{
    crt_backend.last_error = text;
}

const char *TVMGetLastError(void)
{
    return (crt_backend.last_error != NULL) ? crt_backend.last_error : "";
}

void *TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t nbytes, int dtype_code, int dtype_bits)
{
    (void)device_type;
    (void)device_id;
    (void)dtype_code;
    (void)dtype_bits;
    if (nbytes > UINT32_MAX) {
        return NULL;
    }
    void *memory = crt_pool_alloc(&crt_backend.workspace, (uint32_t)nbytes, CRT_POOL_ALIGN);
    if (memory == NULL) {
        crt_backend.last_error = "the workspace is too small";
    }
    return memory;
}

int TVMBackendFreeWorkspace(int device_type, int device_id, void *workspace)
{
    (void)device_type;
    (void)device_id;
    return crt_pool_free(&crt_backend.workspace, (uintptr_t)workspace) == 0 ? 0 : -1;
}

/* A function's handle is the address of its entry in the registry. */
int TVMBackendGetFuncFromEnv(void *module, const char *name, TVMFunctionHandle *out)
{
    (void)module;
    const TVMModule *library = crt_backend.system_lib;
    const int32_t index = (library == NULL) ? -1 : crt_names_find(library->registry->names, name);
    if (index < 0) {
        crt_backend.last_error = "a function of the image is missing";
        return -1;
    }
    *out = (void *)(uintptr_t)&library->registry->funcs[index];
    return 0;
}

int TVMFuncCall(TVMFunctionHandle function, TVMValue *args, int *type_codes, int num_args, TVMValue *ret,
                int *ret_type_code)
{
    const TVMBackendPackedCFunc *place = function;
    return (*place)(args, type_codes, num_args, ret, ret_type_code, NULL);
}

int TVMBackendParallelLaunch(FTVMParallelLambda lambda, void *data, int num_task)
{
    (void)num_task;
    TVMParallelGroupEnv environment = {NULL, 1};
    return lambda(0, &environment, data);
}

int TVMBackendParallelBarrier(int task, TVMParallelGroupEnv *environment)
{
    (void)task;
    (void)environment;
    return 0;
}
