/*
 * A meter reader: its camera sees a digit, a network reads it. It has no server: a main loop, a serial port, a model that
 * is built in, and two slots for newer ones.
 *
 * After each start a known picture is read. A model on trial that reads it is confirmed. One that does not sends its
 * black box and starts the product again, until its tries are used up and the model before it runs.
 *
 * Letters on the serial port: r reads the next picture, s sends the black box, u and 8 hexadecimal digits announce an
 * image of so many bytes, which is then asked for, x restarts.
 */
#include <string.h>

#include <digits.h>
#include <digits_field.h>

#include "board.h"
#include "pictures.h"

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

/* The digit in a picture, and how sure the network is, in percent. */
static int32_t read_digit(const float *pixels, int32_t *percent)
{
    static int8_t image[DIGITS_INPUT_IMAGE_ELEMENTS];
    static int8_t scores[DIGITS_OUTPUT_PROBABILITIES_ELEMENTS];
    const struct digits_inputs inputs = {image};
    const struct digits_outputs outputs = {scores};
    int32_t best = 0;
    digits_quantize_image(pixels, image);
    (void)digits_run_newest(&inputs, &outputs);
    for (int32_t i = 1; i < DIGITS_OUTPUT_PROBABILITIES_ELEMENTS; i++) {
        best = (scores[i] > scores[best]) ? i : best;
    }
    *percent = ((scores[best] + 128) * 100) / 256;
    return best;
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
    const int32_t error = crt_field_update(&digits_field, &source);
    say("update ");
    say_number(error);
    say("\n");
    if (error == 0) {
        board_restart();
    }
}

static void say_model(void)
{
    const struct crt_slot *slot = crt_field_slot(&digits_field);
    if (slot == NULL) {
        say("start: built-in\n");
        return;
    }
    say("start: slot ");
    say_number(digits_field.slots->active);
    say(", version ");
    say_number((int32_t)slot->header->version);
    say((digits_field.slots->last.trial != 0u) ? ", on trial\n" : "\n");
}

static void test_itself(void)
{
    int32_t percent = 0;
    const int is_right = (read_digit(pictures[KNOWN_PICTURE], &percent) == KNOWN_DIGIT) && (percent > 50);
    say(is_right ? "self-test: right\n" : "self-test: WRONG\n");
    if ((crt_field_slot(&digits_field) != NULL) && (digits_field.slots->last.trial != 0u)) {
        if (!is_right) {
            crt_field_send(&digits_field, &port);
            board_restart();
        }
        say((crt_slots_confirm(digits_field.slots) == 0) ? "confirmed\n" : "not confirmed\n");
    }
}

int main(void)
{
    uint32_t next = 0;
    (void)crt_field_start(&digits_field, &port);
    say_model();
    test_itself();
    say("ready\n");
    for (;;) {
        int32_t percent = 0;
        int32_t digit = 0;
        switch (board_read()) {
        case 'r':
            digit = read_digit(pictures[next], &percent);
            next = (next + 1u) % PICTURES;
            say("digit ");
            say_number(digit);
            say(", ");
            say_number(percent);
            say(" %\n");
            break;
        case 's':
            crt_field_send(&digits_field, &port);
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
