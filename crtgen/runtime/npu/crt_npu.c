/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver of an Ethos-U55 or U65.
 *
 * The NPU is a bus master with a register file. It is reset into the core's own privilege and security, learns where
 * the stream and up to eight regions of memory are, and is started. It then reads the stream by itself, and raises its
 * interrupt at the end or at the first failure. All state is in its registers: each job sets all of them, so nothing of
 * one job is left for the next, and after a failure the reset clears whatever the NPU was doing.
 *
 * The order within a job:
 *   1. compare ID and CONFIG with those that the stream is for
 *   2. reset, wait until it is done, look at the state that it gave
 *   3. write back the data cache for all regions, drop it for those that are written
 *   4. base pointers, length, limits, then the command that starts it, behind a barrier
 *   5. wait for the interrupt, or until the watchdog's ticks are over
 *   6. read the status, clear the interrupt, drop the data cache again: the core may have fetched lines meanwhile
 */
#include <crt/npu.h>

#include <stddef.h>

/* Registers, in words from the base. */
enum npu_register {
    NPU_ID = 0x00 / 4,
    NPU_STATUS = 0x04 / 4,
    NPU_CMD = 0x08 / 4,
    NPU_RESET = 0x0C / 4,
    NPU_QBASE0 = 0x10 / 4,
    NPU_QBASE1 = 0x14 / 4,
    NPU_QREAD = 0x18 / 4,
    NPU_QCONFIG = 0x1C / 4,
    NPU_QSIZE = 0x20 / 4,
    NPU_PROT = 0x24 / 4,
    NPU_CONFIG = 0x28 / 4,
    NPU_REGIONCFG = 0x3C / 4,
    NPU_AXI_LIMIT0 = 0x40 / 4,
    NPU_BASEP0 = 0x80 / 4
};

/* Bits of STATUS. */
#define STATUS_RUNNING (UINT32_C(1) << 0)
#define STATUS_IRQ (UINT32_C(1) << 1)
#define STATUS_BUS (UINT32_C(1) << 2)
#define STATUS_RESETTING (UINT32_C(1) << 3)
#define STATUS_PARSE (UINT32_C(1) << 4)
#define STATUS_END (UINT32_C(1) << 5)
#define STATUS_MEMORY (UINT32_C(1) << 8)

/* Bits of CMD. With both Q channels off, clock and power stay on. */
#define CMD_RUN (UINT32_C(1) << 0)
#define CMD_CLEAR_IRQ (UINT32_C(1) << 1)
#define CMD_CLOCK_Q (UINT32_C(1) << 2)
#define CMD_POWER_Q (UINT32_C(1) << 3)

/* Privileged and secure, as bits of RESET and of PROT: PROT has what was asked for, if it was granted. */
#define STATE_PRIVILEGED (UINT32_C(1) << 0)
#define STATE_NON_SECURE (UINT32_C(1) << 1)

/*
 * The stream is read through the second bus port, as the constants are; the job says it for each region. The second
 * port of a U55 cannot write. 32 reads and 16 writes may be outstanding.
 */
#define STREAM_PORT UINT32_C(2)
#define AXI_LIMIT ((UINT32_C(31) << 16) | (UINT32_C(15) << 24))

#define ALIGNED UINT32_C(15)
#define STOP UINT32_C(0xFFFF0000) /* the last command of a stream */
#define RESET_LOOKS UINT32_C(100000)

struct crt_npu_failure crt_npu_failure;
int32_t (*crt_npu_instead)(const struct crt_npu_job *job);
uint32_t crt_npu_limit;

__attribute__((weak)) uintptr_t crt_npu_registers(void)
{
    return 0;
}

__attribute__((weak)) void crt_npu_clean(uintptr_t start, uint32_t bytes)
{
    (void)start;
    (void)bytes;
}

__attribute__((weak)) void crt_npu_invalidate(uintptr_t start, uint32_t bytes)
{
    (void)start;
    (void)bytes;
}

__attribute__((weak)) void crt_npu_wait(void)
{
}

__attribute__((weak)) uint32_t crt_npu_ticks(void)
{
    return 0;
}

/* A barrier: earlier stores are in memory before the NPU reads it. */
static void npu_barrier(void)
{
#if defined(__arm__)
    __asm volatile("dsb" ::: "memory");
#else
    __asm volatile("" ::: "memory");
#endif
}

static int32_t npu_failed(volatile const uint32_t *npu, int32_t error)
{
    crt_npu_failure.error = error;
    crt_npu_failure.status = (npu != NULL) ? npu[NPU_STATUS] : 0u;
    crt_npu_failure.offset = (npu != NULL) ? npu[NPU_QREAD] : 0u;
    return error;
}

/* Return whether stream and regions are readable by the NPU and aligned to 16 bytes, and the stream is complete. */
static int32_t npu_check(const struct crt_npu_job *job)
{
    const uint32_t words = job->stream_bytes / 4u;
    uintptr_t bits = (uintptr_t)job->stream;
    for (uint32_t i = 0; i < (uint32_t)CRT_NPU_REGIONS; i++) {
        if (job->regions[i].bytes != 0u && i < 3u) {
            bits |= job->regions[i].base;
        }
    }
    if (((bits & ALIGNED) != 0u) || ((job->stream_bytes & 3u) != 0u)) {
        return (int32_t)CRT_NPU_ERR_JOB;
    }
    return ((words == 0u) || (job->stream[words - 1u] != STOP)) ? (int32_t)CRT_NPU_ERR_ENDED : 0;
}

static int32_t npu_reset(volatile uint32_t *npu)
{
    const uint32_t state = STATE_PRIVILEGED;
    npu[NPU_RESET] = state;
    for (uint32_t i = 0; (npu[NPU_STATUS] & STATUS_RESETTING) != 0u; i++) {
        if (i == RESET_LOOKS) {
            return (int32_t)CRT_NPU_ERR_RESET;
        }
    }
    /* A core in the non-secure world gets the non-secure state whatever it asks for, which is fine, too. */
    if ((npu[NPU_PROT] & ~STATE_NON_SECURE) != state) {
        return (int32_t)CRT_NPU_ERR_RESET;
    }
    npu[NPU_CMD] = 0; /* clock and power stay on */
    return 0;
}

static void npu_share(const struct crt_npu_job *job)
{
    crt_npu_clean((uintptr_t)job->stream, job->stream_bytes);
    for (uint32_t i = 0; i < (uint32_t)CRT_NPU_REGIONS; i++) {
        if (job->regions[i].bytes != 0u) {
            crt_npu_clean(job->regions[i].base, job->regions[i].bytes);
        }
    }
}

static void npu_take_back(const struct crt_npu_job *job)
{
    for (uint32_t i = 0; i < (uint32_t)CRT_NPU_REGIONS; i++) {
        if (job->regions[i].bytes != 0u && ((job->written >> i) & 1u) != 0u) {
            crt_npu_invalidate(job->regions[i].base, job->regions[i].bytes);
        }
    }
}

static void npu_set_address(volatile uint32_t *npu, uint32_t at, uintptr_t address)
{
    const uint64_t wide = (uint64_t)address;
    npu[at] = (uint32_t)wide;
    npu[at + 1u] = (uint32_t)(wide >> 32);
}

static void npu_start(volatile uint32_t *npu, const struct crt_npu_job *job)
{
    npu[NPU_QCONFIG] = STREAM_PORT;
    npu[NPU_REGIONCFG] = job->ports;
    for (uint32_t i = 0; i < 4u; i++) {
        npu[(uint32_t)NPU_AXI_LIMIT0 + i] = AXI_LIMIT;
    }
    npu_set_address(npu, (uint32_t)NPU_QBASE0, (uintptr_t)job->stream);
    npu[NPU_QSIZE] = job->stream_bytes;
    for (uint32_t i = 0; i < (uint32_t)CRT_NPU_REGIONS; i++) {
        npu_set_address(npu, (uint32_t)NPU_BASEP0 + (2u * i), job->regions[i].base);
    }
    npu_barrier();
    npu[NPU_CMD] = CMD_RUN;
}

/* Wait for the interrupt. Without a limit, a hung NPU is waited for until the board's watchdog resets everything. */
static int32_t npu_finish(volatile const uint32_t *npu)
{
    const uint32_t start = crt_npu_ticks();
    while ((npu[NPU_STATUS] & STATUS_IRQ) == 0u) {
        if ((crt_npu_limit != 0u) && ((crt_npu_ticks() - start) > crt_npu_limit)) {
            return (int32_t)CRT_NPU_ERR_TIMEOUT;
        }
        crt_npu_wait();
    }
    return 0;
}

static int32_t npu_result(uint32_t status)
{
    if ((status & STATUS_BUS) != 0u) {
        return (int32_t)CRT_NPU_ERR_BUS;
    }
    if ((status & STATUS_PARSE) != 0u) {
        return (int32_t)CRT_NPU_ERR_STREAM;
    }
    if ((status & STATUS_MEMORY) != 0u) {
        return (int32_t)CRT_NPU_ERR_MEMORY;
    }
    return ((status & STATUS_END) == 0u) ? (int32_t)CRT_NPU_ERR_ENDED : 0;
}

static int32_t npu_execute(volatile uint32_t *npu, const struct crt_npu_job *job)
{
    int32_t error = npu_reset(npu);
    if (error != 0) {
        return error;
    }
    npu_share(job);
    npu_start(npu, job);
    error = npu_finish(npu);
    if (error == 0) {
        error = npu_result(npu[NPU_STATUS]);
    }
    return error;
}

int32_t crt_npu_run(const struct crt_npu_job *job)
{
    if (crt_npu_instead != NULL) {
        return crt_npu_instead(job);
    }
    volatile uint32_t *npu = (volatile uint32_t *)crt_npu_registers();
    int32_t error = npu_check(job);
    if ((error == 0) && (npu == NULL)) {
        error = (int32_t)CRT_NPU_ERR_NONE;
    }
    if (error != 0) {
        return npu_failed(NULL, error);
    }
    if (npu[NPU_CONFIG] != job->config) {
        return npu_failed(npu, (int32_t)CRT_NPU_ERR_CONFIG);
    }
    error = npu_execute(npu, job);
    if (error != 0) {
        (void)npu_failed(npu, error);
        (void)npu_reset(npu);
    } else {
        npu_take_back(job);
    }
    npu[NPU_CMD] = CMD_CLEAR_IRQ | CMD_CLOCK_Q | CMD_POWER_Q; /* it may sleep until the next job */
    npu_barrier();
    return error;
}
