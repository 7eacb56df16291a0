"""What TVM wrote, as models of an image: it builds, runs on the host, and gives the outputs beside it."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crtgen.base.errors import ModelError, UnsupportedError
from crtgen.base.resources import runtime_dir
from crtgen.compiler.codegen import metadata_files
from crtgen.firmware.library.archive import read_tar, write_tar
from crtgen.firmware.library.exported import read_exported, static_modules
from crtgen.firmware.library.graph_executor import graph_module
from crtgen.firmware.library.graph_json import read_graph_json
from crtgen.firmware.library.imported import Linkable, backend_file, import_model
from crtgen.firmware.library.mlf import MlfModel, read_archive
from crtgen.firmware.library.module import ObjectFile
from crtgen.firmware.library.params import read_params
from crtgen.firmware.library.sources import context_source
from crtgen.network.ir import Array
from tests.support import compile_each, models_dir, require_tool

HARNESS = """
#include <stdio.h>
#include <crt/model.h>
#include <tvm/runtime/crt/module.h>
extern const struct crt_model MODEL;
int main(void) {
    for (int i = 0; i < MODEL.num_inputs; i++)
        if (fread(MODEL.inputs[i].data, MODEL.inputs[i].nbytes, 1, stdin) != 1) return 2;
    if (MODEL.run() != 0) return 3;
    for (int i = 0; i < MODEL.num_outputs; i++)
        fwrite(MODEL.outputs[i].data, MODEL.outputs[i].nbytes, 1, stdout);
    return 0;
}
"""


def run_on_host(directory: Path, imported: Linkable, stdin: bytes) -> bytes:
    """Compile an imported model with metadata and runtime, give it its inputs, and return its outputs."""
    include, src = runtime_dir() / "include", runtime_dir() / "src"
    files = {**imported.module.files, "main.c": HARNESS, "backend.c": backend_file(imported.workspace or 0)}
    files |= metadata_files([imported.module])
    for name, text in files.items():
        (directory / name).write_text(text)
    for name, data in imported.objects.items():
        (directory / name).write_bytes(data)
    names = [name for name in (*files, *imported.objects) if not name.endswith(".h")]
    sources = [directory / name for name in names if name.endswith(".c")]
    sources += [src / f"crt_{part}.c" for part in ("backend", "registry", "pool")]
    flags = ["-O1", "-w", f"-I{include}", f"-I{directory}", f"-DMODEL={imported.module.info.name}_model"]
    link = [str(directory / name) for name in names if not name.endswith(".c")]
    link += [f"-Wl,-rpath,{directory}", "-lm"]
    program = compile_each([require_tool("gcc"), *flags], sources, directory / "program", link)
    return subprocess.run([program], input=stdin, check=True, timeout=120, capture_output=True).stdout


def case(path: Path, prefix: str = "") -> tuple[list[Array], list[Array]]:
    cases = np.load(path)
    keys = [
        sorted(k for k in cases.files if k.startswith(f"{prefix}case0_{kind}"))
        for kind in ("input", "output")
    ]
    inputs, outputs = ([cases[k] for k in names] for names in keys)
    return inputs, outputs


def archived(name: str, index: int = 0) -> MlfModel:
    return read_archive((models_dir().parent / "mlf" / f"{name}.tar").read_bytes(), name).models[index]


@pytest.mark.cc
@pytest.mark.models
@pytest.mark.parametrize(
    ("archive", "index", "prefix"),
    [
        ("synth_add_c_graph", 0, ""),
        ("synth_add_c_graph_link", 0, ""),
        ("synth_add_c_aot_packed", 0, ""),
        ("synth_add_c_aot_unpacked", 0, ""),
        ("synth_multiio_c_graph", 0, ""),
        ("synth_multiio_c_aot_unpacked", 0, ""),
        ("synth_byoc_c_graph", 0, ""),
        ("synth_byoc_c_aot_unpacked", 0, ""),
        ("kws_c_graph_link", 0, ""),
        ("kws_c_graph_nolink", 0, ""),
        ("kws_c_aot_packed_syslib", 0, ""),
        ("kws_c_aot_unpacked_usmp", 0, ""),
        ("ad01_c_graph_link", 0, ""),
        ("ad01_c_aot_unpacked", 0, ""),
        ("multi_kws_ad01_c_graph", 0, "ad01."),
        ("multi_kws_ad01_c_graph", 1, "kws."),
        ("multi_kws_ad01_c_aot_unpacked", 0, "ad01."),
        ("multi_kws_ad01_c_aot_unpacked", 1, "kws."),
        ("multi_kwsaot_ad01graph_c", 0, "ad01."),
        ("multi_kwsaot_ad01graph_c", 1, "kws."),
    ],
)
def test_archives_run_on_the_host(tmp_path: Path, archive: str, index: int, prefix: str) -> None:
    imported = import_model(archived(archive, index), archive)
    inputs, outputs = case(models_dir().parent / "mlf" / f"{archive}.npz", prefix)
    stdout = run_on_host(tmp_path, imported, b"".join(array.tobytes() for array in inputs))
    assert stdout == b"".join(array.tobytes() for array in outputs)
    info = imported.module.info
    interfaces = [(i.shape, i.dtype.value) for i in (*info.inputs, *info.outputs)]
    assert interfaces == [(array.shape, array.dtype.name) for array in (*inputs, *outputs)]


@pytest.mark.models
def test_an_archive_that_lacks_an_object_is_refused() -> None:
    with pytest.raises(ModelError, match="gemm_1x1x1_reset_PRQUCUNJ"):
        import_model(archived("kws_llvmthumb_graph_link"), "kws")


@pytest.mark.models
def test_a_heap_becomes_workspace() -> None:
    """Two subgraphs with three buffers of 400 bytes each."""
    imported = import_model(archived("synth_byoc_c_graph"), "byoc")
    assert imported.workspace == 6 * 400
    assert "#define malloc crt_imported_malloc\n" in imported.module.files["byoc_lib2.c"]


@pytest.mark.models
def test_an_archive_of_objects() -> None:
    imported = import_model(archived("kws_llvmthumbcpu_graph_link"), "kws")
    assert list(imported.objects) == ["kws_lib1.o"]
    assert sorted(imported.module.files) == ["kws_graph.c"]
    assert imported.workspace == 56192 + 512


@pytest.mark.models
def test_the_interface_of_a_model_with_a_c_interface() -> None:
    info = import_model(archived("synth_multiio_c_aot_unpacked"), "x").module.info
    assert [(i.name, i.shape, i.dtype.value) for i in info.inputs] == [
        ("a", (1, 4), "int8"),
        ("b", (1, 4), "float32"),
    ]
    assert [(o.name, o.shape, o.dtype.value) for o in info.outputs] == [
        ("output0", (1, 4), "float32"),
        ("output1", (1, 4), "int8"),
    ]


@pytest.mark.models
def test_an_interface_that_asks_for_devices_is_refused() -> None:
    model = archived("synth_add_c_aot_unpacked")
    header = model.headers["tvmgen_add.h"] + "struct tvmgen_add_devices {\n  void* npu;\n};\n"
    changed = MlfModel(model.metadata, model.code, {"tvmgen_add.h": header}, relay=model.relay)
    with pytest.raises(UnsupportedError, match="asks for devices"):
        import_model(changed, "x")


@pytest.mark.cc
@pytest.mark.models
@pytest.mark.parametrize("name", ["plain_host.tar", "plain_host.so"])
def test_exported_libraries_run_on_the_host(tmp_path: Path, name: str) -> None:
    folder = models_dir().parent / "exported"
    library = read_exported((folder / name).read_bytes(), name)
    assert library.factory is not None
    assert library.factory.graph_json is not None
    graph = read_graph_json(library.factory.graph_json)
    params = read_params((folder / "plain_host.params").read_bytes())
    module = graph_module("plain", graph, params, library.functions)
    modules = static_modules(library, "X86_64", hosted=True)
    objects = {m.name: m.data for m in modules if isinstance(m, ObjectFile)}
    module = replace(module, files={**module.files, "plain_context.c": context_source(modules, name)})
    inputs, (expected,) = case(folder / "plain.npz")
    stdout = run_on_host(tmp_path, Linkable(module, objects, 0), inputs[0].tobytes())
    assert np.frombuffer(stdout, np.float32).tolist() == expected.ravel().tolist()


def renamed(archive: str, old: str, new: str) -> MlfModel:
    """A model as TVM would have written it under another name: in its files, paths and symbols."""
    files = read_tar((models_dir().parent / "mlf" / f"{archive}.tar").read_bytes(), archive)

    def rename(text: str) -> str:
        text = re.sub(rf"\btvmgen_{old}(?=\b|_)", f"tvmgen_{new}", text)
        text = re.sub(rf'"{old}"', f'"{new}"', text)
        return re.sub(rf"(/){old}(?=[._])", rf"\1{new}", text)

    changed = {rename(path): rename(data.decode("latin-1")).encode("latin-1") for path, data in files.items()}
    return read_archive(write_tar(changed, 0), archive).models[0]


@pytest.mark.cc
@pytest.mark.models
@pytest.mark.parametrize("kind", ["aot_packed", "aot_unpacked", "graph_link"])
@pytest.mark.parametrize("name", ["default", "my__net", "a" * 63])
def test_a_module_may_have_any_name_that_tvm_gives(tmp_path: Path, kind: str, name: str) -> None:
    """``default`` is what TVM calls a module that nobody named."""
    archive = f"synth_add_c_{kind}"
    imported = import_model(renamed(archive, "add", name), archive)
    inputs, outputs = case(models_dir().parent / "mlf" / f"{archive}.npz")
    stdout = run_on_host(tmp_path, imported, b"".join(array.tobytes() for array in inputs))
    assert stdout == b"".join(array.tobytes() for array in outputs)
    assert imported.module.info.name == name


@pytest.mark.models
def test_the_shape_of_an_input_whose_name_is_no_identifier() -> None:
    """Every model that TensorFlow 2 exports has inputs like ``serving_default_x:0``."""
    model = archived("synth_add_c_aot_unpacked")
    main = model.metadata.main[0]
    name = "serving_default_x:0"
    metadata = replace(model.metadata, main=(replace(main, inputs=(replace(main.inputs[0], name=name),)),))
    relay = model.relay.replace("%x", f"%{name}")
    headers = {k: re.sub(r"\bx;", "serving_default_x_0;", text) for k, text in model.headers.items()}
    imported = import_model(replace(model, metadata=metadata, relay=relay, headers=headers), "add")
    (interface,) = imported.module.info.inputs
    assert (interface.name, interface.shape) == (name, (2, 3))


@pytest.mark.models
def test_headers_that_come_with_a_compiler_are_there() -> None:
    """``arm_acle.h`` is in the code of TVM's schedules for Arm."""
    model = archived("synth_add_c_graph")
    name, text = next(iter(model.code.sources.items()))
    code = replace(model.code, sources={**model.code.sources, name: f"#include <arm_acle.h>\n{text}"})
    assert import_model(replace(model, code=code), "add").module.libraries == ()
