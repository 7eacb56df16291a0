/* Runs each job in every placement of its buffers, and prints what went wrong and the ticks it took.

   The placements: all buffers apart in the arena; an output over an input; one buffer at the end of a memory,
   then at the start of one, beyond which is a fault. What lies between the buffers has to stay as it was. */
#include "jobs.h"

#include <string.h>

#include "print.h"

#define GUARD 64u
#define FILL 0xa5u
#define MOST 32u /* buffers of a job */
#ifndef ROUNDS
#define ROUNDS 1u /* calls that are counted together */
#endif

static uint8_t arena[ARENA] __attribute__((aligned(16)));
static uint8_t *place[MOST];

static volatile uint32_t *const systick = (volatile uint32_t *)0xe000e010;

void systick_handler(void);
void systick_handler(void)
{
}

static uint32_t up(uint32_t number)
{
    return (number + 15) & ~15u;
}

static void bring(const struct job *job, uint32_t i)
{
    const struct buffer *b = &job->buffers[i];
    if (b->kind == INPUT || b->kind == CONSTANT) {
        memcpy(place[i], b->data, b->nbytes);
    }
}

/* Every buffer apart from the others, constants where the image has them; returns the bytes of the arena. */
static uint32_t lay_apart(const struct job *job)
{
    uint32_t at = GUARD;
    for (uint32_t i = 0; i < job->num_buffers; i++) {
        const struct buffer *b = &job->buffers[i];
        if (b->kind == CONSTANT) {
            place[i] = (uint8_t *)(uintptr_t)b->data;
        } else {
            place[i] = arena + at;
            at = up(at + b->nbytes) + GUARD;
        }
    }
    return at;
}

/* The same, but an output begins `lead` bytes before an input; both get a place of their own. */
static uint32_t lay_over(const struct job *job, const struct permit *permit)
{
    uint32_t at = lay_apart(job);
    place[permit->input] = arena + at + up(permit->lead);
    place[permit->output] = place[permit->input] - permit->lead;
    uint32_t end = at + up(permit->lead) + job->buffers[permit->input].nbytes;
    uint32_t written = (uint32_t)(place[permit->output] - arena) + job->buffers[permit->output].nbytes;
    return up(written > end ? written : end) + GUARD;
}

/* Whether what no buffer covers in the arena's first bytes is as it was filled. */
static int is_whole(const struct job *job, uint32_t used)
{
    for (uint32_t i = 0; i < job->num_buffers; i++) {
        if (place[i] >= arena && place[i] < arena + ARENA) {
            memset(place[i], FILL, job->buffers[i].nbytes);
        }
    }
    for (uint32_t i = 0; i < used; i++) {
        if (arena[i] != FILL) {
            put_number(" arena ", i);
            return 0;
        }
    }
    return 1;
}

/* The first byte or, of float32, element of an output that is not as expected; its bytes if all are. */
static uint32_t compare(const struct buffer *b, const uint8_t *is)
{
    if (b->tolerance > 0) {
        for (uint32_t i = 0; i < b->nbytes; i += 4) {
            float x, y;
            memcpy(&x, is + i, 4);
            memcpy(&y, b->data + i, 4);
            float difference = x < y ? y - x : x - y;
            if (!(difference <= b->tolerance)) {
                return i;
            }
        }
        return b->nbytes;
    }
    uint32_t i = 0;
    while (i < b->nbytes && is[i] == b->data[i]) {
        i++;
    }
    return i;
}

/* Tells the first output that is wrong, by its number among the buffers, and the byte. */
static void check(const struct job *job)
{
    for (uint32_t i = 0; i < job->num_buffers; i++) {
        const struct buffer *b = &job->buffers[i];
        const uint32_t equal = (b->kind == OUTPUT) ? compare(b, place[i]) : b->nbytes;
        if (equal != b->nbytes) {
            put_number(" output ", i);
            put_number(" at ", equal);
            return;
        }
    }
}

static void run(const struct job *job, uint32_t used)
{
    memset(arena, FILL, used);
    for (uint32_t i = 0; i < job->num_buffers; i++) {
        if (place[i] != job->buffers[i].data) {
            bring(job, i);
        }
    }
    systick[1] = 0xffffff;
    systick[2] = 0;
    systick[0] = 5;
    while (systick[2] == 0) { /* until it counts */
    }
    const uint32_t start = systick[2];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        job->call(place);
    }
    uint32_t ticks = start - systick[2];
    check(job);
    is_whole(job, used);
    put_number(" ticks ", ticks);
    put("\n");
}

/* Each buffer at the end of a memory and at the start of one. */
static void run_at_edges(uint32_t number)
{
    const struct job *job = &jobs[number];
    for (uint32_t i = 0; i < job->num_buffers; i++) {
        const struct buffer *b = &job->buffers[i];
        if (b->nbytes <= HIGH_BYTES) {
            uint32_t used = lay_apart(job);
            place[i] = (uint8_t *)((HIGH_END - b->nbytes) & ~(b->align - 1));
            put_number("job ", number);
            put_number(" end of ", i);
            run(job, used);
        }
        if (b->nbytes <= LOW_BYTES) {
            uint32_t used = lay_apart(job);
            place[i] = (uint8_t *)LOW;
            put_number("job ", number);
            put_number(" start of ", i);
            run(job, used);
        }
    }
}

int main(void)
{
#ifdef TRAP_UNALIGNED
    *(volatile uint32_t *)0xe000ed14 |= 8; /* CCR.UNALIGN_TRP */
#endif
    for (uint32_t number = 0; number < num_jobs; number++) {
        const struct job *job = &jobs[number];
        uint32_t used = lay_apart(job);
        put_number("job ", number);
        put(" apart");
        run(job, used);
        for (uint32_t i = 0; i < job->num_permits; i++) {
            used = lay_over(job, &job->permits[i]);
            put_number("job ", number);
            put_number(" over ", job->permits[i].input);
            put_number(" by ", job->permits[i].output);
            run(job, used);
        }
        run_at_edges(number);
    }
    return 0;
}
