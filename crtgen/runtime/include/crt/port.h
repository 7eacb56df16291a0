/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that the platform provides for the runtime. The platform owns all memory and calls the runtime, which
 * calls these.
 */
#ifndef CRT_PORT_H
#define CRT_PORT_H

#include <stddef.h>
#include <stdint.h>

struct crt_port {
    /* Passed to each callback. */
    void *context;

    /* Send bytes in order. The buffer may be reused when it returns. Also called from fault handlers. */
    void (*write)(void *context, const uint8_t *bytes, size_t size);

    /* Called when a packet is complete: send bytes that `write` has held back. NULL if it holds none back. */
    void (*flush)(void *context);

    /* A clock that never goes back, and its rate. */
    uint64_t (*ticks)(void *context);
    uint32_t ticks_per_second;

    /* Execute a loop of exactly 2 * loops instructions, from which a host computes the time of a tick. */
    void (*spin)(void *context, uint32_t loops);

    /*
     * Feed the watchdog. Called for each request, before each run, and in the waits of a time measurement. The
     * platform itself feeds it while it waits for bytes. NULL without a watchdog.
     */
    void (*feed)(void *context);

    /* Restart the device, after the server has detected and reported a fault. NULL: the server continues. */
    void (*restart)(void *context);

    /* Return a different value at each start. NULL: the session's nonce starts from the clock. */
    uint32_t (*random)(void *context);
};

#endif
