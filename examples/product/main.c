/*
 * A product without a server: a main loop, a serial port, a model that is built in, and two slots for newer ones. What it
 * reads is in product.h: digits.c is a meter reader, wake_word.c listens for a word.
 *
 * After each start a known sample is read. A model on trial that reads it is confirmed. One that does not sends its black
 * box and starts the product again, until its tries are used up and the model before it runs.
 *
 * Letters on the serial port: r reads the next sample, s sends the black box, u and 8 hexadecimal digits announce an
 * image of so many bytes, which is then asked for, x restarts.
 */
#include <string.h>

#include <crt/field.h>
#include <crt/slots.h>

#include "board.h"
#include "product.h"

static void say(const char *text)
{
    board_write(text, (uint32_t)strlen(text));
}

static void say_number(int32_t number)
{
    char text[12];
    char *at = &text[sizeof text - 1];
    uint32_t rest = (number < 0) ? 0u - (uint32_t)number : (uint32_t)number;
    *at = '\0';
    do {
        *--at = (char)('0' + (rest % 10u));
        rest /= 10u;
    } while (rest != 0u);
    if (number < 0) {
        *--at = '-';
    }
    say(at);
}

static void write_text(void *context, const char *text, uint32_t size)
{
    (void)context;
    board_write(text, size);
}

/* Storage is left out: the black box is in RAM that a reset leaves alone. A product has `verify`, too. */
static const struct crt_field_port port = {.write = write_text, .flash = &crt_flash_board};

struct answer best_of(const int8_t *scores, int32_t count)
{
    struct answer answer = {0, 0};
    for (int32_t i = 1; i < count; i++) {
        answer.label = (scores[i] > scores[answer.label]) ? i : answer.label;
    }
    answer.percent = ((scores[answer.label] + 128) * 100) / 256;
    return answer;
}

/* A file that comes by the serial port. The product asks for its bytes, so none comes while the flash is written. */
static int32_t read_file(void *context, uint32_t offset, void *data, uint32_t size)
{
    (void)context;
    say("want ");
    say_number((int32_t)offset);
    say(" ");
    say_number((int32_t)size);
    say("\n");
    for (uint32_t i = 0; i < size; i++) {
        const int byte = board_read();
        if (byte < 0) {
            return -100; /* the other side is gone */
        }
        ((uint8_t *)data)[i] = (uint8_t)byte;
    }
    return 0;
}

static void update(void)
{
    uint32_t size = 0;
    for (int i = 0; i < 8; i++) {
        const int letter = board_read();
        size = (size << 4) | (uint32_t)((letter <= '9') ? (letter - '0') : (letter - 'a' + 10));
    }
    const struct crt_slots_source source = {read_file, NULL, size};
    const int32_t error = crt_field_update(product_field, &source);
    say("update ");
    say_number(error);
    say("\n");
    if (error == 0) {
        board_restart();
    }
}

static void say_model(void)
{
    const struct crt_slot *slot = crt_field_slot(product_field);
    if (slot == NULL) {
        say("start: built-in\n");
        return;
    }
    say("start: slot ");
    say_number(product_field->slots->active);
    say(", version ");
    say_number((int32_t)slot->header->version);
    say((product_field->slots->last.trial != 0u) ? ", on trial\n" : "\n");
}

static void test_itself(void)
{
    const struct answer known = product_read(product_samples);
    const int is_right = (known.label == product_known) && (known.percent > 50);
    say(is_right ? "self-test: right\n" : "self-test: WRONG\n");
    if ((crt_field_slot(product_field) != NULL) && (product_field->slots->last.trial != 0u)) {
        if (!is_right) {
            crt_field_send(product_field, &port);
            board_restart();
        }
        say((crt_slots_confirm(product_field->slots) == 0) ? "confirmed\n" : "not confirmed\n");
    }
}

int main(void)
{
    uint32_t next = 0;
    (void)crt_field_start(product_field, &port);
    say_model();
    test_itself();
    say("ready\n");
    for (;;) {
        struct answer answer;
        switch (board_read()) {
        case 'r':
            answer = product_read(next);
            next = (next + 1u) % product_samples;
            say("read ");
            say_number(answer.label);
            say(", ");
            say_number(answer.percent);
            say(" %\n");
            break;
        case 's':
            crt_field_send(product_field, &port);
            say("sent\n");
            break;
        case 'u':
            update();
            break;
        case 'x':
            board_restart();
        default:
            break;
        }
    }
}
