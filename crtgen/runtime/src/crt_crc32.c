/* SPDX-License-Identifier: Apache-2.0 */
#include <crt/crc32.h>

uint32_t crt_crc32(uint32_t crc, const void *data, uint32_t size)
{
    /* CRCs of four bits. */
    static const uint32_t parts[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
        0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
    };
    const uint8_t *bytes = data;
    uint32_t rest = ~crc;
    for (uint32_t i = 0; i < size; i++) {
        rest ^= bytes[i];
        rest = (rest >> 4) ^ parts[rest & 15u];
        rest = (rest >> 4) ^ parts[rest & 15u];
    }
    return ~rest;
}
