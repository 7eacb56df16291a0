/* The clock: extends a counter of 32 bits to 64. A timer reads it often enough to notice each wrap. */
#include "platform.h"

static uint64_t now;

static uint32_t counter(void)
{
#ifdef CONFIG_TIMING_FUNCTIONS
    return (uint32_t)timing_counter_get();
#else
    return k_cycle_get_32();
#endif
}

uint32_t crt_clock_rate(void)
{
#ifdef CONFIG_TIMING_FUNCTIONS
    return (uint32_t)timing_freq_get();
#else
    return (uint32_t)sys_clock_hw_cycles_per_sec();
#endif
}

uint64_t crt_clock_ticks(void)
{
    unsigned int key = irq_lock();
    now += (uint32_t)(counter() - (uint32_t)now);
    uint64_t ticks = now;
    irq_unlock(key);
    return ticks;
}

static void watch(struct k_timer *timer)
{
    (void)timer;
    (void)crt_clock_ticks();
}

K_TIMER_DEFINE(watcher, watch, NULL);

void crt_clock_start(void)
{
#ifdef CONFIG_TIMING_FUNCTIONS
    timing_init();
    timing_start();
#endif
    uint32_t half_wrap_ms = (uint32_t)(UINT64_C(1000) * UINT32_C(0x80000000) / crt_clock_rate());
    k_timer_start(&watcher, K_MSEC(half_wrap_ms), K_MSEC(half_wrap_ms));
}

void crt_clock_spin(uint32_t loops)
{
    __asm volatile(".syntax unified\n"
                   ".balign 8\n"
                   "1:\n\t"
                   "subs %0, %0, #1\n\t"
                   "bne 1b"
                   : "+l"(loops)
                   :
                   : "cc");
}
