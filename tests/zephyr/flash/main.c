/* Slots on Zephyr's simulated flash: three starts, each of which exchanges the model. */
#include "flash_port.h"

#include <zephyr/device.h>
#include <zephyr/drivers/flash.h>
#include <zephyr/drivers/flash/flash_simulator.h>
#include <zephyr/sys/printk.h>

int main(void)
{
    static uint8_t work[16] __attribute__((aligned(16)));
    const struct device *device = DEVICE_DT_GET(DT_NODELABEL(slots_flash));
    size_t size;
    const struct crt_flash_zephyr zephyr = {device, (uintptr_t)flash_simulator_get_memory(device, &size)};
    struct crt_flash flash;
    if (crt_flash_of_zephyr(&flash, &zephyr) != CRT_OK) {
        printk("no flash\n");
        return 0;
    }
    for (int i = 0; i < 3; i++) {
        printk("%d\n", (int)live(&flash, zephyr.base, (uintptr_t)work, 0));
    }
    printk("done\n");
}
