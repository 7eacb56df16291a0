/* SPDX-License-Identifier: Apache-2.0 */
/* The name under which some versions of TVM include the metadata's types. */
#ifndef CRT_TVM_METADATA_H
#define CRT_TVM_METADATA_H

#include <tvm/runtime/metadata_types.h>

#endif
