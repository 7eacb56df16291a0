"""A library in somebody's CMake project: as a directory of it and installed, for the host and Cortex-M."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import crtgen
from crtgen.boards import board_of_core
from tests.support import ROOT, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"

SUBDIRECTORY = "add_subdirectory(digits)\n"
PACKAGE = "find_package(digits REQUIRED)\n"

# A toolchain file as people have it: flags for everything, nothing of crtgen's.
CROSS = """
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR arm)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_ASM_COMPILER arm-none-eabi-gcc)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_C_FLAGS_INIT "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16")
set(CMAKE_EXE_LINKER_FLAGS_INIT "--specs=rdimon.specs -Wl,--gc-sections")
"""

LISTS = """
cmake_minimum_required(VERSION 3.20)
project(app LANGUAGES C ASM)
{use}add_executable(app main.c)
target_link_libraries(app PRIVATE crtgen::digits)
"""

MAIN = """
#include <digits.h>
#include <stdio.h>

static const int8_t image[] = {{ {image} }};

int main(void)
{{
    int8_t scores[DIGITS_OUTPUT_PROBABILITIES_ELEMENTS];
    const struct digits_inputs inputs = {{.image = image}};
    const struct digits_outputs outputs = {{.probabilities = scores}};
    if (digits_run(&inputs, &outputs) != 0) {{
        return 1;
    }}
    for (unsigned i = 0; i < sizeof scores; i++) {{
        printf("%d ", scores[i]);
    }}
    return 0;
}}
"""


def cmake(*arguments: object) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    result = subprocess.run(
        ["cmake", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PATH": path},
        check=False,
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"


def library(board: str, directory: Path, cores: int = 1) -> Path:
    crtgen.load(DIGITS).compile(board, cores=cores).generate("library").extract(directory)
    return directory


def app(directory: Path, use: str, *options: str) -> Path:
    """The program of somebody who knows nothing of crtgen's build."""
    directory.mkdir(exist_ok=True)
    image = np.load(DIGITS.with_suffix(".npz"))["case0_input0"]
    (directory / "main.c").write_text(MAIN.format(image=", ".join(map(str, image.ravel()))))
    (directory / "CMakeLists.txt").write_text(LISTS.format(use=use))
    cmake("-S", directory, "-B", directory / "build", "-G", "Ninja", *options)
    cmake("--build", directory / "build")
    return directory / "build" / "app"


def scores(*command: str) -> list[int]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return [int(word) for word in done.stdout.split()]


def expected() -> list[int]:
    values: list[int] = np.load(DIGITS.with_suffix(".npz"))["case0_output0"].ravel().tolist()
    return values


@pytest.mark.cc
@pytest.mark.parametrize("cores", [1, 2])
def test_a_directory_of_somebodys_project(tmp_path: Path, cores: int) -> None:
    require_tool("gcc")
    library("host", tmp_path / "app" / "digits", cores)
    assert scores(str(app(tmp_path / "app", SUBDIRECTORY))) == expected()


@pytest.mark.cc
def test_an_installed_package_and_the_example(tmp_path: Path) -> None:
    require_tool("gcc")
    source, build = library("host", tmp_path / "digits"), tmp_path / "build"
    strict = "-DCMAKE_C_FLAGS=-Werror -Wconversion"
    cmake("-S", source, "-B", build, "-G", "Ninja", "-DCRT_EXAMPLE=ON", strict)
    cmake("--build", build)
    subprocess.run([build / "example"], check=True, timeout=120)
    cmake("--install", build, "--prefix", tmp_path / "place")
    headers = tmp_path / "place" / "include" / "digits"
    assert {file.relative_to(headers).as_posix() for file in headers.rglob("*.*")} == {
        *("digits.h", "crt/drift.h", "crt/kernel.h", "crt/record.h", "crt/run.h", "crt/version.h"),
    }
    built = app(tmp_path / "app", PACKAGE, f"-DCMAKE_PREFIX_PATH={tmp_path / 'place'}")
    assert scores(str(built)) == expected()


@pytest.mark.qemu
def test_cortex_m_with_a_toolchain_file_of_ones_own(tmp_path: Path) -> None:
    require_tool("arm-none-eabi-gcc")
    library("mps2_an386", tmp_path / "app" / "digits")
    (tmp_path / "cross.cmake").write_text(CROSS)
    built = app(tmp_path / "app", SUBDIRECTORY, f"-DCMAKE_TOOLCHAIN_FILE={tmp_path / 'cross.cmake'}")
    header = subprocess.run(
        ["arm-none-eabi-readelf", "-hA", built], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    assert "hard-float ABI" in header


def test_the_readme_says_how() -> None:
    text = crtgen.load(DIGITS).compile("mps2_an386").generate("library").project.files["README.md"].decode()
    words = ("add_subdirectory", "crtgen::digits", "find_package", "#include", "-mfloat-abi=hard", "Threads")
    assert not [word for word in words if word not in text]
    for kind in ("library", "server"):
        files = crtgen.load(DIGITS).compile("host").generate(kind).project.files
        assert b"Apache License" in files["runtime/LICENSE"]
        ours = [
            text
            for path, text in files.items()
            if path.startswith("runtime/") and path.endswith((".c", ".h"))
        ]
        assert all(text.startswith(b"/* SPDX-License-Identifier: Apache-2.0 */") for text in ours)
        assert b"is yours" in files["README.md"]


PLAIN = {
    *("digits.h", "digits.c", "digits_internal.h", "digits_weights.c", "digits_kernels.c"),
    *("crt/drift.h", "crt/kernel.h", "crt/record.h", "crt/run.h", "crt/version.h"),
}
"""The C of a library for the host."""

RESERVED = re.compile(
    "__(ARM_.*|GNUC__|FAST_MATH__|FP_FAST_FMAF|ASSOCIATIVE_MATH__|RECIPROCAL_MATH__|STRICT_ANSI__|clang__|"
    "builtin_.*|attribute__|has_include|cplusplus|OPTIMIZE_SIZE__|asm__|sel|smlad|ssub8|thumb2__|usada8)"
)
"""What is the compiler's own, of the names with two underscores that MISRA's rule 21.1 reserves for it."""


def sources(board: str = "host", registry: bool = False) -> dict[str, str]:
    """The C of a library, by its name in an include."""
    files = crtgen.load(DIGITS).compile(board).generate("library", registry=registry).project.files
    prefix = ("model/", "runtime/include/")
    found = {p: t.decode() for p, t in files.items() if p.startswith(prefix) and p.endswith((".c", ".h"))}
    return {path.removeprefix(prefix[0]).removeprefix(prefix[1]): text for path, text in found.items()}


@pytest.mark.parametrize("board", ["host", "mps2_an386"])
def test_a_library_is_plain(board: str) -> None:
    """Nothing of TVM is in it, and no header that its code does not include."""
    found = sources(board)
    cross = {name for name in found if name.startswith("freestanding/")}
    assert set(found) - cross == PLAIN
    assert bool(cross) == (board != "host")
    assert not [name for name, text in found.items() if re.search("TVM|DLTensor|dlpack|crt_model", text)]
    named = {name for text in found.values() for name in re.findall(r"\b__\w+", text)}
    assert {name for name in named if not RESERVED.fullmatch(name)} == set()


def test_a_library_with_the_registry_has_all_of_it() -> None:
    found = sources(registry=True)
    assert {"crt_metadata.c", "digits_registry.c", "dlpack/dlpack.h", "crt/model.h"} <= set(found)
    plain = sources()
    named = {name: found[name].replace("__tvm_param__", "crt_param_") for name in plain}
    assert named == plain


def test_an_archive_of_our_own_makes_a_plain_library_and_a_graph_keeps_its_registry(tmp_path: Path) -> None:
    model = crtgen.load(DIGITS)
    for executor in ("aot", "graph"):
        (tmp_path / f"{executor}.tar").write_bytes(model.compile("host", executor=executor).archive())
    plain, graph = (
        crtgen.load(tmp_path / f"{name}.tar", trust=True).compile("host").generate("library").project.files
        for name in ("aot", "graph")
    )
    assert "model/crt_metadata.c" not in plain
    assert "model/digits.c" in plain
    assert {"model/crt_metadata.c", "model/digits_graph.c"} <= set(graph)


def test_several_models_in_a_plain_library_share_an_arena(tmp_path: Path) -> None:
    (tmp_path / "other.tflite").write_bytes(DIGITS.read_bytes())
    models = [crtgen.load(DIGITS), crtgen.load(tmp_path / "other.tflite")]
    files = crtgen.compile(models, "host").generate("library").project.files
    assert "model/crt_arena.c" in files
    assert "model/crt_metadata.c" not in files
    assert not [path for path in files if "tvm" in path or "dlpack" in path]


def test_the_header_says_what_may_run_at_the_same_time() -> None:
    assert "not re-entrant" in sources()["digits.h"]


@pytest.mark.cc
def test_objects_of_llvm_are_plain_too() -> None:
    pytest.importorskip("llvmlite")
    generated = crtgen.load(DIGITS).compile("mps2_an386").generate("library", target="llvm")
    (data,) = (d for p, d in generated.project.files.items() if p.endswith("digits_kernels.o"))
    assert b"digits_run" in data
    assert b"TVMSystemLibEntryPoint" not in data
    assert b"__tvm" not in data


def test_a_library_of_many_models_is_not_called_by_all_names(tmp_path: Path) -> None:
    paths = [tmp_path / f"{letter * 40}.tflite" for letter in "abc"]
    for path in paths:
        path.write_bytes((ROOT / "demo" / "digits.tflite").read_bytes())
    made = crtgen.compile([crtgen.load(path) for path in paths], "host").generate("library").project
    assert f"add_library(crt_{'a' * 40}_and_2_more STATIC" in made.files["CMakeLists.txt"].decode()


def test_a_library_says_its_stack() -> None:
    """The library's compute function takes as much stack as in an image, which is linked as a whole."""
    require_tool("arm-none-eabi-gcc")
    compiled = crtgen.load(DIGITS).compile("mps2_an386")
    stack, whole = (compiled.generate(kind).build().size.stack for kind in ("library", "standalone"))
    assert stack is not None
    assert whole is not None
    assert stack.proven
    assert stack.path[0].name == "digits_run"
    own, linked = ({frame.name: frame.total for frame in each.frames} for each in (stack, whole))
    assert stack.worst >= own["digits_compute"] == linked["digits_compute"] > 0


@pytest.mark.parametrize("core", ["cortex-m0", "cortex-m4", "cortex-m55"])
def test_a_library_for_a_core_builds_with_cmake_alone(tmp_path: Path, core: str) -> None:
    """Whoever has firmware and no listed board: no Zephyr unless it is asked for."""
    require_tool("arm-none-eabi-gcc")
    compiled = crtgen.load(ROOT / "demo" / "digits.tflite").compile(board_of_core(core))
    extracted = compiled.generate("library").extract(tmp_path / "lib")
    assert "add_subdirectory(digits)" in (tmp_path / "lib" / "README.md").read_text()
    assert extracted.build().size.sizes.text
    zephyr = compiled.generate("library", platform="zephyr").extract(tmp_path / "zephyr")
    assert "find_package(Zephyr)" in (zephyr.directory / "README.md").read_text()
