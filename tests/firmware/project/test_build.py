"""Generated projects build with CMake alone, the same bytes everywhere, and hold nothing they do not need."""

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

import crtgen
from tests.firmware.project.building import build, build_toy, toy_project
from tests.support import ROOT, absent, require_tool

GCC_HINT = "apt install gcc-arm-none-eabi libnewlib-arm-none-eabi"


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def zig(directory: Path, board: str) -> Path:
    if find_spec("ziglang") is None:
        absent("ziglang", "pip install ziglang")
    return build(
        toy_project(board, "server"), directory, f"-DCMAKE_TOOLCHAIN_FILE={directory}/cmake/zig.cmake"
    )


@pytest.fixture
def _gcc() -> None:
    require_tool("arm-none-eabi-gcc", GCC_HINT)


@pytest.mark.qemu
@pytest.mark.nightly
@pytest.mark.usefixtures("_gcc", "compiled_anew")
@pytest.mark.parametrize("kind", ["server", "standalone"])
def test_two_places_give_the_same_image(tmp_path: Path, kind: str) -> None:
    """On a push ``tests/system`` compares two servers, and the folder of evidence two other images."""
    first = build_toy("mps2_an386", kind, tmp_path / "a")
    second = build_toy("mps2_an386", kind, tmp_path / "b" / "deeper")
    assert first.read_bytes() == second.read_bytes()
    assert str(tmp_path).encode() not in first.read_bytes()


@pytest.mark.qemu
@pytest.mark.usefixtures("_gcc")
def test_a_standalone_image_has_no_heap_no_printf_no_floats_and_is_small(tmp_path: Path) -> None:
    image = build_toy("mps2_an386", "standalone", tmp_path, stack=1024)
    symbols = {line.split()[-1] for line in output_of("arm-none-eabi-nm", str(image)).splitlines()}
    assert {"crt_reset", "main"} <= symbols
    banned = re.compile(r"malloc|free|printf|sbrk|_impure|__aeabi_[df]|f?exp|crt_server")
    assert not [s for s in symbols if banned.search(s)]
    text, data, bss = map(int, output_of("arm-none-eabi-size", str(image)).splitlines()[1].split()[:3])
    assert text < 2816
    assert data + bss - 1024 < 576  # 480 of them for the report of a fault


@pytest.mark.qemu
@pytest.mark.usefixtures("_gcc")
def test_the_image_lies_where_the_board_says(tmp_path: Path) -> None:
    image = build_toy("mps3_an547", "server", tmp_path)
    sections = {
        fields[1]: int(fields[3], 16)
        for line in output_of("arm-none-eabi-objdump", "-h", str(image)).splitlines()
        if re.match(r"\s+\d+ \.", line) and (fields := line.split())
    }
    assert sections[".vectors"] == 0
    assert sections[".text"] == 0x01000000
    assert sections[".stack"] == 0x21000000
    assert 0x21000000 < sections[".bss"] < 0x21400000
    assert (tmp_path / "build" / "firmware.map").is_file()
    assert list((tmp_path / "build").rglob("*.su"))


@pytest.mark.qemu
@pytest.mark.usefixtures("_gcc")
def test_a_library_is_an_archive_of_the_model(tmp_path: Path) -> None:
    build(toy_project("mps2_an386", "library"), tmp_path)
    members = output_of("arm-none-eabi-ar", "t", str(tmp_path / "build" / "libtoy.a")).split()
    assert members == ["metadata.c.obj", "toy.c.obj"]
    assert not (tmp_path / "platform").exists()


@pytest.mark.cc
def test_a_library_may_be_called_like_a_target_of_cmake(tmp_path: Path) -> None:
    require_tool("gcc")
    model = tmp_path / "all.tflite"
    model.write_bytes((ROOT / "demo" / "digits.tflite").read_bytes())
    results = build(crtgen.load(model).compile("host").generate("library").project, tmp_path / "project")
    members = output_of("ar", "t", str(results / "liball.a")).split()
    assert members == ["all.c.o", "all_kernels.c.o", "all_weights.c.o"]


@pytest.mark.qemu
@pytest.mark.usefixtures("_gcc")
def test_a_build_is_incremental(tmp_path: Path) -> None:
    build_toy("mps2_an386", "server", tmp_path)
    objects = {f: f.stat().st_mtime_ns for f in (tmp_path / "build").rglob("*.obj")}
    build_toy("mps2_an386", "server", tmp_path, pool=1024)
    rebuilt = {f.name for f, t in objects.items() if f.stat().st_mtime_ns != t}
    assert rebuilt == {"main.c.obj"}


@pytest.mark.qemu
@pytest.mark.usefixtures("_gcc")
@pytest.mark.parametrize("kind", ["server", "standalone"])
def test_no_image_calls_a_debugger(tmp_path: Path, kind: str) -> None:
    build(toy_project("mps2_an386", kind), tmp_path)
    listing = output_of("arm-none-eabi-objdump", "-d", str(tmp_path / "build" / "firmware.elf"))
    assert "<crt_fault>" in listing
    assert "bkpt" not in listing


@pytest.mark.cc
def test_a_host_project_builds_with_the_computers_compiler(tmp_path: Path) -> None:
    require_tool("cc", "apt install gcc")
    assert build_toy("host", "server", tmp_path).is_file()


@pytest.mark.nightly
@pytest.mark.cc
@pytest.mark.usefixtures("compiled_anew")
def test_two_places_give_the_same_host_program(tmp_path: Path) -> None:
    require_tool("cc", "apt install gcc")
    first, second = (build_toy("host", "standalone", tmp_path / name) for name in "ab")
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.qemu
@pytest.mark.usefixtures("compiled_anew")
@pytest.mark.nightly
@pytest.mark.parametrize("board", ["mps2_an385", "mps3_an547"])
def test_zig_builds_for_boards(tmp_path: Path, board: str) -> None:
    """On a push ``tests/system`` builds with Zig and runs that; gcc's images are compared here and there."""
    first = (zig(tmp_path / "a", board) / "firmware.elf").read_bytes()
    second = (zig(tmp_path / "b", board) / "firmware.elf").read_bytes()
    assert first == second


@pytest.mark.cc
@pytest.mark.nightly
def test_zig_builds_for_this_computer(tmp_path: Path) -> None:
    assert (zig(tmp_path, "host") / "firmware").is_file()
