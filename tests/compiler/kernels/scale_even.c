/* Prints what crt_scale_even gives for rows of x, multiplier and right from the standard input, a number per line. */
#include <stdio.h>

#include <crt/kernel.h>

int main(void)
{
    int x, multiplier, right;
    while (scanf("%d %d %d", &x, &multiplier, &right) == 3) {
        printf("%d\n", (int)crt_scale_even(x, multiplier, right));
    }
    return 0;
}
