/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs of the NPU through Arm's driver (ethos-u-core-driver), which the program brings and has initialised: as Zephyr does
 * with CONFIG_ETHOS_U. It resets the NPU, keeps caches coherent by its own functions, and waits for the interrupt.
 *
 * The stream has the header that this driver asks for ("COP1"). All base pointers have to be multiples of 16. Region 2 is
 * not used: the driver puts the address of its fast memory there if it has any.
 */
#include <crt/npu.h>

#include <stddef.h>

#include <ethosu_driver.h>

#define ALIGNED UINT32_C(15)

struct crt_npu_failure crt_npu_failure;

static int32_t npu_failed(int32_t error)
{
    crt_npu_failure.error = error;
    return error;
}

int32_t crt_npu_run(const struct crt_npu_job *job)
{
    uint64_t base[CRT_NPU_REGIONS];
    size_t bytes[CRT_NPU_REGIONS];
    uintptr_t bits = (uintptr_t)job->stream;
    for (uint32_t i = 0; i < (uint32_t)CRT_NPU_REGIONS; i++) {
        base[i] = (uint64_t)job->regions[i].base;
        bytes[i] = (size_t)job->regions[i].bytes;
        bits |= job->regions[i].base;
    }
    if ((bits & ALIGNED) != 0u) {
        return npu_failed((int32_t)CRT_NPU_ERR_JOB);
    }
    struct ethosu_driver *driver = ethosu_reserve_driver();
    if (driver == NULL) {
        return npu_failed((int32_t)CRT_NPU_ERR_NONE);
    }
    const int size = (int)job->stream_bytes;
    const int status = ethosu_invoke_v3(driver, job->stream, size, base, bytes, (int)CRT_NPU_REGIONS, NULL);
    ethosu_release_driver(driver);
    return (status == 0) ? 0 : npu_failed((int32_t)CRT_NPU_ERR_DRIVER);
}
