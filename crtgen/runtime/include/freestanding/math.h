/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For toolchains without a C library. Generated code brings its own functions; what it uses of this header has
 * an instruction, or is in the compiler's own library.
 */
#ifndef CRT_FREESTANDING_MATH_H
#define CRT_FREESTANDING_MATH_H

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

float fabsf(float x);
float fmaxf(float x, float y);
float fminf(float x, float y);
float floorf(float x);
float ceilf(float x);
float roundf(float x);
float truncf(float x);
float sqrtf(float x);
float expf(float x);
float logf(float x);

#endif
