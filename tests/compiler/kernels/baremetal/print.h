/* Text for whoever runs the program: over semihosting from a board, else on standard output. */
#ifndef PRINT_H
#define PRINT_H

#include <stdint.h>

#if defined(__arm__)
static void put(const char *text)
{
    register uint32_t op __asm__("r0") = 4; /* SYS_WRITE0 */
    register const char *argument __asm__("r1") = text;
    __asm__ volatile("bkpt 0xab" : "+r"(op) : "r"(argument) : "memory");
}
#else
#include <stdio.h>

static void put(const char *text)
{
    fputs(text, stdout);
}
#endif

static void put_number(const char *before, uint32_t number)
{
    char text[12];
    char *at = text + sizeof text - 1;
    *at = 0;
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    put(before);
    put(at);
}

#endif
