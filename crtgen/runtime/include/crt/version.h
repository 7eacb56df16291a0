/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The version of the runtime. Generated code names the interface that it was generated for:
 *
 *     #include <crt/version.h>
 *     #if CRT_VERSION != 1
 *     #error "generated for crt 1: generate again with the crtgen that this runtime comes from"
 *     #endif
 */
#ifndef CRT_VERSION_H
#define CRT_VERSION_H

/* Version of the interface between generated code and runtime. */
#define CRT_VERSION 1

/* The release of this runtime. */
#define CRT_VERSION_STRING "0.1.0"

#endif
