/* SPDX-License-Identifier: Apache-2.0 */
#include <crt/error.h>
#include <crt/registry.h>

#include <string.h>

uint32_t crt_names_count(const char *names)
{
    return (uint32_t)((uint8_t)names[0] | (uint8_t)names[1] << 8);
}

int32_t crt_names_find(const char *names, const char *name)
{
    const uint32_t count = crt_names_count(names);
    const char *at = names + 2;
    for (uint32_t i = 0; (i < count) && (*at != '\0'); i++) {
        if (strcmp(at, name) == 0) {
            return (int32_t)i;
        }
        at += strlen(at) + 1;
    }
    return CRT_ERR_NAME;
}

const char *crt_names_at(const char *names, uint32_t index)
{
    const uint32_t count = crt_names_count(names);
    const char *at = names + 2;
    for (uint32_t i = 0; (i < count) && (*at != '\0'); i++) {
        if (i == index) {
            return at;
        }
        at += strlen(at) + 1;
    }
    return NULL;
}

TVMBackendPackedCFunc crt_registry_at(const TVMModule *module, uint32_t index)
{
    const TVMFuncRegistry *registry = module->registry;
    return index < crt_names_count(registry->names) ? registry->funcs[index] : NULL;
}

const uint16_t *crt_signature_at(const struct crt_signatures *signatures, uint32_t index)
{
    const uint16_t *at = signatures->calls;
    for (; index > 0; index--) {
        at += (*at >= CRT_SIGNATURE_ANY) ? 1 : (1 + *at);
    }
    return at;
}
