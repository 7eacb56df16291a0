/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments and results of packed functions, under the names that C of TVM uses. */
#ifndef CRT_TVM_C_RUNTIME_API_H
#define CRT_TVM_C_RUNTIME_API_H

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#ifndef TVM_DLL
#define TVM_DLL __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef int64_t tvm_index_t;

typedef enum {
    kTVMArgInt = 0,
    kTVMArgFloat = 2,
    kTVMOpaqueHandle = 3,
    kTVMNullptr = 4,
    kTVMDataType = 5,
    kDLDevice = 6,
    kTVMDLTensorHandle = 7,
    kTVMObjectHandle = 8,
    kTVMModuleHandle = 9,
    kTVMPackedFuncHandle = 10,
    kTVMStr = 11,
    kTVMBytes = 12,
    kTVMNDArrayHandle = 13,
    kTVMObjectRValueRefArg = 14
} TVMArgTypeCode;

typedef union {
    int64_t v_int64;
    double v_float64;
    void *v_handle;
    const char *v_str;
    DLDataType v_type;
    DLDevice v_device;
} TVMValue;

typedef struct {
    const char *data;
    size_t size;
} TVMByteArray;

typedef DLTensor *TVMArrayHandle;
typedef void *TVMModuleHandle;
typedef void *TVMFunctionHandle;
typedef void *TVMRetValueHandle;
typedef void *TVMStreamHandle;
typedef void *TVMObjectHandle;

/* `text` is not copied, so it must stay valid. */
void TVMAPISetLastError(const char *text);

/* The last text, or "" if there is none. */
const char *TVMGetLastError(void);

/* Call a function that TVMBackendGetFuncFromEnv found. Returns 0, or the function's error. */
int TVMFuncCall(TVMFunctionHandle function, TVMValue *args, int *type_codes, int num_args, TVMValue *ret,
                int *ret_type_code);

#ifdef __cplusplus
}
#endif

#endif
