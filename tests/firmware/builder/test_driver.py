"""Builds: from nothing, incremental, and every way to fail."""

import fcntl
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from crtgen import api
from crtgen.base.errors import BuildError, DoesNotFitError, ToolMissingError, UsageError
from crtgen.firmware.builder import (
    TOOLCHAINS,
    Toolchain,
    build_project,
    detect_toolchains,
    find_program,
    find_toolchain,
)
from crtgen.firmware.project.manifest import LOCKED
from tests.firmware.builder.projects import write_project
from tests.support import ROOT, require_tool

GOOD = "volatile char b[32]; void crt_reset(void) { for (;;) b[0]++; }\n"

pytestmark = pytest.mark.usefixtures("compiled_anew")  # what builds do is looked at here


@pytest.fixture
def gcc() -> None:
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")


@pytest.mark.qemu
@pytest.mark.usefixtures("gcc")
def test_a_build_and_what_it_does_not_do_again(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", GOOD)
    said: list[str] = []
    image = build_project(root, progress=said.append)
    assert image.path == root / "build" / "firmware.elf"
    assert (image.board, image.platform) == ("mps2_an386", "baremetal")
    cache = (image.build / "CMakeCache.txt").read_text()
    assert re.search(r"^CRTGEN_COMPILER:\w+=.*/arm-none-eabi-gcc$", cache, re.MULTILINE)
    assert said == ["configuring", "building 1/2", "building 2/2"]
    before = image.path.stat().st_mtime_ns
    again: list[str] = []
    build_project(root, progress=again.append)
    assert again == []
    assert image.path.stat().st_mtime_ns == before
    (root / "main.c").write_text(GOOD.replace("32", "48"))
    build_project(root, progress=again.append)
    assert again == ["building 1/2", "building 2/2"]


@pytest.mark.qemu
@pytest.mark.usefixtures("gcc")
def test_a_project_that_moved_is_configured_again(tmp_path: Path) -> None:
    build_project(write_project(tmp_path / "old", GOOD))
    (tmp_path / "old").rename(tmp_path / "new")
    said: list[str] = []
    image = build_project(tmp_path / "new", progress=said.append)
    assert said[0] == "configuring"
    assert image.path == tmp_path / "new" / "build" / "firmware.elf"


@pytest.mark.qemu
@pytest.mark.usefixtures("gcc")
def test_builds_of_one_project_take_turns(tmp_path: Path) -> None:
    root, said = write_project(tmp_path / "p", GOOD), list[str]()
    descriptor = os.open(root / LOCKED, os.O_RDONLY)
    with ThreadPoolExecutor() as pool:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        waiting = [pool.submit(build_project, root, progress=said.append) for _ in range(3)]
        assert wait(waiting, timeout=2).done == set()
        assert said == []
        os.close(descriptor)
        assert {build.result().path for build in waiting} == {root / "build" / "firmware.elf"}
    assert said.count("configuring") == 1


@pytest.mark.qemu
@pytest.mark.usefixtures("gcc")
def test_the_compilers_first_errors(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", GOOD + "int broken(void) { return nothing; }\n")
    with pytest.raises(BuildError) as caught:
        build_project(root)
    assert "main.c:2:27: error: 'nothing' undeclared" in caught.value.message
    assert caught.value.where == "tiny"
    log = root / "build" / "build.log"
    assert str(log) in caught.value.hint
    assert "undeclared" in caught.value.log
    assert caught.value.log in log.read_text()


@pytest.mark.parametrize("part", ['"', ";", "|", "\\", "\n", "$("])
def test_a_path_that_cmake_cannot_build_in(tmp_path: Path, part: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"CMake cannot build in a path that contains {part!r}")):
        build_project(write_project(tmp_path / f"a{part}b", GOOD))


@pytest.mark.qemu
@pytest.mark.usefixtures("gcc")
def test_an_undefined_symbol(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", "void absent(void); void crt_reset(void) { absent(); }\n")
    with pytest.raises(BuildError, match="undefined reference to `absent'"):
        build_project(root)


@pytest.mark.qemu
@pytest.mark.usefixtures("gcc")
def test_an_image_that_does_not_fit(tmp_path: Path) -> None:
    """RAM has 8 KiB, 1 KiB is the stack's: 10000 bytes of bss are 2832 too many."""
    root = write_project(tmp_path / "p", GOOD.replace("32", "10000"))
    with pytest.raises(DoesNotFitError) as caught:
        build_project(root)
    assert caught.value.message == "the image is larger than the memory: RAM by 2,832 bytes"
    assert caught.value.where == "mps2_an386"
    assert caught.value.hint.startswith("it fits on ")
    assert "overflowed by 2832 bytes" in caught.value.log
    assert "Building" not in caught.value.log


@pytest.mark.cc
def test_a_build_for_this_computer(tmp_path: Path) -> None:
    require_tool("cc", "apt install gcc")
    root = write_project(tmp_path / "p", "int main(void) { return 0; }\n", host=True)
    assert build_project(root).path == root / "build" / "firmware"


def test_a_directory_that_is_no_project(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"project\.json|cannot be read"):
        build_project(tmp_path)


@pytest.mark.cc
def test_a_toolchain_that_the_project_does_not_have(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", GOOD)
    with pytest.raises(UsageError) as caught:
        build_project(root, toolchain="cc")
    assert caught.value.hint == "it has gcc"


def test_a_compiler_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ARM_GCC_PREFIX", raising=False)
    with pytest.raises(ToolMissingError) as caught:
        find_toolchain("gcc")
    assert caught.value.hint.startswith("apt install gcc-arm-none-eabi")
    assert isinstance(detect_toolchains()["gcc"], ToolMissingError)


def test_an_unknown_toolchain() -> None:
    with pytest.raises(UsageError, match="unknown toolchain iar"):
        find_toolchain("iar")


def test_a_variable_names_the_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "my-gcc"
    program.write_text("#!/bin/sh\necho my-gcc 99.1\necho more\n")
    program.chmod(0o755)
    monkeypatch.setenv("ARM_GCC_PREFIX", str(tmp_path / "my-"))
    assert find_toolchain("gcc") == Toolchain("gcc", program, "my-gcc 99.1")


def test_a_compiler_that_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "cc"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("CC", str(program))
    with pytest.raises(ToolMissingError, match="does not run"):
        find_toolchain("cc")


def test_a_c_library_is_one_that_the_compiler_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "my-gcc"
    program.write_text('#!/bin/sh\n[ "$1" = --specs=picolibc.specs ] && shift\necho my-gcc "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("ARM_GCC_PREFIX", str(tmp_path / "my-"))
    assert find_toolchain("picolibc") == Toolchain("picolibc", program, "my-gcc --version with picolibc")
    program.write_text("#!/bin/sh\necho cannot read spec file; exit 1\n")
    with pytest.raises(ToolMissingError, match="cannot read spec file") as caught:
        find_toolchain("picolibc")
    assert caught.value.hint == "apt install gcc-arm-none-eabi picolibc-arm-none-eabi"


@pytest.mark.parametrize("name", ["cmake", "ninja"])
def test_build_tools_from_their_packages(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip(name)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_program(name, "pip install it")
    assert found.stem == name
    assert os.access(found, os.X_OK)


def test_a_build_tool_that_is_not_there() -> None:
    with pytest.raises(ToolMissingError) as caught:
        find_program("no-such-program", "pip install it")
    assert caught.value.hint == "pip install it"


def test_every_toolchain_says_how_to_install_it() -> None:
    assert all(recipe.install for recipe in TOOLCHAINS.values())


@pytest.mark.cc
def test_files_from_the_future_are_built(tmp_path: Path) -> None:
    """After a clock that was wrong: Ninja would otherwise configure again for ever."""
    require_tool("gcc")
    project = (
        api.load(ROOT / "demo" / "digits.tflite").compile("host").generate("library").extract(tmp_path / "p")
    )
    future = time.time() + 1e6
    for file in project.directory.rglob("*"):
        os.utime(file, (future, future))
    assert project.build().path.is_file()
    os.utime(project.directory / "build" / "build.ninja", (future, future))
    (project.directory / "model" / "digits.c").write_text("int broken = nothing;\n")
    os.utime(project.directory / "model" / "digits.c", (future, future))
    with pytest.raises(BuildError, match="'nothing' undeclared"):
        project.build()
