/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32, as zlib has it.
 */
#ifndef CRT_CRC32_H
#define CRT_CRC32_H

#include <stdint.h>

/* Of some bytes, behind others whose CRC is `crc`; of none it is 0. */
uint32_t crt_crc32(uint32_t crc, const void *data, uint32_t size);

#endif
