"""What generated projects need of their board, by the real runtime and the demonstration model."""

import re
from pathlib import Path

import pytest

from crtgen import api
from crtgen.base.endpoints import EXECUTOR, GLOBALS
from crtgen.base.errors import DoesNotFitError, ToolMissingError
from crtgen.firmware.builder import SizeReport, build_project, find_toolchain, measure
from crtgen.firmware.project.options import STACK
from tests.support import ROOT, absent, require_tool


def report(directory: Path, board: str, kind: str, toolchain: str | None = None) -> tuple[SizeReport, int]:
    """The report of a project of the demonstration model, and the bytes of its arena and its guards."""
    compiled = api.load(ROOT / "demo" / "digits.tflite").compile(board)
    compiled.generate(kind).extract(directory)
    guards = 2 * 16 if kind == "server" else 0
    return measure(build_project(directory, toolchain=toolchain)), compiled.plans[0].arena + guards


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2_an385", "mps2_an386", "mps3_an547"])
@pytest.mark.parametrize("kind", ["server", "standalone"])
def test_every_frame_and_every_pointer_is_known(tmp_path: Path, board: str, kind: str) -> None:
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    found, arena = report(tmp_path / "p", board, kind)
    assert found.stack is not None
    assert (found.stack.recursion, found.stack.unresolved, found.stack.unknown) == ((), (), ())
    names = [frame.name for frame in found.stack.path]
    assert names[:2] == ["crt_reset", "main"]
    totals = {frame.name: frame.total for frame in found.stack.frames}
    if kind == "server":
        evaluator = ["crt_function_call", "crt_time_evaluate", "crt_module_call"]
        assert [name for name in names if name in evaluator] == evaluator
        endpoints = [endpoint.run for endpoint in (*GLOBALS, *EXECUTOR) if not endpoint.only]
        assert totals.keys() >= {*endpoints, "digits_run_packed"}
        assert totals["crt_function_call"] > max(totals[name] for name in endpoints)
        assert totals["crt_module_call"] > totals["crt_executor_run"] > totals["digits_compute"]
        assert totals["crt_module_call"] > totals["digits_run_packed"]
    else:
        assert "digits_compute" in names
    exception = 36 if board == "mps2_an385" else 108
    assert found.stack.interrupt >= exception
    assert found.stack.worst == sum(f.own for f in found.stack.path) + found.stack.interrupt
    assert found.sizes.arena == arena
    assert found.sizes.stack == STACK


@pytest.mark.qemu
def test_the_groups_of_a_standalone_image(tmp_path: Path) -> None:
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    found, arena = report(tmp_path / "p", "mps2_an386", "standalone")
    groups = found.sizes.groups
    assert groups["model"].ram == arena
    assert groups["weights"].ram == 0
    assert groups["weights"].flash > 1000
    assert sum(g.flash for g in groups.values()) == found.sizes.flash
    assert 0 <= groups["padding"].flash < 96
    rows = dict(found.rows())
    assert rows["flash"] == sum(rows[f"  {name}"] for name, group in groups.items() if group.flash)
    assert rows["RAM"] == rows["  arena"] + rows["  other"]
    assert rows["stack, worst case"] == found.to_dict()["stack"]["worst"]


@pytest.mark.qemu
def test_zig(tmp_path: Path) -> None:
    try:
        find_toolchain("zig")
    except ToolMissingError as error:
        absent("zig", error.hint)
    found, arena = report(tmp_path / "p", "mps2_an386", "server", "zig")
    assert found.stack is not None
    assert found.stack.proven
    assert found.sizes.arena == arena
    assert found.sizes.groups == {}


@pytest.mark.cc
def test_the_host_has_no_bound_of_the_stack(tmp_path: Path) -> None:
    require_tool("cc", "apt install gcc")
    found, arena = report(tmp_path / "p", "host", "server")
    assert found.stack is None
    assert found.to_dict()["stack"] is None
    assert found.sizes.arena == arena


@pytest.mark.qemu
def test_a_stack_that_is_too_small_is_refused_with_what_it_takes(tmp_path: Path) -> None:
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    compiled = api.load(ROOT / "demo" / "digits.tflite").compile("mps2_an386")
    project = compiled.generate(stack=256).extract(tmp_path / "p")
    with pytest.raises(
        DoesNotFitError, match=r"may need (\d,)?\d+ bytes, and 256 are reserved: crt_reset ->"
    ) as caught:
        project.build()
    wanted = re.search(r"--stack (\d+),", caught.value.hint)
    assert wanted is not None
    fits = compiled.generate(stack=int(wanted[1])).extract(tmp_path / "p")
    image = fits.build()
    assert image.size.stack is not None
    assert int(wanted[1]) - 8 < image.size.stack.worst <= int(wanted[1]) == image.size.sizes.stack


@pytest.mark.qemu
def test_an_image_that_does_not_fit(tmp_path: Path) -> None:
    """What was generated to fit, in a memory that somebody made smaller."""
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    compiled = api.load(ROOT / "demo" / "digits.tflite").compile("mps2_an386")
    compiled.generate().extract(tmp_path / "p")
    script = tmp_path / "p" / "platform" / "linker.ld"
    script.write_text(
        script.read_text().replace(
            "ORIGIN = 0x20000000, LENGTH = 0x400000", "ORIGIN = 0x20000000, LENGTH = 12K"
        )
    )
    with pytest.raises(DoesNotFitError, match=r"ram by 2,[0-9]{3} bytes") as caught:
        build_project(tmp_path / "p")
    assert caught.value.where == "mps2_an386"
    assert "RAM" in caught.value.hint or "fits on" in caught.value.hint
