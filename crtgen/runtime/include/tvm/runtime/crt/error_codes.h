/*
 * Errors as functions of TVM's runtime return them: category << 8 | code. Only the categories that a packed
 * function can return are named.
 */
#ifndef CRT_TVM_ERROR_CODES_H
#define CRT_TVM_ERROR_CODES_H

typedef enum {
    kTvmErrorNoError = 0,
    kTvmErrorCategoryMask = 0xff00,
    kTvmErrorCategoryFunctionRegistry = 1 << 8,
    kTvmErrorCategoryPlatform = 5 << 8,
    kTvmErrorCategoryGenerated = 6 << 8,
    kTvmErrorCategoryFunctionCall = 8 << 8,
    kTvmErrorSystemErrorMask = 0x7fffffff
} tvm_crt_error_t;

#endif
