/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32 as in zlib. */
#ifndef CRT_CRC32_H
#define CRT_CRC32_H

#include <stdint.h>

/* Continue a CRC over more bytes: `crc` is that of the bytes before, 0 if there are none. */
uint32_t crt_crc32(uint32_t crc, const void *data, uint32_t size);

#endif
