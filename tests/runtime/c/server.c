/*
 * The toy image as a process: the RPC on standard input and output. Arguments: models or captured, and the size of
 * the receive buffer.
 */
#include "toy.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_out(void *context, const uint8_t *bytes, size_t size)
{
    (void)context;
    while (size > 0) {
        const ssize_t done = write(STDOUT_FILENO, bytes, size);
        if (done <= 0) {
            exit(2);
        }
        bytes += done;
        size -= (size_t)done;
    }
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "models";
    const enum toy_image other = strcmp(name, "shared") == 0 ? TOY_SHARED : TOY_MODELS;
    const enum toy_image image = strcmp(name, "captured") == 0 ? TOY_CAPTURED : other;
    uint8_t bytes[4096];
    if (toy_start(image, argc > 2 ? (uint32_t)atoi(argv[2]) : 2048, write_out) != 0) {
        return 3;
    }
    crt_server_boot(&toy_server);
    for (;;) {
        const ssize_t size = read(STDIN_FILENO, bytes, sizeof bytes);
        if (size <= 0) {
            return 0;
        }
        if (crt_server_feed(&toy_server, bytes, (size_t)size) == CRT_SERVER_SHUTDOWN) {
            return 0;
        }
    }
}
