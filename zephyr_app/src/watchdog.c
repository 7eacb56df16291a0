/*
 * The watchdog of the alias watchdog0. If its driver can call back before the reset, the fault is reported; otherwise
 * the board only restarts. Few watchdogs can wait as long as requested: each gets the longest of a half, a quarter,
 * ... of that time that it supports.
 */
#include "platform.h"

#if defined(__has_include) && __has_include(<zephyr/drivers/watchdog.h>)
#include <zephyr/drivers/watchdog.h>
#else
#include <drivers/watchdog.h>
#endif

#define SHORTEST_MS 1000u

/* Before 3.7 the driver of the CMSDK took seconds for what all others take milliseconds. */
#if DT_NODE_HAS_COMPAT(DT_ALIAS(watchdog0), arm_cmsdk_watchdog) && KERNEL_VERSION_NUMBER < 0x30700
#define UNIT_MS 1000u
#else
#define UNIT_MS 1u
#endif

static const struct device *const watchdog = DEVICE_DT_GET(DT_ALIAS(watchdog0));
static int channel = -1;

static void on_late(const struct device *device, int late)
{
    (void)device;
    (void)late;
    crt_no_progress();
}

static int install(uint32_t ms, wdt_callback_t callback)
{
    const struct wdt_timeout_cfg timeout = {
        .window = {.max = ms / UNIT_MS},
        .callback = callback,
        .flags = WDT_FLAG_RESET_SOC,
    };
    return wdt_install_timeout(watchdog, &timeout);
}

void crt_watchdog_start(void)
{
    uint32_t ms = CONFIG_CRTGEN_WATCHDOG_SECONDS * 1000u;
    if (!device_is_ready(watchdog)) {
        return;
    }
    for (; channel < 0 && ms >= SHORTEST_MS; ms /= 2) {
        channel = install(ms, on_late);
        if (channel < 0) {
            channel = install(ms, NULL);
        }
    }
    if (channel >= 0 && wdt_setup(watchdog, WDT_OPT_PAUSE_HALTED_BY_DBG) != 0 && wdt_setup(watchdog, 0) != 0) {
        channel = -1;
    }
}

void crt_watchdog_feed(void)
{
    if (channel >= 0) {
        (void)wdt_feed(watchdog, channel);
    }
}
