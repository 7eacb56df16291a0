/*
 * Feeds the server with conversations that have gone wrong: valid requests, with live addresses, of which bytes are
 * changed before or after framing. Arguments: the number of conversations and a seed. The sanitizers are the oracle,
 * and three rules: a request that reaches the server whole gets exactly one reply, after each mess the next session
 * works, and no byte of the pool changes that is in no block.
 */
#include "toy.h"

#include "crt_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A packet in the making. */
static uint8_t packet[4096];
static uint32_t packet_size;

/* What the server sent: the packets by type. */
static unsigned char sent[1 << 20];
static size_t sent_size;

static uint32_t state;

static uint32_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static uint32_t below(uint32_t limit)
{
    return next_random() % limit;
}

static void keep(void *context, const uint8_t *bytes, size_t size)
{
    (void)context;
    if (sent_size + size <= sizeof sent) {
        memcpy(sent + sent_size, bytes, size);
        sent_size += size;
    }
}

static void put(uint64_t value, int size)
{
    for (int i = 0; i < size; i++) {
        packet[packet_size++] = (uint8_t)(value >> (8 * i));
    }
}

/* The address of a block that is allocated, if there is one. */
static uint64_t block_address(void)
{
    const struct crt_pool *pool = &toy_server.pool;
    return (uintptr_t)toy_pool + (pool->count == 0 ? 0 : pool->blocks[below(pool->count)].offset);
}

/* A value that is likely to be on an edge, or to mean something. */
static uint64_t odd_value(void)
{
    static const uint64_t edges[] = {0, 1, 2, 7, 8, 16, 255, 256, 2047, 2048, 0x7fffffff, 0x80000000, 0xffffffff};
    switch (below(6)) {
    case 0:
        return edges[below(13)];
    case 1:
        return ~edges[below(13)];
    case 2:
        return below(2) ? block_address() : (uintptr_t)toy_pool + below(TOY_POOL + 64);
    case 3:
        return (uintptr_t)toy_server.config.models[below(3)]->inputs[0].data + below(16);
    case 4:
        return (0x8000u + below(7)) << 16 | 0x8000u | below(14);
    default:
        return 0x8000u + below(6);
    }
}

/* A tensor of a model, as it is. */
static void put_model_tensor(const struct crt_tensor *tensor)
{
    put((uintptr_t)tensor->data, 8);
    put(1, 8);
    put((uint64_t)tensor->ndim, 4);
    put(tensor->dtype.code, 1);
    put(tensor->dtype.bits, 1);
    put(tensor->dtype.lanes, 2);
    for (int32_t i = 0; i < tensor->ndim; i++) {
        put((uint64_t)tensor->shape[i], 8);
    }
    put(0, 8);
}

static void put_tensor(void)
{
    const struct crt_tensor *tensor = &toy_server.config.models[below(2)]->inputs[0];
    if (below(4) == 0) {
        put_model_tensor(tensor);
        return;
    }
    const uint32_t ndim = below(4);
    put(below(4) == 0 ? odd_value() : below(2) ? block_address() : (uintptr_t)tensor->data, 8);
    put(1, 4);
    put(0, 4);
    put(ndim, 4);
    put(below(3), 1);
    put(8u << below(4), 1);
    put(1, 2);
    for (uint32_t i = 0; i < ndim; i++) {
        put(below(8) == 0 ? odd_value() : below(9), 8);
    }
    put(below(4) == 0 ? odd_value() : 0, 8);
}

static void put_text(void)
{
    static const char *const texts[] = {"run", "add", "once", "", "a", "toy_add", "toy_echo", "toy_fail", "get_input",
                                        "crtgen.info", "crtgen.measure", "runtime.RPCTimeEvaluator", "x"};
    const char *text = texts[below(13)];
    put(strlen(text), 8);
    memcpy(packet + packet_size, text, strlen(text));
    packet_size += (uint32_t)strlen(text);
}

/* A type code, with a bit that says: one of the server's own handles. */
#define HANDLE (16 | 3)

static void put_value(int code)
{
    if (code == HANDLE) {
        const struct crt_model *model = toy_server.config.models[below(3)];
        put(below(4) == 0 ? (uintptr_t)&model->outputs[0] : odd_value(), 8);
    } else if (code == 5) {
        put(0x00010800, 8);
    } else if (code == 6) {
        put(1, 8);
    } else if (code == 7) {
        put_tensor();
    } else if (code == 11 || code == 12) {
        put_text();
    } else if (code == 9) {
        put(0x8000u + below(4), 8);
    } else if (code != 4) {
        const int is_address = code == 3 || (code == 0 && below(6) == 0);
        put(is_address ? block_address() : below(8) ? below(20) : odd_value(), 8);
    }
}

/* Arguments of these types, '?' being any; one in eight is something else. */
static void put_args(const char *types)
{
    static const char letters[] = "ihdtmskuy";
    static const int codes[] = {0, 3, 6, 7, 9, 11, HANDLE, 1, 5};
    int chosen[16];
    const uint32_t count = (uint32_t)strlen(types);
    put(count, 4);
    for (uint32_t i = 0; i < count; i++) {
        const char *letter = strchr(letters, types[i]);
        chosen[i] = letter == NULL || below(16) == 0 ? (int)below(15) : codes[letter - letters];
        put((uint32_t)chosen[i] & 15u, 4);
    }
    for (uint32_t i = 0; i < count; i++) {
        put_value(chosen[i]);
    }
}

static void put_call(void)
{
    const uint32_t globals = CRT_MODULE_GLOBALS(&toy_server);
    static const char *const executor[] = {"s", "s", "i", "", "", "i", "", "i", "st", "", "i", ""};
    static const char *const library[] = {"ttt", "", "?", ""};
    const uint32_t module = below(globals + 2);
    if (module == 0) {
        const uint32_t index = below(4);
        put(0x80008000u | index, 8);
        put_args(library[index]);
    } else if (module > globals) {
        put((0x8000u | module) << 16 | 0x8000u | below(4), 8);
        put_args("i");
    } else if (module == globals) {
        const uint32_t index = below(3) == 0 ? 2 : below(crt_global_endpoints.count);
        const char *name = crt_global_endpoints.items[index].name;
        put((0x8000u | module) << 16 | 0x8000u | index, 8);
        put_args(name + strlen(name) + 1); /* the letters of its arguments follow the name */
    } else {
        const uint32_t index = below(12);
        put((0x8000u | module) << 16 | 0x8000u | index, 8);
        put_args(executor[index]);
    }
}

/* A request, valid or nearly so. */
static void make_request(uint16_t id)
{
    static const char *const args[] = {"s", "ki", "d", "di", "diiy", "dh", "dh", "tth", "t?", "", "h", "h"};
    const uint32_t kind = below(16);
    packet_size = 0;
    put(id, 2);
    put(CRT_SESSION_NORMAL, 1);
    put(0, 8);
    if (kind < 6) {
        put(CRT_RPC_CALL_FUNC, 4);
        put_call();
    } else if (kind < 9) {
        put(CRT_RPC_COPY_TO_REMOTE, 4);
        put_tensor();
        const uint32_t size = below(8) == 0 ? below(3000) : below(9);
        put(size, 8);
        memset(packet + packet_size, (int)below(256), size);
        packet_size += size;
    } else if (kind < 11) {
        put(CRT_RPC_COPY_FROM_REMOTE, 4);
        put_tensor();
        put(below(8) == 0 ? odd_value() : below(9), 8);
    } else {
        const uint32_t code = 9 + below(12);
        put(code, 4);
        put_args(args[code - 9]);
        if (code == CRT_RPC_FREE_HANDLE && below(4) != 0) {
            packet[packet_size - 8] = (uint8_t)(9 + below(5));
        }
    }
    const uint64_t follow = packet_size - 11;
    memcpy(packet + 3, &follow, 8);
}

static void mutate(uint8_t *bytes, uint32_t *size)
{
    for (uint32_t n = 1 + below(4); n > 0 && *size > 0; n--) {
        const uint32_t at = below(*size);
        const uint64_t value = odd_value();
        switch (below(5)) {
        case 0:
            bytes[at] ^= (uint8_t)(1u << below(8));
            break;
        case 1:
            bytes[at] = (uint8_t)next_random();
            break;
        case 2:
            *size = at;
            break;
        case 3:
            memcpy(bytes + at, &value, *size - at < 8 ? *size - at : 8);
            break;
        default:
            memmove(bytes + at + 1, bytes + at, *size - at);
            (*size)++;
            break;
        }
    }
}

/* Frame a payload. */
static uint32_t frame(const uint8_t *payload, uint32_t size, uint8_t *wire)
{
    static const struct crt_port port = {.write = keep};
    struct crt_frame_writer writer = {.port = &port};
    sent_size = 0;
    crt_frame_begin(&writer, size);
    crt_frame_put(&writer, payload, size);
    crt_frame_end(&writer);
    memcpy(wire, sent, sent_size);
    return (uint32_t)sent_size;
}

/* How many normal messages the server sent. */
static unsigned replies(void)
{
    static uint8_t buffer[1 << 16];
    struct crt_frame_reader reader;
    unsigned count = 0;
    const uint8_t *at = sent;
    size_t size = sent_size;
    crt_frame_reader_init(&reader, buffer, sizeof buffer);
    while (crt_frame_read(&reader, &at, &size) != CRT_FRAME_NONE) {
        count += buffer[2] == CRT_SESSION_NORMAL;
    }
    if (reader.discarded != 0) {
        printf("the server sent a damaged packet\n");
        exit(1);
    }
    return count;
}

/* The pool as it was, with the bytes of the blocks zeroed. */
static void outside(const struct crt_pool *pool, uint8_t *bytes)
{
    for (uint32_t i = 0; i < pool->count; i++) {
        memset(bytes + pool->blocks[i].offset, 0, pool->blocks[i].size);
    }
}

static unsigned long packets;

static void feed(const uint8_t *wire, uint32_t size)
{
    static uint8_t before[TOY_POOL];
    static uint8_t after[TOY_POOL];
    const struct crt_pool pool = toy_server.pool;
    memcpy(before, toy_pool, TOY_POOL);
    packets++;
    sent_size = 0;
    while (size > 0) {
        const uint32_t part = below(3) == 0 ? 1 + below(size) : size;
        (void)crt_server_feed(&toy_server, wire, part);
        wire += part;
        size -= part;
    }
    memcpy(after, toy_pool, TOY_POOL);
    outside(&pool, before);
    outside(&toy_server.pool, before);
    outside(&pool, after);
    outside(&toy_server.pool, after);
    if (memcmp(before, after, TOY_POOL) != 0) {
        printf("a byte of the pool changed that is in no block\n");
        exit(1);
    }
}

static uint16_t begin_session(void)
{
    static const uint8_t init[] = {0x82, 0, 0, 1};
    uint8_t wire[32];
    const uint32_t size = frame(init, 4, wire);
    feed((const uint8_t *)"\xfe", 1);
    feed(wire, size);
    if (!toy_server.session.established || sent_size < 12) {
        printf("no session after a mess: stopped %d, state %d, escape %d\n", toy_server.stopped,
               toy_server.reader.state, toy_server.reader.escape);
        exit(1);
    }
    return toy_server.session.id;
}

static void conversation(void)
{
    static uint8_t wire[16384];
    uint16_t id = begin_session();
    for (uint32_t n = 1 + below(40); n > 0; n--) {
        const uint32_t harm = below(4); /* 0: anywhere, 1: in the body, else none */
        make_request(id);
        if (harm == 0) {
            mutate(packet, &packet_size);
        } else if (harm == 1) {
            /* Changed inside, with a length and a session that are right. */
            uint32_t size = packet_size - 15;
            mutate(packet + 15, &size);
            const uint64_t follow = size + 4;
            memcpy(packet + 3, &follow, 8);
            packet_size = size + 15;
        }
        uint32_t size = frame(packet, packet_size, wire);
        if (below(4) == 0) {
            mutate(wire, &size);
            feed(wire, size);
        } else {
            feed(wire, size);
            if (harm != 0) {
                if (replies() != 1) {
                    printf("%u replies to a request\n", replies());
                    exit(1);
                }
                continue;
            }
        }
        if (toy_server.stopped) {
            /* It has become a request to shut down. */
            break;
        }
        id = begin_session();
    }
}

int main(int argc, char **argv)
{
    const int count = argc > 1 ? atoi(argv[1]) : 1000;
    state = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
    toy_drift = 100000;
    for (int i = 0; i < count; i++) {
        if (toy_start(TOY_MODELS, 256 + below(2048), keep) != CRT_OK) {
            return 2;
        }
        conversation();
    }
    printf("%lu packets\n", packets);
    return 0;
}
