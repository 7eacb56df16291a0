/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors as functions of TVM's runtime return them: category << 8 | code. Negative ones are the system's.
 */
#ifndef CRT_TVM_ERROR_CODES_H
#define CRT_TVM_ERROR_CODES_H

typedef enum {
    kTvmErrorCategoryFunctionRegistry = 1,
    kTvmErrorCategoryFraming = 2,
    kTvmErrorCategoryWriteStream = 3,
    kTvmErrorCategorySession = 4,
    kTvmErrorCategoryPlatform = 5,
    kTvmErrorCategoryGenerated = 6,
    kTvmErrorCategoryExecutor = 7,
    kTvmErrorCategoryFunctionCall = 8,
    kTvmErrorCategoryTimeEvaluator = 9,
} tvm_crt_error_category_t;

typedef enum {
    kTvmErrorNoError = 0,
    /* Function registry */
    kTvmErrorFunctionNameNotFound = 0x100,
    kTvmErrorFunctionIndexInvalid = 0x101,
    kTvmErrorFunctionRegistryFull = 0x102,
    kTvmErrorFunctionAlreadyDefined = 0x103,
    kTvmErrorBufferTooSmall = 0x104,
    /* Framing */
    kTvmErrorFramingInvalidState = 0x200,
    kTvmErrorFramingShortPacket = 0x201,
    kTvmErrorFramingInvalidEscape = 0x202,
    kTvmErrorFramingPayloadOverflow = 0x203,
    kTvmErrorFramingPayloadIncomplete = 0x204,
    /* Write stream */
    kTvmErrorWriteStreamShortWrite = 0x300,
    kTvmErrorWriteStreamLongWrite = 0x301,
    /* Session */
    kTvmErrorSessionInvalidState = 0x400,
    kTvmErrorSessionReceiveBufferBusy = 0x401,
    kTvmErrorSessionReceiveBufferShortWrite = 0x402,
    /* Platform */
    kTvmErrorPlatformCheckFailure = 0x500,
    kTvmErrorPlatformMemoryManagerInitialized = 0x501,
    kTvmErrorPlatformShutdown = 0x502,
    kTvmErrorPlatformNoMemory = 0x503,
    kTvmErrorPlatformTimerBadState = 0x504,
    kTvmErrorPlatformStackAllocBadFree = 0x505,
    /* Generated code */
    kTvmErrorGeneratedInvalidStorageId = 0x600,
    /* Executors */
    kTvmErrorExecutorModuleAlreadyCreated = 0x700,
    kTvmErrorExecutorModuleBadContext = 0x701,
    kTvmErrorExecutorModuleNoSuchInput = 0x702,
    /* Calls of functions */
    kTvmErrorFunctionCallNumArguments = 0x800,
    kTvmErrorFunctionCallWrongArgType = 0x801,
    kTvmErrorFunctionCallNotImplemented = 0x802,
    kTvmErrorFunctionCallInvalidArg = 0x803,
    /* Time evaluator */
    kTvmErrorTimeEvaluatorBadHandle = 0x900,
    kTvmErrorSystemErrorMask = -0x7fffffff - 1,
} tvm_crt_error_t;

#endif
