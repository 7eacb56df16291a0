/* SPDX-License-Identifier: Apache-2.0 */
#include <crt/record.h>

#include <string.h>

static uint32_t crt_record_each(const struct crt_recorder *recorder)
{
    uint32_t bytes = (uint32_t)sizeof(struct crt_record_run);
    for (uint32_t i = 0; i < recorder->num_inputs; i++) {
        bytes += CRT_RECORD_WORDS(recorder->inputs[i].nbytes);
    }
    for (uint32_t i = 0; i < recorder->num_outputs; i++) {
        bytes += CRT_RECORD_WORDS(recorder->outputs[i].nbytes);
    }
    return bytes;
}

static uint8_t *crt_record_run(const struct crt_recorder *recorder, uint32_t number)
{
    uint8_t *runs =
        recorder->memory + sizeof(struct crt_record_head) + (2u * CRT_RECORD_WORDS(recorder->state_bytes));
    return runs + ((number % recorder->runs) * crt_record_each(recorder));
}

static struct crt_record_head *crt_record_head(const struct crt_recorder *recorder)
{
    return (struct crt_record_head *)(void *)recorder->memory;
}

static uint8_t *crt_record_copy(uint8_t *to, const struct crt_record_part *parts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)memcpy(to, parts[i].data, parts[i].nbytes);
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
        (void)memcpy(states, recorder->state, recorder->state_bytes);
    }
    const struct crt_record_run run = {number, 0};
    uint8_t *at = crt_record_run(recorder, number);
    (void)memcpy(at, &run, sizeof run);
    (void)crt_record_copy(at + sizeof run, recorder->inputs, recorder->num_inputs);
    head->next = number + 1u;
}

void crt_record_end(const struct crt_recorder *recorder)
{
    const struct crt_record_run run = {crt_record_head(recorder)->next - 1u, 1};
    uint8_t *at = crt_record_run(recorder, run.number);
    uint8_t *outputs = at + sizeof run;
    for (uint32_t i = 0; i < recorder->num_inputs; i++) {
        outputs += CRT_RECORD_WORDS(recorder->inputs[i].nbytes);
    }
    (void)crt_record_copy(outputs, recorder->outputs, recorder->num_outputs);
    (void)memcpy(at, &run, sizeof run);
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
