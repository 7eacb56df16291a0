/*
 * A model of an SCI of Renesas' RA8 around its driver, whose accesses to registers are calls here: between any two of
 * them a byte may arrive, an interrupt may run. Bytes are lost where the chip loses them; the driver has to deliver all
 * others, in order, and must never sleep without something that will wake it.
 *
 * Arguments: accesses from byte to byte, about; how often one is broken, of 1000; how often the reader is busy for long,
 * of 1000 times; whether an event is raised again as long as what it stands for is there; a seed.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECEIVED, ERROR, LINKS };

#define RX_FULL (1u << 31)
#define TX_END (1u << 30)
#define FRAME (1u << 28)
#define OVERRUN (1u << 24)
#define ERRORS (FRAME | (1u << 27) | OVERRUN)
#define STREAM 20000

static unsigned distance, broken, busy, level;
static uint32_t seed;

static uint32_t enable, format, rate, line, flags;
static uint8_t data;
static int links[LINKS], latched[LINKS], enabled[LINKS];
static int masked, inside, interrupts;
static unsigned coming, soon, arrived, lost;
static uint8_t taken[STREAM + 100], got[STREAM + 100], sent[STREAM + 100];
static unsigned takes, gets, sends, sending;

void crt_serial_interrupt(void);

static unsigned chance(unsigned of)
{
    seed = (seed * 1664525u) + 1013904223u;
    return (seed >> 8) % of;
}

static void fail(const char *what)
{
    printf("%s: %u arrived, %u taken, %u delivered, %u lost\n", what, arrived, takes, gets, lost);
    exit(1);
}

static void raise_events(int is_new)
{
    const int holds[LINKS] = {(flags & RX_FULL) != 0, (flags & ERRORS) != 0};
    for (int n = 0; n < LINKS; n++) {
        if (((enable & (1u << 16)) != 0) && ((is_new == n) || ((level != 0) && holds[n]))) {
            links[n] = 1;
        }
        latched[n] |= links[n];
    }
}

/* Behind an error nothing is received, and a byte that is not read in time stays while the next one is lost. */
static void arrive(void)
{
    const uint8_t byte = (uint8_t)(arrived * 7u);
    const uint32_t before = flags;
    arrived++;
    coming--;
    soon = (distance / 2) + chance(distance);
    if (((enable & 1u) == 0) || ((flags & ERRORS) != 0)) {
        lost++;
    } else if ((flags & RX_FULL) != 0) {
        flags |= OVERRUN;
        lost++;
    } else if (chance(1000) < broken) {
        data = byte;
        flags |= FRAME;
        lost++;
    } else {
        data = byte;
        flags |= RX_FULL;
        taken[takes++] = byte;
    }
    raise_events((flags == before) ? -1 : (((flags & ~before & RX_FULL) != 0) ? RECEIVED : ERROR));
}

static int is_pending(void)
{
    raise_events(-1);
    return (latched[RECEIVED] && enabled[RECEIVED]) || (latched[ERROR] && enabled[ERROR]);
}

static void run_interrupts(void)
{
    for (int count = 0; (masked == 0) && (inside == 0) && is_pending(); count++) {
        latched[(latched[RECEIVED] && enabled[RECEIVED]) ? RECEIVED : ERROR] = 0;
        inside = 1;
        interrupts++;
        crt_serial_interrupt();
        inside = 0;
        if (count == 100000) {
            fail("an interrupt that never ends");
        }
    }
}

static void turn(void)
{
    if ((coming != 0) && (soon-- == 0)) {
        arrive();
    }
    if ((sending != 0) && (chance(4) == 0)) {
        sending = 0;
    }
    run_interrupts();
}

static uint32_t read_status(void)
{
    turn();
    return flags | ((sending != 0) ? 0u : TX_END);
}

static uint32_t read_received(void)
{
    uint8_t byte;
    turn();
    byte = data;
    flags &= ~RX_FULL;
    turn();
    return byte;
}

static void write_clear(uint32_t value)
{
    turn();
    flags &= ~value;
    turn();
}

static void write_sent(uint32_t value)
{
    if ((sending != 0) || ((enable & 16u) == 0)) {
        fail("a byte is sent too early");
    }
    sending = 1;
    sent[sends++] = (uint8_t)value;
    turn();
}

static void write_enable(uint32_t value)
{
    enable = value;
}

static void write_format(uint32_t value)
{
    format = value;
}

static void write_rate(uint32_t value)
{
    rate = value;
}

static void write_line(uint32_t value)
{
    line = value;
}

static void write_timing(uint32_t value)
{
    (void)value;
}

/* Read, then written: what comes in between is cleared with the rest. */
static void link_clear(int n)
{
    turn();
    links[n] = 0;
    turn();
}

static void nvic(int n, int is_enabled)
{
    enabled[n] = is_enabled;
    turn();
}

static void mask(int is_masked)
{
    masked = is_masked;
    turn();
}

/* Behind the stream comes one byte more for who still waits: that has to be enough. */
static void doze(void)
{
    while (!is_pending() && (coming != 0)) {
        arrive();
    }
    if (!is_pending()) {
        coming = 1;
        broken = 0;
        arrive();
    }
    if (!is_pending()) {
        fail("a sleep that nothing ends");
    }
}

#include "serial.c"

_Static_assert(offsetof(struct uart, sent) == 0x04, "TDR");
_Static_assert(offsetof(struct uart, enable) == 0x08, "CCR0");
_Static_assert(offsetof(struct uart, timing) == 0x18, "CCR4");
_Static_assert(offsetof(struct uart, status) == 0x48, "CSR");
_Static_assert(offsetof(struct uart, clear) == 0x68, "CFCLR");

static void read_some(size_t size)
{
    gets += (unsigned)crt_serial_read(got + gets, size);
}

int main(int argc, char **argv)
{
    static const uint8_t hello[] = "hello";
    if (argc != 6) {
        return 2;
    }
    distance = (unsigned)atoi(argv[1]);
    broken = (unsigned)atoi(argv[2]);
    busy = (unsigned)atoi(argv[3]);
    level = (unsigned)atoi(argv[4]);
    seed = (uint32_t)atoi(argv[5]);
    crt_serial_start();
    printf("%#x %#x %#x %#x\n", (unsigned)enable, (unsigned)format, (unsigned)rate, (unsigned)line);

    coming = STREAM;
    while ((coming != 0) || (gets < takes)) {
        read_some(1 + chance(40));
        if (chance(10) == 0) {
            crt_serial_write(hello, 5);
        }
        for (unsigned n = (chance(1000) < busy) ? 300 * distance : 0; n != 0; n--) {
            turn(); /* the ring becomes full */
        }
    }
    for (int n = 0; n < 20; n++) { /* whatever was, the next byte is received */
        read_some(1);
    }
    if (gets != takes) {
        fail("a byte is missing");
    }
    if (memcmp(got, taken, gets) != 0) {
        fail("bytes are wrong");
    }
    for (unsigned n = 0; n < sends; n++) {
        if (sent[n] != hello[n % 5]) {
            fail("bytes are sent wrong");
        }
    }
    printf("%u %u %u %d\n", arrived, gets, lost, interrupts);
    return 0;
}
