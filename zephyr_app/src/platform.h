/*
 * What the application needs of Zephyr. Its headers moved into zephyr/ in release 3.1.
 */
#ifndef CRT_PLATFORM_H
#define CRT_PLATFORM_H

#include <stddef.h>
#include <stdint.h>

#if defined(__has_include) && __has_include(<zephyr/kernel.h>)
#include <zephyr/device.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/fatal.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>
#include <zephyr/sys/reboot.h>
#include <zephyr/timing/timing.h>
#else
#include <device.h>
#include <drivers/uart.h>
#include <fatal.h>
#include <kernel.h>
#include <sys/printk.h>
#include <sys/reboot.h>
#include <timing/timing.h>
#endif

#if defined(__has_include) && __has_include(<zephyr/version.h>)
#include <zephyr/version.h>
#else
#include <version.h>
#endif

/* The clock: 64 bits of the cycle counter. */
void crt_clock_start(void);
uint64_t crt_clock_ticks(void);
uint32_t crt_clock_rate(void);

/* Executes a loop of exactly 2 * loops instructions (loops > 0): it tells what a tick is worth. */
void crt_clock_spin(uint32_t loops);

struct crt_fault;

/* The last fault, in memory that a reset leaves alone. */
extern struct crt_fault crt_last_fault;

/* The application's report of a fault. The board starts again behind it. */
void crt_report(struct crt_fault *fault);

/* The watchdog's call: reports where the thread is that makes no progress; the board starts again. */
void crt_no_progress(void);

#ifdef CONFIG_CRTGEN_WATCHDOG
void crt_watchdog_start(void);
void crt_watchdog_feed(void);
#else
static inline void crt_watchdog_start(void)
{
}

static inline void crt_watchdog_feed(void)
{
}
#endif

/* The serial port of the RPC. 0, or a negative errno. */
int crt_serial_start(void);

/* Waits for bytes, asleep, and feeds the watchdog; stores up to `size` of those that arrived and returns how many. */
size_t crt_serial_read(uint8_t *bytes, size_t size);

/* Both work in a fault handler too. The bytes may be held back until the flush. */
void crt_serial_write(const uint8_t *bytes, size_t size);
void crt_serial_flush(void);

/*
 * With CONFIG_CRTGEN_MAILBOX: whether QEMU shares the mailbox with a host. Reading and writing move up to `size`
 * bytes and return how many.
 */
int crt_mailbox_open(void);
size_t crt_mailbox_read(uint8_t *bytes, size_t size);
size_t crt_mailbox_write(const uint8_t *bytes, size_t size);

#endif
