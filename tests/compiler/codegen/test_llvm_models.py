"""Whole models by LLVM: objects in the project, the same outputs as from C, bit for bit."""

import io
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

import crtgen
from crtgen import api
from crtgen.base.errors import BuildError, CrtgenError, ToolMissingError, UsageError
from crtgen.boards import find_core
from crtgen.compiler.codegen import Interface, ModelInfo, Registry, llvm
from crtgen.compiler.kernels import Target
from crtgen.lab.measure.cases import read_cases
from tests.support import model_path, nightly, require_tool, symbol_table

pytest.importorskip("llvmlite")
pytest.importorskip("ziglang")

MODELS = (
    ("kws_int8", "mps2_an386"),
    nightly("kws_int8", "mps2_an505"),
    ("kws_int8", "mps3_an547"),
    nightly("ad01_int8", "mps2_an386"),
    nightly("ic01_int8", "mps3_an547"),
    nightly("vww_int8", "mps2_an505"),
    ("hello_world_int8", "mps2_an385"),
    ("hello_world_float", "mps2_an386"),
)


M4 = Target(find_core("cortex-m4"))


def _compiled(model: str, board: str) -> api.Compiled:
    return crtgen.load(model_path(model)).compile(board)


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize(("model", "board"), MODELS)
def test_models(model: str, board: str) -> None:
    require_tool("qemu-system-arm")
    require_tool("arm-none-eabi-gcc")
    path = model_path(model)
    with _compiled(model, board).generate(target="llvm").build().run(counting=False) as session:
        verdicts = crtgen.verify(session, path, path.with_suffix(".npz"))
    assert len(verdicts) == 8
    assert [str(v.difference) for v in verdicts if v.difference] == []


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize("toolchain", ["gcc", nightly("zig")])
def test_with_cmake_alone(tmp_path: Path, toolchain: str) -> None:
    """The object links with either toolchain's code, without a warning."""
    require_tool("arm-none-eabi-gcc")
    directory = tmp_path / "p"
    _compiled("hello_world_int8", "mps2_an386").generate(target="llvm").extract(directory)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    tools = [f"-DCMAKE_TOOLCHAIN_FILE={directory / 'cmake' / toolchain}.cmake"]
    for command in (
        ["cmake", "-S", ".", "-B", "build", "-G", "Ninja", *tools],
        ["cmake", "--build", "build"],
    ):
        done = subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "enum" not in done.stdout
    assert (directory / "build" / "firmware.elf").is_file()


@pytest.mark.cc
@pytest.mark.models
def test_on_the_host() -> None:
    path = model_path("kws_int8")
    with _compiled("kws_int8", "host").generate(target="llvm").build().run() as session:
        assert not any(v.difference for v in crtgen.verify(session, path, path.with_suffix(".npz")))


@pytest.mark.qemu
@pytest.mark.models
def test_layers_report_to_the_runtime() -> None:
    require_tool("qemu-system-arm")
    compiled = _compiled("hello_world_int8", "mps2_an386")
    with compiled.generate(profile=True, target="llvm").build().run() as session:
        assert len(session.profile()) == len(compiled.modules[0].info.layers)


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize("share_arena", [True, nightly(False)])
def test_two_models(share_arena: bool) -> None:
    require_tool("qemu-system-arm")
    names = ("hello_world_int8", "kws_int8")
    compiled = crtgen.compile([crtgen.load(model_path(n)) for n in names])
    image = compiled.generate(target="llvm", share_arena=share_arena).build()
    with image.run(counting=False) as session:
        for name in (*names, *names):
            cases = read_cases(model_path(name).with_suffix(".npz"), *_interfaces(session.model(name)))
            outputs = session.infer(*cases[0].inputs, model=name)
            for found, expected in zip(outputs, cases[0].outputs, strict=True):
                np.testing.assert_array_equal(found, expected)


def _interfaces(info: ModelInfo) -> tuple[tuple[Interface, ...], tuple[Interface, ...]]:
    return info.inputs, info.outputs


@pytest.mark.qemu
@pytest.mark.models
def test_parts_are_placed_as_those_of_c() -> None:
    require_tool("qemu-system-arm")
    path = model_path("kws_int8")
    place = {"kernels": "itcm", "weights": "itcm", "arena": "dtcm"}
    image = crtgen.load(path).compile("mps3_an547", place=place).generate(target="llvm").build()
    with image.path.open("rb") as file:
        places = {s.name: s["st_value"] for s in symbol_table(ELFFile(file)).iter_symbols()}
    assert places["kws_int8_run_packed"] < 0x80000
    assert all(a < 0x80000 for n, a in places.items() if n.startswith("__tvm_param__"))
    assert 0x20000000 <= places["kws_int8_arena"] < 0x20080000
    with image.run(counting=False) as session:
        assert not any(v.difference for v in crtgen.verify(session, path, path.with_suffix(".npz")))


@pytest.mark.models
def test_the_project_has_an_object_and_no_c_of_the_model() -> None:
    project = _compiled("kws_int8", "mps2_an386").generate(target="llvm").project
    model = [p for p in project.files if p.startswith("model/")]
    objects = [f"model/kws_int8_{kind}.o" for kind in ("asm_kernels", "kernels")]
    assert sorted(model) == ["model/kws_int8.h", *objects]
    elf = ELFFile(io.BytesIO(project.files["model/kws_int8_kernels.o"]))
    assert elf["e_machine"] == "EM_ARM"
    names = {s.name for s in elf.iter_sections()}
    assert ".text.kws_int8_run_packed" in names
    assert any(n.startswith(".rodata.__tvm_param__") for n in names)
    assert sum(s["sh_size"] for s in elf.iter_sections() if s.name.startswith(".data")) == 0


@pytest.mark.models
@pytest.mark.parametrize("board", ["mps2_an385", "mps2_an386", "mps3_an547"])
def test_llvmlite_emits_all_but_the_assembly(board: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clang gives bitcode of every file of C."""
    from crtgen.compiler.codegen import llvm_compile

    made: list[tuple[str, bool]] = []
    clang = llvm_compile._clang

    def watched(directory: Path, path: str, request: Any, how: Sequence[str]) -> bytes:
        made.append((path, "-emit-llvm" in how))
        return clang(directory, path, request, how)

    monkeypatch.setattr(llvm_compile, "_clang", watched)
    files = _compiled("kws_int8", board).generate(target="llvm").project.files
    assembled = [path for path, bitcode in made if not bitcode]
    assert assembled == ["kws_int8_asm_kernels.S"]
    assert len([path for path in files if "_asm_kernels" in path]) == 1


@pytest.mark.models
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547", "host"])
def test_deterministic(board: str) -> None:
    one, two = (_compiled("hello_world_int8", board).generate(target="llvm").project.digest for _ in range(2))
    assert one == two


@pytest.mark.models
def test_words_may_be_read_from_anywhere() -> None:
    """Clang denies freestanding code for Cortex-M4 unaligned access unless it is told."""
    from crtgen.compiler.codegen.llvm_compile import LlvmRequest, compile_objects

    source = "#include <string.h>\nint f(const char *x);\n"
    source += "int f(const char *x) { int y; memcpy(&y, x, 4); return y; }\n"
    registry = Registry((), (), ())
    for name, word_load in (("cortex-m4", True), ("cortex-m55", True), ("cortex-m0plus", False)):
        data, _ = compile_objects(LlvmRequest({"f.c": source}, registry, Target(find_core(name))))
        section = ELFFile(io.BytesIO(data)).get_section_by_name(".text.f")
        assert section is not None
        code = section.data()
        assert (code[:4] == bytes.fromhex("00687047")) is word_load, (name, code.hex())  # ldr r0, [r0]; bx lr


def test_sections() -> None:
    """One for each function and constant, unless the source names another; none for what is only declared."""
    from crtgen.compiler.codegen.llvm_compile import LlvmRequest, compile_objects

    source = """
        extern const int far;
        extern const int table[2], own[2];
        const int table[2] = {1, 2};
        const int own[2] __attribute__((section(".mine"))) = {3, 4};
        int f(void);
        __attribute__((section(".fast"))) int f(void) { return far; }
        int g(void);
        int g(void) { return table[0]; }
    """
    data, _ = compile_objects(LlvmRequest({"f.c": source}, Registry((), (), ()), M4))
    elf = ELFFile(io.BytesIO(data))
    places = {
        s.name: elf.get_section(s["st_shndx"]).name
        for s in symbol_table(elf).iter_symbols()
        if isinstance(s["st_shndx"], int)
    }
    assert {n: places[n] for n in ("table", "own", "f", "g")} == {
        "table": ".rodata.table",
        "own": ".mine",
        "f": ".fast",
        "g": ".text.g",
    }
    assert "far" not in places


def test_a_flaw_of_the_c_is_told() -> None:
    from crtgen.compiler.codegen.llvm_compile import LlvmRequest, compile_objects

    request = LlvmRequest({"f.c": "int f(void) { return x; }\n"}, Registry((), (), ()), M4)
    with pytest.raises(BuildError, match="undeclared identifier 'x'"):
        compile_objects(request)


def test_a_symbol_twice_is_refused() -> None:
    from crtgen.compiler.codegen.llvm_compile import LlvmRequest, compile_objects

    files = {
        "a.c": "int f(void);\nint f(void) { return 1; }\n",
        "b.c": "int f(void);\nint f(void) { return 2; }\n",
    }
    with pytest.raises(BuildError, match="symbol multiply defined"):
        compile_objects(LlvmRequest(files, Registry((), (), ()), M4))


def test_versions_of_llvm_have_to_be_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    from crtgen.compiler.codegen import llvm_compile

    monkeypatch.setattr(llvm_compile, "_run", lambda *_: "clang version 19.1.0")
    llvm_compile.check_versions.cache_clear()
    with pytest.raises(ToolMissingError, match=r"ziglang has LLVM 19, llvmlite has LLVM \d+"):
        llvm_compile.check_versions()
    llvm_compile.check_versions.cache_clear()


@pytest.mark.models
def test_unknown_target() -> None:
    with pytest.raises(UsageError) as caught:
        _compiled("hello_world_int8", "mps2_an385").generate(target="cuda")
    assert "c, llvm" in caught.value.hint


@pytest.mark.models
def test_without_llvmlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm, "find_spec", lambda name: None)
    with pytest.raises(CrtgenError, match="is not installed") as caught:
        _compiled("hello_world_int8", "mps2_an386").generate(target="llvm")
    assert re.search(r"crtgen\[llvm\]", caught.value.hint)
