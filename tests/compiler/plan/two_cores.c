/* The scores of digits for each picture of pictures.h; a thread is the second core. */
#include <pthread.h>
#include <stdio.h>

#include <crt/cores.h>

#include "digits.h"

static const int8_t pictures[][64] = {
#include "pictures.h"
};

static void *second_core(void *unused)
{
    crt_worker();
    return unused;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, second_core, NULL);
    for (unsigned i = 0; i < sizeof pictures / sizeof pictures[0]; i++) {
        int8_t scores[10];
        const struct digits_inputs inputs = {(void *)pictures[i]};
        const struct digits_outputs outputs = {scores};
        digits_run(&inputs, &outputs);
        for (int n = 0; n < 10; n++) {
            printf("%d ", scores[n]);
        }
    }
    return 0;
}
