/*
 * The RPC server on the serial port.
 */
#include <crt/server.h>

#include "platform.h"

#if CONFIG_CRTGEN_POOL_SIZE > 0
#define POOL_SIZE CONFIG_CRTGEN_POOL_SIZE
#else
#define POOL_SIZE CRT_POOL_SIZE /* values that crtgen computed for the models */
#endif

static uint8_t receive[CONFIG_CRTGEN_RECEIVE_SIZE];
static _Alignas(16) uint8_t pool[POOL_SIZE];
static struct crt_server server;

static void port_write(void *context, const uint8_t *bytes, size_t size)
{
    (void)context;
    crt_serial_write(bytes, size);
}

static void port_flush(void *context)
{
    (void)context;
    crt_serial_flush();
}

static uint64_t port_ticks(void *context)
{
    (void)context;
    return crt_clock_ticks();
}

static void port_spin(void *context, uint32_t loops)
{
    (void)context;
    crt_clock_spin(loops);
}

static void port_feed(void *context)
{
    (void)context;
    crt_watchdog_feed();
}

static void port_restart(void *context)
{
    (void)context;
    sys_reboot(SYS_REBOOT_COLD);
}

static struct crt_port port = {
    .write = port_write,
    .flush = port_flush,
    .ticks = port_ticks,
    .spin = port_spin,
    .feed = port_feed,
    .restart = port_restart,
};

/* Returns when the host asks for it. */
static int serve(void)
{
    const struct crt_server_config config = {
        .port = &port,
        .receive = receive,
        .receive_size = sizeof receive,
        .pool = pool,
        .pool_size = sizeof pool,
        .models = crt_models,
        .num_models = crt_num_models,
        .system_lib = TVMSystemLibEntryPoint(),
        .signatures = &crt_signatures,
        .params = &crt_params,
#ifdef CRT_TVM_CODE
        .backend = &crt_backend,
#endif
        .fault = &crt_last_fault,
    };
    uint8_t bytes[64];
    size_t count = 0;
    int status = crt_server_init(&server, &config);
    if (status != 0)
        return status;
    crt_server_boot(&server);
    do
        count = crt_serial_read(bytes, sizeof bytes);
    while (crt_server_feed(&server, bytes, count) != CRT_SERVER_SHUTDOWN);
    return 0;
}

int main(void)
{
    int status = crt_serial_start();
    if (status != 0)
        return status;
    crt_clock_start();
    crt_watchdog_start();
#ifdef CRT_TVM_CODE
    crt_backend.system_lib = TVMSystemLibEntryPoint();
#endif
    port.ticks_per_second = crt_clock_rate();
    while (status == 0)
        status = serve();
    return status;
}

void crt_report(struct crt_fault *fault)
{
    crt_server_fault(&server, fault);
}
