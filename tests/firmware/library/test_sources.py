"""Modules made of files: their functions, what they need, and that what TVM wrote runs on the host."""

import pytest

from crtgen.base.errors import ModelError
from crtgen.firmware.library.mlf import CodeFiles, read_archive
from crtgen.firmware.library.sources import check_undefined, code_modules, source_module
from tests.support import models_dir

SOURCE = """
TVM_DLL int32_t declared(TVMValue* args, int* type_code, int num_args, TVMValue* v, int* t, void* r);
TVM_DLL int32_t fused(void* args, int32_t* arg_type_ids, int32_t n, void* v, int32_t* t, void* r) {
  return 0;
}
int32_t net_run(TVMValue* args, int* type_code, int num_args, TVMValue* v, int* t, void* r) {
  return fused(args, type_code, num_args, v, t, r);
}
int wrapper_(DLTensor* arg0,
  DLTensor* out0) {
  return 0;
}
TVM_DLL int32_t __tvm_main__(void* args, int* arg_type_ids, int n, void* v, int* t, void* r) {
  return fused(args, arg_type_ids, n, v, t, r);
}
"""
REGISTRY = "const TVMModule* TVMSystemLibEntryPoint(void) {\n    return &_tvm_system_lib;\n}\n"


def test_packed_functions_of_a_source() -> None:
    assert source_module("lib0.c", "c", SOURCE).functions == ("fused", "net_run")


def test_names_that_every_model_defines_are_renamed() -> None:
    module = source_module("lib0.c", "c", SOURCE + REGISTRY, prefix="kws")
    assert module.defines == (
        ("TVMSystemLibEntryPoint", "kws_TVMSystemLibEntryPoint"),
        ("__tvm_main__", "kws_tvm_main"),
    )


def test_a_source_with_nothing_but_a_registry_is_left_out() -> None:
    code = CodeFiles({"net_lib0.c": REGISTRY, "net_lib1.c": SOURCE, "net_lib2.c": "const int weights[1];"})
    assert [m.name for m in code_modules(code, "net", "x")] == ["net_lib1.c", "net_lib2.c"]


@pytest.mark.models
def test_objects_that_need_what_is_not_there() -> None:
    folder = models_dir().parent / "mlf"
    for name, missing in (("kws_llvmthumbcpu_graph_link", ""), ("kws_llvmthumb_graph_link", "gemm_1x1x1")):
        (model,) = read_archive((folder / f"{name}.tar").read_bytes(), name).models
        modules = code_modules(model.code, model.name, name)
        assert [m.name for m in modules] == ["kws_lib1.o"]
        if not missing:
            check_undefined(modules, name)
            continue
        symbols = "gemm_1x1x1_reset_PRQUCUNJ, gemm_1x1x1_update_PRQUCUNJ"
        with pytest.raises(ModelError, match=rf"nothing defines: {symbols}(\n|\Z)"):
            check_undefined(modules, name)
