/* Looks every wanted name up in the image's registry and calls what it finds. */
#include <stdio.h>
#include <string.h>

#include <crt/registry.h>

extern const char *const wanted[];
extern const int count;

int main(void)
{
    const TVMModule *module = TVMSystemLibEntryPoint();
    int called = 0;
    for (int i = 0; i < count; i++) {
        int32_t index = crt_names_find(module->registry->names, wanted[i]);
        TVMValue ret = {.v_int64 = -1};
        int code = 0;
        if (index != i || crt_registry_at(module, (uint32_t)index)(NULL, NULL, 0, &ret, &code, NULL) != 0) {
            return 1;
        }
        called += ret.v_int64 == i;
    }
    if (crt_names_find(module->registry->names, "absent") >= 0) {
        return 2;
    }
    printf("%d found and called\n", called);
    return called != count;
}
