/*
 * An image to test the runtime with: models written by hand, a function registry, and a port over two callbacks.
 */
#ifndef TOY_H
#define TOY_H

#include <crt/server.h>

/*
 * Three models (add, once, broken), the one that the captured conversation talks to, or two with one arena (next,
 * half).
 */
enum toy_image { TOY_MODELS, TOY_CAPTURED, TOY_SHARED };

#define TOY_POOL 16384u

extern uint8_t *toy_pool;
extern struct crt_server toy_server;

/* Ticks that pass whenever the clock is read. */
extern uint32_t toy_drift;

/* Set up toy_server; what it sends goes to `write`. */
int toy_start(enum toy_image image, uint32_t receive_size, void (*write)(void *, const uint8_t *, size_t));

#endif
