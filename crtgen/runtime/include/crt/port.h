/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the runtime asks of a platform. The platform owns all the memory and calls the runtime; the runtime
 * calls these.
 */
#ifndef CRT_PORT_H
#define CRT_PORT_H

#include <stddef.h>
#include <stdint.h>

struct crt_port {
    /* Given to each callback as it is. */
    void *context;

    /* Send these bytes, in order. Returns when they may be reused. Called from fault handlers too. */
    void (*write)(void *context, const uint8_t *bytes, size_t size);

    /* A packet is complete: send what `write` may have held back. NULL if it holds nothing back. */
    void (*flush)(void *context);

    /* A clock that never goes back, and its rate. */
    uint64_t (*ticks)(void *context);
    uint32_t ticks_per_second;

    /* Execute a loop of exactly 2 * loops instructions, so that a host can tell what a tick is worth. */
    void (*spin)(void *context, uint32_t loops);

    /* Feed the watchdog: called for each request, and before each run and in the waits of one that times. The
     * platform feeds it while it waits for bytes. NULL if there is none. */
    void (*feed)(void *context);

    /* Start the device again: a fault that the server found has been reported. NULL: the server goes on. */
    void (*restart)(void *context);

    /* A different value at each start, or NULL: the session's nonce then starts from the clock. */
    uint32_t (*random)(void *context);
};

#endif
