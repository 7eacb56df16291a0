/* SPDX-License-Identifier: Apache-2.0 */
#include <crt/fault.h>
#include <crt/frame.h>

#include <stddef.h>

#define CRT_FAULT_CRC_START 0xffffu
#define CRT_FAULT_LINE 32u /* bytes of memory in a line */

static uint32_t crt_fault_crc(const struct crt_fault *fault)
{
    const uint8_t *bytes = (const uint8_t *)fault;
    uint16_t crc = CRT_FAULT_CRC_START;
    for (size_t i = 0; i < offsetof(struct crt_fault, crc); i++) {
        crc = crt_crc16(crc, bytes[i]);
    }
    return crc;
}

void crt_fault_seal(struct crt_fault *fault)
{
    fault->magic = CRT_FAULT_MAGIC;
    fault->crc = crt_fault_crc(fault);
}

int crt_fault_is_valid(const struct crt_fault *fault)
{
    return (fault->magic == CRT_FAULT_MAGIC) && (fault->crc == crt_fault_crc(fault));
}

static char *crt_fault_hex(char *to, uint32_t value, int digits)
{
    for (int shift = (4 * digits) - 4; shift >= 0; shift -= 4) {
        *to++ = "0123456789abcdef"[value >> shift & 15u];
    }
    return to;
}

/* The word, its address, and its bytes in memory order. */
static void crt_fault_line(const char *word, const uint8_t *at, uint32_t size,
                           void (*line)(void *context, const char *text), void *context)
{
    char text[24 + 2 * CRT_FAULT_LINE];
    char *to = text;
    while (*word != '\0') {
        *to++ = *word++;
    }
    to = crt_fault_hex(to, (uint32_t)(uintptr_t)at, 8);
    if (size > 0) {
        *to++ = ' ';
    }
    for (uint32_t i = 0; i < size; i++) {
        to = crt_fault_hex(to, at[i], 2);
    }
    *to = '\0';
    line(context, text);
}

static void crt_fault_dump(uintptr_t start, uintptr_t end, void (*line)(void *context, const char *text),
                           void *context)
{
    while (start < end) {
        const uint32_t size = ((end - start) < CRT_FAULT_LINE) ? (uint32_t)(end - start) : CRT_FAULT_LINE;
        crt_fault_line("crtgen.dump ", (const uint8_t *)start, size, line, context);
        start += size;
    }
}

void crt_fault_report(const struct crt_fault *fault, void (*line)(void *context, const char *text), void *context)
{
    const uint32_t sp = (fault->sp > fault->stack_bottom) ? fault->sp : fault->stack_bottom;
    const uintptr_t record = (uintptr_t)fault;
    crt_fault_dump(sp, fault->stack_top, line, context);
    crt_fault_dump(record, record + sizeof *fault, line, context);
    crt_fault_line("crtgen.fault ", (const uint8_t *)fault, 0, line, context);
}
