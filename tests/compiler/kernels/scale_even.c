/* Prints what crt_scale_even and crt_scale_odd give for rows of x, multiplier and right from the standard input. */
#include <stdio.h>

#include <crt/kernel.h>

int main(void)
{
    int x, multiplier, right;
    while (scanf("%d %d %d", &x, &multiplier, &right) == 3) {
        printf("%d %d\n", (int)crt_scale_even(x, multiplier, right), (int)crt_scale_odd(x, multiplier, right));
    }
    return 0;
}
