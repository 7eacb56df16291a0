/* The memory of Zephyr's simulator, at an address that slots may have: it would be odd. */
#include <stdint.h>
static uint8_t mock_flash[0x4000] __attribute__((aligned(16), unused));
