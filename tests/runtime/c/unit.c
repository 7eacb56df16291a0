/*
 * Checks of the parts that need no conversation. `vectors.h` is made of the golden vectors by the test. Prints each
 * failed check; the exit code is 1 if there is one.
 */
#include "toy.h"

#include "crt_internal.h"
#include "vectors.h"

#include <crt/registry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/runtime/metadata_types.h>

static int failures;

#define CHECK(condition)                                                                                          \
    do {                                                                                                          \
        if (!(condition)) {                                                                                       \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                \
            failures++;                                                                                           \
        }                                                                                                         \
    } while (0)

static uint8_t sent[1 << 20];
static size_t sent_size;

static void capture(void *context, const uint8_t *bytes, size_t size)
{
    (void)context;
    memcpy(sent + sent_size, bytes, size);
    sent_size += size;
}

static uint32_t random_state = 1;

static uint32_t next_random(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static void test_registry(void)
{
    static const char one[] = "\001\000add\000";
    static const char some[] = "\004\000run\000run_all\000run\000\000hidden\000";
    CHECK(sizeof one == 7 && memcmp(one, "\x01\x00\x61\x64\x64\x00\x00", 7) == 0);
    CHECK(crt_names_find(one, "add") == 0);
    CHECK(crt_names_find(one, "ad") == CRT_ERR_NAME);
    CHECK(crt_names_find(one, "adds") == CRT_ERR_NAME);
    CHECK(crt_names_find(one, "") == CRT_ERR_NAME);
    CHECK(strcmp(crt_names_at(one, 0), "add") == 0);
    CHECK(crt_names_at(one, 1) == NULL);
    CHECK(crt_names_find(some, "run") == 0);
    CHECK(crt_names_find(some, "run_all") == 1);
    CHECK(crt_names_find(some, "hidden") == CRT_ERR_NAME);
    CHECK(crt_names_at(some, 3) == NULL && crt_names_at(some, 4) == NULL);
    CHECK(crt_registry_at(TVMSystemLibEntryPoint(), 4) != NULL);
    CHECK(crt_registry_at(TVMSystemLibEntryPoint(), 6) == NULL);
}

static void test_pool(void)
{
    static _Alignas(64) uint8_t memory[256];
    struct crt_pool pool;
    crt_pool_init(&pool, memory, sizeof memory);
    uint8_t *a = crt_pool_alloc(&pool, 10, 0);
    uint8_t *b = crt_pool_alloc(&pool, 100, 64);
    uint8_t *c = crt_pool_alloc(&pool, 16, 1);
    CHECK(a == memory && b == memory + 64 && c == memory + 16);
    CHECK(crt_pool_available(&pool) == 256 - 126);
    CHECK(crt_pool_alloc(&pool, 93, 0) == NULL);
    CHECK(crt_pool_alloc(&pool, 1, 3) == NULL);
    CHECK(crt_pool_owns(&pool, (uintptr_t)a, 10) && !crt_pool_owns(&pool, (uintptr_t)a, 11));
    CHECK(crt_pool_owns(&pool, (uintptr_t)b + 99, 1) && !crt_pool_owns(&pool, (uintptr_t)b + 99, 2));
    CHECK(!crt_pool_owns(&pool, (uintptr_t)a - 1, 1) && !crt_pool_owns(&pool, (uintptr_t)a + 11, 0));
    CHECK(!crt_pool_owns(&pool, (uintptr_t)a, UINT64_MAX));
    CHECK(crt_pool_free(&pool, (uintptr_t)a + 1) == CRT_ERR_ADDRESS);
    CHECK(crt_pool_free(&pool, (uintptr_t)a) == CRT_OK && crt_pool_free(&pool, (uintptr_t)a) == CRT_ERR_ADDRESS);
    CHECK(crt_pool_alloc(&pool, 0, 0) == a);
    CHECK(crt_pool_free(&pool, (uintptr_t)b) == CRT_OK && !crt_pool_owns(&pool, (uintptr_t)b, 1));
    CHECK(crt_pool_alloc(&pool, 224, 0) == memory + 32);

    crt_pool_init(&pool, memory, sizeof memory);
    for (int i = 0; i < 16; i++) {
        CHECK(crt_pool_alloc(&pool, 16, 0) == memory + 16 * i);
    }
    CHECK(crt_pool_available(&pool) == 0 && crt_pool_alloc(&pool, 1, 0) == NULL);
    crt_pool_init(&pool, NULL, 100);
    CHECK(crt_pool_alloc(&pool, 0, 0) == NULL);
}

/* As many blocks as there can be, and none more. */
static void test_pool_blocks(void)
{
    static _Alignas(16) uint8_t memory[16 * (CRT_POOL_BLOCKS + 1)];
    struct crt_pool pool;
    crt_pool_init(&pool, memory, sizeof memory);
    for (int i = 0; i < CRT_POOL_BLOCKS; i++) {
        CHECK(crt_pool_alloc(&pool, 1, 0) != NULL);
    }
    CHECK(crt_pool_alloc(&pool, 1, 0) == NULL);
    CHECK(crt_pool_free(&pool, (uintptr_t)memory + 16 * 5) == CRT_OK);
    CHECK(crt_pool_alloc(&pool, 16, 0) == memory + 16 * 5);
}

/* Give a wire to a reader in pieces of at most `piece` bytes (0: of random sizes); the last packet is in the buffer. */
static int read_packets(struct crt_frame_reader *reader, const uint8_t *wire, size_t size, size_t piece)
{
    int packets = 0;
    while (size > 0) {
        size_t part = piece == 0 ? 1 + next_random() % 7 : piece;
        part = part < size ? part : size;
        const uint8_t *at = wire;
        size_t left = part;
        while (crt_frame_read(reader, &at, &left) == CRT_FRAME_PACKET) {
            packets++;
        }
        wire += part;
        size -= part;
    }
    return packets;
}

static void test_frame_vectors(void)
{
    static const struct crt_port port = {.write = capture};
    static uint8_t buffer[64];
    struct crt_frame_reader reader;
    struct crt_frame_writer writer = {.port = &port};
    crt_frame_reader_init(&reader, buffer, sizeof buffer);
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        const struct vector *v = &vectors[i];
        sent_size = 0;
        crt_frame_begin(&writer, (uint32_t)v->payload_size);
        crt_frame_put(&writer, v->payload, v->payload_size);
        crt_frame_end(&writer);
        CHECK(sent_size == v->wire_size && memcmp(sent, v->wire, v->wire_size) == 0);
        for (size_t piece = 0; piece < 40; piece++) {
            memset(buffer, 0, sizeof buffer);
            CHECK(read_packets(&reader, v->wire, v->wire_size, piece) == 1);
            CHECK(reader.length == v->payload_size && memcmp(buffer, v->payload, v->payload_size) == 0);
        }
    }
    CHECK(reader.discarded == 0);
}

/* One byte wrong, one missing, one doubled: the packet itself is never delivered wrong, the next one is intact. */
static void test_frame_damage(void)
{
    static uint8_t buffer[64];
    static uint8_t wire[256];
    const struct vector *v = &vectors[4];
    const struct vector *next = &vectors[2];
    for (size_t i = 0; i < v->wire_size; i++) {
        for (int kind = 0; kind < 3 * 255; kind++) {
            struct crt_frame_reader reader;
            size_t size = v->wire_size;
            memcpy(wire, v->wire, size);
            if (kind % 3 == 0) {
                wire[i] ^= (uint8_t)(1 + kind / 3);
            } else if (kind == 1) {
                memmove(wire + i, wire + i + 1, --size - i);
            } else if (kind == 2) {
                memmove(wire + i + 1, wire + i, size++ - i);
            } else {
                continue;
            }
            wire[size++] = CRT_FRAME_NOP;
            memcpy(wire + size, next->wire, next->wire_size);
            size += next->wire_size;
            crt_frame_reader_init(&reader, buffer, sizeof buffer);
            CHECK(read_packets(&reader, wire, size, 0) >= 1);
            CHECK(reader.length == next->payload_size && memcmp(buffer, next->payload, next->payload_size) == 0);
        }
    }
}

static void test_frame_rules(void)
{
    static const uint8_t nop[] = "\xfe\xff\xfe\xff\xfd\xff\xfe\x01\x00\x00\x00\x41";
    static const uint8_t large[] = "\xff\xfd\x05\x00\x00\x00two22";
    uint8_t wire[32];
    uint8_t buffer[4];
    struct crt_frame_reader reader;
    crt_frame_reader_init(&reader, buffer, sizeof buffer);
    /* A no-op counts for the CRC, as all bytes between start and end do. */
    memcpy(wire, nop, 12);
    uint16_t crc = 0xffff;
    for (int i = 3; i < 12; i++) {
        crc = crt_crc16(crc, wire[i]);
    }
    wire[12] = (uint8_t)crc;
    wire[13] = (uint8_t)(crc >> 8);
    CHECK(read_packets(&reader, wire, 14, 1) == 1 && reader.length == 1 && buffer[0] == 'A');

    /* Too large for the buffer: known as such, whole or not. */
    memcpy(wire, large, 11);
    crc = 0xffff;
    for (int i = 0; i < 11; i++) {
        crc = crt_crc16(crc, wire[i]);
    }
    wire[11] = (uint8_t)crc;
    wire[12] = (uint8_t)(crc >> 8);
    const uint8_t *at = wire;
    size_t size = 13;
    CHECK(crt_frame_read(&reader, &at, &size) == CRT_FRAME_LARGE && size == 0 && reader.length == 5);
    CHECK(memcmp(buffer, "two2", 4) == 0);
    wire[12] ^= 1;
    CHECK(read_packets(&reader, wire, 13, 2) == 0 && reader.discarded == 1);
    CHECK(crt_crc16(0xffff, 0x31) != 0);
    crc = 0xffff;
    for (const char *c = "123456789"; *c != '\0'; c++) {
        crc = crt_crc16(crc, (uint8_t)*c);
    }
    CHECK(crc == 0x29b1);
}

/* What the server answers to a wire. */
static int answers(const char *wire, size_t size, const char *expected, size_t expected_size)
{
    sent_size = 0;
    const int status = crt_server_feed(&toy_server, (const uint8_t *)wire, size);
    return status == 0 && sent_size == expected_size && memcmp(sent, expected, expected_size) == 0;
}

static void test_session(void)
{
    static const char terminate[] = "\xfe\xff\xfd\x03\x00\x00\x00\x00\x00\x02\x66\x77";
    static const char init[] = "\xff\xfd\x04\x00\x00\x00\x82\x00\x00\x01\x7b\xe9";
    static const char reply[] = "\xff\xfd\x04\x00\x00\x00\x82\x66\x01\x01\x81\xf3";
    static const char hello[] = "\xff\xfd\x08\x00\x00\x00\x82\x66\x10hello\x90\x28";
    CHECK(crt_session_next_nonce(0x3c) == 0x82 && crt_session_next_nonce(0xab) == 0x66);
    uint8_t nonce = 1;
    for (int i = 0; i < 256; i++) {
        nonce = crt_session_next_nonce((uint8_t)i);
        CHECK(nonce != 0);
    }
    CHECK(toy_start(TOY_MODELS, 256, capture) == CRT_OK);
    sent_size = 0;
    crt_server_boot(&toy_server);
    CHECK(sent_size == 12 && memcmp(sent, terminate, 12) == 0);
    toy_server.session.nonce = 0xab;
    CHECK(answers(hello, 16, "", 0));
    CHECK(answers(init, 12, reply, 12));
    sent_size = 0;
    CHECK(crt_server_feed(&toy_server, (const uint8_t *)hello, 16) == 0);
    CHECK(sent_size > 40 && sent[8] == CRT_SESSION_NORMAL && sent[17] == CRT_RPC_EXCEPTION);
    CHECK(answers(terminate, 12, "", 0));
    CHECK(answers(hello, 16, "", 0));
}

/* A session with another version of the protocol, and a nonce of 0, are refused. */
static void test_session_refusals(void)
{
    static const struct crt_port port = {.write = capture};
    struct crt_session session;
    crt_session_init(&session, &port, 0xab);
    sent_size = 0;
    CHECK(crt_session_receive(&session, (const uint8_t *)"\x82\x00\x00\x02", 4) == CRT_SESSION_NONE);
    CHECK(!session.established && sent_size > 9 && sent[8] == CRT_SESSION_LOG);
    sent_size = 0;
    CHECK(crt_session_receive(&session, (const uint8_t *)"\x00\x00\x00\x01", 4) == CRT_SESSION_NONE);
    CHECK(crt_session_receive(&session, (const uint8_t *)"\x82\x00\x00", 3) == CRT_SESSION_NONE);
    CHECK(crt_session_receive(&session, (const uint8_t *)"\x82", 1) == CRT_SESSION_NONE);
    CHECK(crt_session_receive(&session, (const uint8_t *)"\x00\x00\x7f", 3) == CRT_SESSION_NONE);
    CHECK(!session.established && sent_size == 0);
    CHECK(crt_session_receive(&session, (const uint8_t *)"\x82\x00\x00\x01", 4) == CRT_SESSION_STARTED);
    CHECK(session.established && session.id == 0x6682);
    CHECK(crt_session_receive(&session, (const uint8_t *)"\x82\x67\x10", 3) == CRT_SESSION_NONE);
    CHECK(crt_session_receive(&session, (const uint8_t *)"\x82\x67\x02", 3) == CRT_SESSION_NONE);
    CHECK(crt_session_receive(&session, (const uint8_t *)"\x82\x66\x10", 3) == CRT_SESSION_MESSAGE);
    CHECK(crt_session_receive(&session, (const uint8_t *)"\x82\x66\x02", 3) == CRT_SESSION_ENDED);
    CHECK(crt_session_receive(&session, (const uint8_t *)"\x82\x66\x10", 3) == CRT_SESSION_NONE);
}

static void test_configuration(void)
{
    static const struct crt_model *many[CRT_SERVER_MODELS + 1];
    static struct crt_server server;
    static uint8_t receive[CRT_SERVER_RECEIVE_MIN];
    CHECK(toy_start(TOY_MODELS, CRT_SERVER_RECEIVE_MIN, capture) == CRT_OK);
    struct crt_server_config config = toy_server.config;
    config.receive = receive;
    config.receive_size = CRT_SERVER_RECEIVE_MIN - 1;
    CHECK(crt_server_init(&server, &config) == CRT_ERR_ARGUMENT);
    config.receive_size = CRT_SERVER_RECEIVE_MIN;
    CHECK(crt_server_init(&server, &config) == CRT_OK);
    config.models = many;
    config.num_models = CRT_SERVER_MODELS + 1;
    CHECK(crt_server_init(&server, &config) == CRT_ERR_ARGUMENT);
    struct crt_model wide = **toy_server.config.models;
    const struct crt_model *one[] = {&wide};
    wide.flags = CRT_MODEL_CONSUMES_INPUTS;
    wide.num_inputs = 33;
    config.models = one;
    config.num_models = 1;
    CHECK(crt_server_init(&server, &config) == CRT_ERR_ARGUMENT);
}

/* The quotient is the nearest float64, as the machine's own division gives it. */
static void test_ratio(void)
{
    static const uint64_t edges[] = {1, 2, 3, 5, 999, 1000, 1 << 20, (1 << 20) + 1, UINT64_C(1) << 52,
                                     (UINT64_C(1) << 53) - 1};
    const size_t count = sizeof edges / sizeof edges[0];
    CHECK(crt_time_ratio(0, 7) == 0);
    for (size_t i = 0; i < 20000; i++) {
        const uint64_t num = i < 100 ? edges[i / 10 % count] : 1 + next_random() * (uint64_t)next_random();
        const uint64_t den = i < 100 ? edges[i % count] : 1 + next_random();
        const double expected = (double)num / (double)den;
        const uint64_t bits = crt_time_ratio(num, den);
        CHECK(memcmp(&bits, &expected, sizeof bits) == 0);
    }
}

static int backend_task(int task, TVMParallelGroupEnv *environment, void *data)
{
    *(int *)data += 1 + task + environment->num_task;
    return TVMBackendParallelBarrier(task, environment);
}

static void test_backend(void)
{
    TVMFunctionHandle function;
    TVMValue value = {.v_int64 = 42};
    TVMValue ret;
    int code = kTVMArgInt;
    int ret_code;
    int tasks = 0;
    CHECK(toy_start(TOY_MODELS, 256, capture) == CRT_OK);
    crt_backend.system_lib = TVMSystemLibEntryPoint();
    CHECK(TVMBackendGetFuncFromEnv(NULL, "toy_nothing", &function) == -1 && TVMGetLastError()[0] != '\0');
    CHECK(TVMBackendGetFuncFromEnv(NULL, "toy_echo", &function) == 0);
    CHECK(TVMFuncCall(function, &value, &code, 1, &ret, &ret_code) == 0 && ret.v_int64 == 42 && ret_code == 0);
    CHECK(TVMBackendParallelLaunch(backend_task, &tasks, 0) == 0 && tasks == 2);
    void *memory = TVMBackendAllocWorkspace(kDLCPU, 0, 200, kDLUInt, 8);
    CHECK(memory != NULL && TVMBackendAllocWorkspace(kDLCPU, 0, 200, kDLUInt, 8) == NULL);
    CHECK(strcmp(TVMGetLastError(), "the workspace is too small") == 0);
    CHECK(TVMBackendAllocWorkspace(kDLCPU, 0, UINT64_C(1) << 32, kDLUInt, 8) == NULL);
    CHECK(TVMBackendFreeWorkspace(kDLCPU, 0, memory) == 0 && TVMBackendFreeWorkspace(kDLCPU, 0, memory) != 0);
}

_Static_assert(sizeof(DLDevice) == 8, "a device has 8 bytes, whatever the size of an enum");
_Static_assert(sizeof(TVMValue) == 8, "a value has 8 bytes");
_Static_assert(sizeof(DLDataType) == 4, "an element type has 4 bytes");

int main(void)
{
    test_registry();
    test_pool();
    test_pool_blocks();
    test_frame_vectors();
    test_frame_damage();
    test_frame_rules();
    test_session();
    test_session_refusals();
    test_configuration();
    test_ratio();
    test_backend();
    return failures != 0;
}
