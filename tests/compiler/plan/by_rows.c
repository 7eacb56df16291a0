/* Pushes rows as standard input says: a count and its rows; -1 restarts, and 1000 + n pushes n rows too many of none.
 * Prints what each call returns, and the outputs with the last row of an image. Rows are overwritten once taken. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include MODEL_HEADER

#define NAME_(a, b) a##b
#define NAME(a, b) NAME_(a, b)

int main(void)
{
    int32_t count;
    while (fread(&count, sizeof count, 1, stdin) == 1) {
        if (count == -1) {
            NAME(MODEL, _restart)();
            continue;
        }
        const size_t nbytes = (size_t)(count % 1000) * ROW_BYTES;
        uint8_t *rows = malloc(nbytes + 1);
        if (count < 1000 && fread(rows, 1, nbytes, stdin) != nbytes) {
            return 1;
        }
        const int32_t done = NAME(MODEL, _push)((const void *)rows, count % 1000);
        memset(rows, 0x55, nbytes);
        free(rows);
        printf("%d\n", (int)done);
        if (done == 1) {
            const uint8_t *bytes = (const uint8_t *)NAME(MODEL, _output_places).OUTPUT;
            for (int i = 0; i < OUTPUT_BYTES; i++) {
                printf("%d ", bytes[i]);
            }
            printf("\n");
        }
    }
    return 0;
}
