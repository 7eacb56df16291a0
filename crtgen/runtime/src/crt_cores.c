/* SPDX-License-Identifier: Apache-2.0 */
#include <crt/cores.h>

#include <stddef.h>
#include <stdint.h>
#if defined(__unix__) || defined(__APPLE__)
#include <sched.h>
#endif

/*
 * Words with one writer each: no lock, and no exclusive accesses, which a Cortex-M0+ lacks. Storing a number releases
 * the results of its writer; the load that sees it acquires them.
 */
static struct crt_halves {
    uint32_t asked; /* written by the first core: the number of halves that it has requested */
    uint32_t done;  /* written by the second core: the number of the last finished half; from 1 on, the core is there */
    void (*half)(const void *call);
    const void *call;
} crt_pair;

static uint32_t crt_load(const uint32_t *word)
{
#if __GCC_ATOMIC_INT_LOCK_FREE == 2
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#else
    const uint32_t value = *(const volatile uint32_t *)word;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return value;
#endif
}

static void crt_store(uint32_t *word, uint32_t value)
{
#if __GCC_ATOMIC_INT_LOCK_FREE == 2
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
#else
    __atomic_thread_fence(__ATOMIC_RELEASE); /* a core without exclusive accesses: clang would call a function */
    *(volatile uint32_t *)word = value;
#endif
}

static void crt_wake(void)
{
#if defined(__ARM_ARCH_PROFILE) && (__ARM_ARCH_PROFILE == 'M')
    __asm volatile("dsb\n\tsev" ::: "memory");
#endif
}

static void crt_wait(void)
{
#if defined(__ARM_ARCH_PROFILE) && (__ARM_ARCH_PROFILE == 'M')
    __asm volatile("wfe" ::: "memory");
#elif defined(__unix__) || defined(__APPLE__)
    (void)sched_yield();
#endif
}

void crt_both(void (*first)(const void *call), void (*second)(const void *call), const void *call)
{
    const uint32_t before = crt_load(&crt_pair.done);
    if (before == 0u) {
        first(call);
        second(call);
        return;
    }
    crt_pair.half = second;
    crt_pair.call = call;
    crt_store(&crt_pair.asked, before);
    crt_wake();
    first(call);
    while (crt_load(&crt_pair.done) == before) {
        crt_wait();
    }
}

int crt_second_waits(void)
{
    return crt_load(&crt_pair.done) != 0u;
}

void crt_worker(void)
{
    crt_store(&crt_pair.done, 1u);
    for (uint32_t number = 1u;; number = (number == UINT32_MAX) ? 1u : (number + 1u)) {
        while (crt_load(&crt_pair.asked) != number) {
            crt_wait();
        }
        crt_pair.half(crt_pair.call);
        crt_store(&crt_pair.done, (number == UINT32_MAX) ? 1u : (number + 1u));
        crt_wake();
    }
}
