/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__unix__) || defined(__APPLE__)
#define _DEFAULT_SOURCE
#include <crt/flash_ports.h>

#include <crt/error.h>

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int32_t crt_flash_file_erase(void *context, uintptr_t address, uint32_t size)
{
    const struct crt_flash_file *file = context;
    if ((((address - (uintptr_t)file->bytes) | size) % file->erase_size) != 0u) {
        return CRT_ERR_ARGUMENT;
    }
    (void)memset((void *)address, 0xff, size);
    return 0;
}

static int32_t crt_flash_file_write(void *context, uintptr_t address, const void *data, uint32_t size)
{
    const struct crt_flash_file *file = context;
    uint8_t *to = (uint8_t *)address;
    if ((((address - (uintptr_t)file->bytes) | size) % file->write_size) != 0u) {
        return CRT_ERR_ARGUMENT;
    }
    for (uint32_t i = 0; i < size; i++) {
        if (to[i] != 0xffu) {
            return CRT_ERR_STATE; /* bit: written since the last erase */
        }
    }
    (void)memcpy(to, data, size);
    return 0;
}

/* Map an open file, padded to its size; MAP_FAILED if that fails. */
static void *crt_flash_file_map(int descriptor, const struct crt_flash_file *file)
{
    struct stat status;
    if (fstat(descriptor, &status) != 0) {
        return MAP_FAILED;
    }
    const off_t had = status.st_size;
    if ((had != (off_t)file->size) && ((had != 0) || (ftruncate(descriptor, (off_t)file->size) != 0))) {
        return MAP_FAILED;
    }
    void *bytes = mmap(file->bytes, file->size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if ((bytes != MAP_FAILED) && (had == 0)) {
        (void)memset(bytes, 0xff, file->size);
    }
    return bytes;
}

int32_t crt_flash_of_file(struct crt_flash *flash, struct crt_flash_file *file, const char *path)
{
    const int descriptor = open(path, O_RDWR | O_CREAT, S_IRUSR | S_IWUSR);
    if (descriptor < 0) {
        return CRT_ERR_ARGUMENT;
    }
    void *bytes = crt_flash_file_map(descriptor, file);
    (void)close(descriptor);
    if (bytes == MAP_FAILED) {
        return CRT_ERR_ARGUMENT;
    }
    if ((file->bytes != NULL) && (bytes != file->bytes)) {
        (void)munmap(bytes, file->size);
        return CRT_ERR_ARGUMENT;
    }
    file->bytes = bytes;
    (void)memset(flash, 0, sizeof *flash);
    flash->erase_size = file->erase_size;
    flash->write_size = file->write_size;
    flash->context = file;
    flash->erase = crt_flash_file_erase;
    flash->write = crt_flash_file_write;
    flash->base = (uintptr_t)file->bytes;
    return CRT_OK;
}

void crt_flash_file_close(struct crt_flash_file *file)
{
    (void)munmap(file->bytes, file->size);
    file->bytes = NULL;
}

#endif

/* A translation unit has to declare something. */
typedef int crt_flash_file_unit;
