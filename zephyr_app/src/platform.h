/* The functions that the application needs from Zephyr. Its headers moved into zephyr/ in release 3.1. */
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

/* Execute a loop of exactly 2 * loops instructions (loops > 0), from which hosts compute the time of a tick. */
void crt_clock_spin(uint32_t loops);

struct crt_fault;

/* The last fault, in memory that a reset does not clear. */
extern struct crt_fault crt_last_fault;

/* Report a fault. The board restarts afterwards. */
void crt_report(struct crt_fault *fault);

/* Called by the watchdog: report where the thread hangs; the board restarts. */
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

/* Open the serial port of the RPC. Returns 0, or a negative errno. */
int crt_serial_start(void);

/* Sleep until bytes arrive, and feed the watchdog; store up to `size` of them and return how many. */
size_t crt_serial_read(uint8_t *bytes, size_t size);

/* Both also work in a fault handler. Bytes may be held back until the flush. */
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
