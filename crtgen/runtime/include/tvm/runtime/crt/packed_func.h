/* SPDX-License-Identifier: Apache-2.0 */
/* The name under which code generators include the packed calls. */
#ifndef CRT_TVM_PACKED_FUNC_H
#define CRT_TVM_PACKED_FUNC_H

#include <tvm/runtime/c_backend_api.h>
#include <tvm/runtime/crt/module.h>

#endif
