/* Recognises a digit: an application that calls a library which crtgen generated. */
#include <stdio.h>

#include "digits.h"

int main(void)
{
    /* A one: a bright column in the middle. */
    static float pixels[DIGITS_INPUT_IMAGE_ELEMENTS];
    static float scores[DIGITS_OUTPUT_PROBABILITIES_ELEMENTS];
    for (int row = 0; row < 8; row++) {
        pixels[row * 8 + 3] = 15.0f;
        pixels[row * 8 + 4] = 15.0f;
    }
    digits_quantize_image(pixels, digits_input_places.image);
    const struct digits_inputs inputs = {digits_input_places.image};
    (void)digits_run(&inputs, &digits_output_places);
    digits_dequantize_probabilities(digits_output_places.probabilities, scores);
    int best = 0;
    for (int i = 1; i < DIGITS_OUTPUT_PROBABILITIES_ELEMENTS; i++) {
        best = scores[i] > scores[best] ? i : best;
    }
    printf("it is a %d, %.2f\n", best, (double)scores[best]);
    return 0;
}
