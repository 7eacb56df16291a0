/* A meter reader: its camera sees a digit, a network reads it. */
#include <digits.h>
#include <digits_field.h>

#include "pictures.h"
#include "product.h"

const struct crt_field *const product_field = &digits_field;
const uint32_t product_samples = PICTURES;
const int32_t product_known = KNOWN_DIGIT;

struct answer product_read(uint32_t sample)
{
    static int8_t image[DIGITS_INPUT_IMAGE_ELEMENTS];
    static int8_t scores[DIGITS_OUTPUT_PROBABILITIES_ELEMENTS];
    const struct digits_inputs inputs = {image};
    const struct digits_outputs outputs = {scores};
    digits_quantize_image(pictures[sample], image);
    (void)digits_run_newest(&inputs, &outputs);
    return best_of(scores, DIGITS_OUTPUT_PROBABILITIES_ELEMENTS);
}
