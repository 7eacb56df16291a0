/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For toolchains without a C library: the integer types. C that TVM generated includes this for them.
 */
#ifndef CRT_FREESTANDING_INTTYPES_H
#define CRT_FREESTANDING_INTTYPES_H

#include <stdint.h>

#endif
