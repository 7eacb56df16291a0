"""Modules made of files: their functions, what they need, and that what TVM wrote runs on the host."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from crtgen.errors import ModelError
from crtgen.ir import Array
from crtgen.library.exported import read_exported, static_modules
from crtgen.library.graph_executor import graph_tables, render_graph
from crtgen.library.graph_json import read_graph_json
from crtgen.library.mlf import Code, read_archive
from crtgen.library.module import CSource, Module, ObjectFile
from crtgen.library.params import NDArray, read_params
from crtgen.library.sources import check_undefined, code_modules, context_source, source_module
from crtgen.resources import runtime_dir
from tests.support import models_dir, require_tool

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
    code = Code({"net_lib0.c": REGISTRY, "net_lib1.c": SOURCE, "net_lib2.c": "const int weights[1];"})
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
        with pytest.raises(ModelError, match=f"nothing defines: {symbols}$"):
            check_undefined(modules, name)


HARNESS = """
#include <stdio.h>
#include <string.h>
#include <crt/backend.h>
#include <crt/model.h>
struct crt_backend crt_backend;
static uint64_t workspace[65536];
extern const struct crt_model net_model;
static const TVMFuncRegistry registry = {"\\0\\0", NULL};
static const TVMModule module = {&registry};
const TVMModule *TVMSystemLibEntryPoint(void) { return &module; }
int main(void) {
    crt_pool_init(&crt_backend.workspace, workspace, sizeof workspace);
    for (int i = 0; i < net_model.num_inputs; i++)
        if (fread(net_model.inputs[i].data, net_model.inputs[i].nbytes, 1, stdin) != 1) return 2;
    if (net_model.run() != 0) return 3;
    for (int i = 0; i < net_model.num_outputs; i++)
        fwrite(net_model.outputs[i].data, net_model.outputs[i].nbytes, 1, stdout);
    return 0;
}
"""


def run_on_host(
    directory: Path, graph: str, params: dict[str, NDArray], modules: tuple[Module, ...], stdin: bytes
) -> bytes:
    functions = [f for m in modules for f in m.get_func_names()]
    (directory / "main.c").write_text(HARNESS)
    (directory / "graph.c").write_text(
        render_graph(graph_tables("net", read_graph_json(graph), params, functions))
    )
    include, src = runtime_dir() / "include", runtime_dir() / "src"
    gcc = require_tool("gcc")
    objects = []
    for module in modules:
        path = directory / module.name
        if isinstance(module, CSource):
            path.write_text(module.code)
            defines = [f"-D{name}={value}" for name, value in module.defines]
            command = [gcc, "-O1", "-w", f"-I{include}", *defines, "-c", str(path), "-o", f"{path}.o"]
            subprocess.run(command, check=True, timeout=120)
            objects.append(f"{path}.o")
        elif isinstance(module, ObjectFile):
            path.write_bytes(module.data)
            objects.append(str(path))
    (directory / "context.c").write_text(context_source(modules, "x"))
    runtime = [str(src / f"crt_{part}.c") for part in ("backend", "registry", "pool")]
    program = str(directory / "program")
    sources = [str(directory / "main.c"), str(directory / "graph.c"), str(directory / "context.c"), *runtime]
    flags = [f"-I{include}", f"-Wl,-rpath,{directory}", "-lm", "-o", program]
    subprocess.run([gcc, *sources, *objects, *flags], check=True, timeout=120)
    return subprocess.run([program], input=stdin, check=True, timeout=60, capture_output=True).stdout


def stdin_and_expected(path: Path, prefix: str) -> tuple[bytes, list[Array]]:
    cases = np.load(path)
    inputs = sorted(k for k in cases.files if k.startswith(f"{prefix}case0_input"))
    outputs = sorted(k for k in cases.files if k.startswith(f"{prefix}case0_output"))
    return b"".join(cases[k].tobytes() for k in inputs), [cases[k] for k in outputs]


@pytest.mark.cc
@pytest.mark.models
@pytest.mark.parametrize(
    ("archive", "index", "prefix"),
    [
        ("synth_add_c_graph", 0, ""),
        ("synth_add_c_graph_link", 0, ""),
        ("synth_multiio_c_graph", 0, ""),
        ("synth_byoc_c_graph", 0, ""),
        ("kws_c_graph_link", 0, ""),
        ("kws_c_graph_nolink", 0, ""),
        ("ad01_c_graph_link", 0, ""),
        ("multi_kws_ad01_c_graph", 0, "ad01."),
        ("multi_kws_ad01_c_graph", 1, "kws."),
    ],
)
def test_graphs_of_tvm_run_on_the_host(tmp_path: Path, archive: str, index: int, prefix: str) -> None:
    path = models_dir().parent / "mlf" / f"{archive}.tar"
    model = read_archive(path.read_bytes(), archive).models[index]
    modules = code_modules(model.code, model.name, archive)
    stdin, expected = stdin_and_expected(path.with_suffix(".npz"), prefix)
    output = run_on_host(tmp_path, model.graph_json, dict(model.params), modules, stdin)
    assert output == b"".join(array.tobytes() for array in expected)


@pytest.mark.cc
@pytest.mark.models
@pytest.mark.parametrize("name", ["plain_host.tar", "plain_host.so"])
def test_exported_libraries_run_on_the_host(tmp_path: Path, name: str) -> None:
    folder = models_dir().parent / "exported"
    library = read_exported((folder / name).read_bytes(), name)
    params = (folder / "plain_host.params").read_bytes()
    assert library.factory is not None
    assert library.factory.graph_json is not None
    stdin, (expected,) = stdin_and_expected(folder / "plain.npz", "")
    modules = static_modules(library, "X86_64", hosted=True)
    output = run_on_host(tmp_path, library.factory.graph_json, read_params(params), modules, stdin)
    assert np.frombuffer(output, np.float32).tolist() == expected.ravel().tolist()
