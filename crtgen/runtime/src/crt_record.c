/* SPDX-License-Identifier: Apache-2.0 */
#include <crt/record.h>

#include <string.h>

static uint32_t crt_record_each(const struct crt_recorder *recorder)
{
    return (uint32_t)sizeof(struct crt_record_run) + recorder->run_bytes;
}

static struct crt_record_run *crt_record_run(const struct crt_recorder *recorder, uint32_t number)
{
    uint8_t *runs =
        recorder->memory + sizeof(struct crt_record_head) + (2u * CRT_RECORD_WORDS(recorder->state_bytes));
    return (struct crt_record_run *)(void *)(runs + ((number % recorder->runs) * crt_record_each(recorder)));
}

static struct crt_record_head *crt_record_head(const struct crt_recorder *recorder)
{
    return (struct crt_record_head *)(void *)recorder->memory;
}

/*
 * States are most of the copies: 3,472 bytes for a wake word, in every fourth run. 64 bytes at once take a fifth of
 * the instructions of a C library's memcpy.
 */
static void crt_record_move(uint8_t *to, const uint8_t *from, uint32_t nbytes)
{
    uint8_t *at = to;
    const uint8_t *source = from;
    uint32_t left = nbytes;
#if defined(__ARM_ARCH_ISA_THUMB) && (__ARM_ARCH_ISA_THUMB == 2)
    if ((((uintptr_t)at | (uintptr_t)source) & 3u) == 0u) {
        for (; left >= 64u; left -= 64u) {
            __asm volatile("ldmia %1!, {r3-r6, r8-r10, r12}\n\t"
                           "stmia %0!, {r3-r6, r8-r10, r12}\n\t"
                           "ldmia %1!, {r3-r6, r8-r10, r12}\n\t"
                           "stmia %0!, {r3-r6, r8-r10, r12}"
                           : "+r"(at), "+r"(source)
                           :
                           : "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r12", "memory");
        }
        for (; left >= 8u; left -= 8u) {
            __asm volatile("ldmia %1!, {r3, r4}\n\t"
                           "stmia %0!, {r3, r4}"
                           : "+r"(at), "+r"(source)
                           :
                           : "r3", "r4", "memory");
        }
    }
#endif
    if (left > 0u) {
        (void)memcpy(at, source, left);
    }
}

static uint8_t *crt_record_copy(uint8_t *to, const struct crt_record_part *parts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        crt_record_move(to, parts[i].data, parts[i].nbytes);
        to += CRT_RECORD_WORDS(parts[i].nbytes);
    }
    return to;
}

void crt_record_begin(const struct crt_recorder *recorder)
{
    struct crt_record_head *head = crt_record_head(recorder);
    const uint32_t half = recorder->runs / 2u;
    if ((head->magic != CRT_RECORD_MAGIC) || (head->layout != recorder->layout)) {
        const struct crt_record_head fresh = {CRT_RECORD_MAGIC, recorder->layout, 0, 0};
        (void)memset(recorder->memory, 0xff, crt_record_size(recorder));
        *head = fresh;
    }
    if (*recorder->follows == 0u) {
        *recorder->follows = 1;
        if (recorder->state_bytes != 0u) {
            head->next = (head->next + half - 1u) / half * half;
        }
        head->first = head->next;
    }
    const uint32_t number = head->next;
    if ((recorder->state_bytes != 0u) && ((number % half) == 0u)) {
        uint8_t *states = recorder->memory + sizeof *head;
        states += (number / half % 2u) * CRT_RECORD_WORDS(recorder->state_bytes);
        crt_record_move(states, recorder->state, recorder->state_bytes);
    }
    struct crt_record_run *run = crt_record_run(recorder, number);
    run->number = number;
    run->ended = 0;
    (void)crt_record_copy((uint8_t *)(run + 1), recorder->inputs, recorder->num_inputs);
    head->next = number + 1u;
}

void crt_record_end(const struct crt_recorder *recorder)
{
    struct crt_record_run *run = crt_record_run(recorder, crt_record_head(recorder)->next - 1u);
    uint8_t *outputs = (uint8_t *)(run + 1);
    for (uint32_t i = 0; i < recorder->num_inputs; i++) {
        outputs += CRT_RECORD_WORDS(recorder->inputs[i].nbytes);
    }
    (void)crt_record_copy(outputs, recorder->outputs, recorder->num_outputs);
    __asm volatile("" ::: "memory");
    run->ended = 1;
}

uint32_t crt_record_size(const struct crt_recorder *recorder)
{
    return (uint32_t)sizeof(struct crt_record_head) + (2u * CRT_RECORD_WORDS(recorder->state_bytes)) +
           (recorder->runs * crt_record_each(recorder));
}

void crt_record_dump(const struct crt_recorder *recorder, void (*write)(void *context, const void *data, size_t size),
                     void *context)
{
    write(context, recorder->memory, crt_record_size(recorder));
}
