/*
 * The serial port: its interrupt stores received bytes in a ring. Sending polls, so it works in a fault handler. The
 * port is the chosen node crtgen,rpc, or the console.
 */
#include <errno.h>

#include "platform.h"

#if DT_HAS_CHOSEN(crtgen_rpc)
#define PORT DEVICE_DT_GET(DT_CHOSEN(crtgen_rpc))
#else
#define PORT DEVICE_DT_GET(DT_CHOSEN(zephyr_console))
#endif

/* The thread wakes up to feed the watchdog. */
#ifdef CONFIG_CRTGEN_WATCHDOG
#define WAIT K_MSEC(250)
#else
#define WAIT K_FOREVER
#endif

#define RING_SIZE ((uint32_t)CONFIG_CRTGEN_RING_SIZE)

BUILD_ASSERT((CONFIG_CRTGEN_RING_SIZE & (CONFIG_CRTGEN_RING_SIZE - 1)) == 0,
             "CONFIG_CRTGEN_RING_SIZE has to be a power of two");

static const struct device *const port = PORT;

/* The interrupt writes at `head`, the reader reads at `tail`. Both only count up. */
static uint8_t ring[RING_SIZE];
static volatile uint32_t head, tail;
static volatile int full;

K_SEM_DEFINE(arrived, 0, 1);

/* If the ring is full, bytes stay in the UART, which raises no interrupt until there is room. */
static void store(void)
{
    while (uart_irq_rx_ready(port) > 0) {
        uint32_t at = head % RING_SIZE;
        uint32_t room = MIN(RING_SIZE - (head - tail), RING_SIZE - at);
        if (room == 0) {
            full = 1;
            uart_irq_rx_disable(port);
            return;
        }
        int count = uart_fifo_read(port, &ring[at], (int)room);
        if (count <= 0)
            return;
        head = head + (uint32_t)count;
    }
}

static void on_interrupt(const struct device *device, void *context)
{
    (void)context;
    uart_irq_update(device);
    store();
    k_sem_give(&arrived);
}

int crt_serial_start(void)
{
    if (!device_is_ready(port))
        return -ENODEV;
    uart_irq_rx_disable(port);
    uart_irq_tx_disable(port);
    uart_irq_callback_user_data_set(port, on_interrupt, NULL);
    uart_irq_rx_enable(port);
    unsigned char early;
    (void)uart_poll_in(port, &early); /* a simulated UART looks for waiting bytes only when it is read */
    return 0;
}

/* There is room again. A simulated UART raises no interrupt for a byte that is already waiting. */
static void resume(void)
{
    unsigned int key = irq_lock();
    full = 0;
    uart_irq_rx_enable(port);
    store();
    irq_unlock(key);
}

static size_t uart_read(uint8_t *bytes, size_t size)
{
    size_t count = 0;
    while (head == tail) {
        crt_watchdog_feed();
        (void)k_sem_take(&arrived, WAIT);
    }
    while (count < size && head != tail) {
        bytes[count++] = ring[tail % RING_SIZE];
        tail = tail + 1;
    }
    if (full)
        resume();
    return count;
}

static void uart_write(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        uart_poll_out(port, bytes[i]);
}

/* Code behind a constant condition of 0 is not compiled, so these functions need not exist. */
#define HAS_MAILBOX (IS_ENABLED(CONFIG_CRTGEN_MAILBOX) && crt_mailbox_open() != 0)

size_t crt_serial_read(uint8_t *bytes, size_t size)
{
    if (HAS_MAILBOX) {
        size_t count = crt_mailbox_read(bytes, size);
        while (count == 0) {
            (void)uart_read(bytes, size); /* the host rings */
            count = crt_mailbox_read(bytes, size);
        }
        return count;
    }
    return uart_read(bytes, size);
}

static void mail(const uint8_t *bytes, size_t size)
{
    size_t done = 0;
    while (IS_ENABLED(CONFIG_CRTGEN_MAILBOX) && done < size) {
        size_t count = crt_mailbox_write(bytes + done, size - done);
        if (count == 0)
            crt_serial_flush();
        while (count == 0)
            count = crt_mailbox_write(bytes + done, size - done);
        done += count;
    }
}

void crt_serial_write(const uint8_t *bytes, size_t size)
{
    if (HAS_MAILBOX)
        mail(bytes, size);
    else
        uart_write(bytes, size);
}

void crt_serial_flush(void)
{
    static const uint8_t bell[1];
    if (HAS_MAILBOX)
        uart_write(bell, sizeof bell);
}
