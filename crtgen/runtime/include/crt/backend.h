/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What C that TVM generated calls: temporary memory, the text of an error, functions by name.
 *
 * Such code has no context to pass, so the platform defines the one instance, and only if its image has such
 * code:
 *
 *     static uint64_t workspace[1024];
 *     struct crt_backend crt_backend;
 *     ...
 *     crt_pool_init(&crt_backend.workspace, workspace, sizeof workspace);
 */
#ifndef CRT_BACKEND_H
#define CRT_BACKEND_H

#include <crt/pool.h>
#include <tvm/runtime/crt/module.h>

struct crt_backend {
    /* Serves TVMBackendAllocWorkspace. */
    struct crt_pool workspace;
    /* Serves TVMBackendGetFuncFromEnv; NULL if not needed. */
    const TVMModule *system_lib;
    /* The last text given to TVMAPISetLastError, or NULL. */
    const char *last_error;
};

extern struct crt_backend crt_backend;

#endif
