"""The level of optimisation is said once, to ``compile``: kernels, compilers and C library follow it."""

import re
from pathlib import Path

import pytest

import crtgen
from crtgen.base.errors import UsageError
from crtgen.compiler.codegen import llvm_compile
from crtgen.compiler.level import LEVELS
from crtgen.firmware.project import read_manifest
from tests.support import ROOT, model_path, nightly, require_tool
from tools import options

DIGITS = ROOT / "demo" / "digits.tflite"
EXPECTED = {"speed": ("-O2", False), "balanced": ("-O2", False), "size": ("-Os", True), "ram": ("-O2", False)}


def flags_of(rules: str, source: str) -> str:
    """The flags that Ninja compiles a source with."""
    step = rules[rules.index(f"{source}.o") :]
    return step.partition("  FLAGS = ")[2].partition("\n")[0]


def test_every_level_is_known_here() -> None:
    assert {name: (level.flag, level.small_libc) for name, level in LEVELS.items()} == EXPECTED


@pytest.mark.qemu
@pytest.mark.parametrize("optimize", EXPECTED)
def test_a_build_from_python_has_the_flags_of_its_level(tmp_path: Path, optimize: str) -> None:
    require_tool("arm-none-eabi-gcc")
    compiled = crtgen.load(DIGITS).compile("mps2_an386", optimize=optimize)
    image = compiled.generate().extract(tmp_path).build()
    flag, small_libc = EXPECTED[optimize]
    rules = (image.path.parent / "build.ninja").read_text()
    assert re.findall(r"-O\w", flags_of(rules, "model/digits_kernels.c"))[-1] == flag
    assert re.findall(r"-O\w", flags_of(rules, "runtime/src/crt_mem.c"))[-1] == "-Os"
    assert ("-DCRT_SMALL_STRING_H" in rules) is small_libc
    assert read_manifest(tmp_path).optimize == optimize


@pytest.mark.parametrize("optimize", EXPECTED)
def test_objects_of_llvm_are_compiled_at_the_level(monkeypatch: pytest.MonkeyPatch, optimize: str) -> None:
    pytest.importorskip("llvmlite")
    pytest.importorskip("ziglang")
    asked: list[list[str]] = []

    def stop(arguments: list[str], directory: Path) -> str:
        asked.append(arguments)
        raise UsageError("enough")

    monkeypatch.setattr(llvm_compile, "check_versions", lambda: None)
    monkeypatch.setattr(llvm_compile, "_run", stop)
    with pytest.raises(UsageError, match="enough"):
        crtgen.load(DIGITS).compile("mps2_an386", optimize=optimize).generate(target="llvm")
    assert [flag for flag in asked[0] if re.fullmatch(r"-O\w", flag)] == [EXPECTED[optimize][0]]


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown optimisation fast") as caught:
        crtgen.load(DIGITS).compile("host", optimize="fast")
    assert caught.value.hint == "known: speed, balanced, size, ram"


def test_what_repeats_options_is_up_to_date() -> None:
    """If this fails: ``python tools/options.py``."""
    assert options.stale() == {}


def test_a_new_option_goes_to_commands_and_sweeps() -> None:
    (field,) = options.declared("class Request:\n    turns: int = 3\n", "Request")
    source = "class A:\n    # written by tools/options.py\n    old: str\n    # end\n    more: int"
    lines = [line(field) for _, parts in options.PARTS for _, line in parts]
    assert lines == [
        "turns: int",
        "turns: int",
        "turns: options.Turns = 3",
        '"turns": self.turns,',
        "turns: int = 3",
        "turns=options.turns,",
    ]
    made = "class A:\n    # written by tools/options.py\n    turns: int\n    # end\n    more: int"
    assert options.updated(source, [lines[:1]]) == made


_BOARDS = ("mps2_an385", "mps2_an386", "mps3_an547", "nucleo_l4r5zi")
_MODELS = ("kws_int8", "vww_int8", "ic01_int8", "ad01_int8")
_IN_CI = tuple(zip(_MODELS, _BOARDS, strict=True))
_PAIRS = [(m, b) if (m, b) in _IN_CI else nightly(m, b) for m in _MODELS for b in _BOARDS]


@pytest.mark.parametrize(("model", "board"), _PAIRS)
def test_no_level_loses_in_its_own_measure(model: str, board: str) -> None:
    """None is faster than speed, needs less flash than size, or less RAM than ram.

    None of those that take little more time needs less of all memory together than size.
    """
    made = crtgen.load(model_path(model))
    time: dict[str, float] = {}
    flash: dict[str, float] = {}
    arena: dict[str, float] = {}
    for level in LEVELS:
        compiled = made.compile(board, optimize=level)
        steps = compiled.plans[0].steps
        code = {step.kernel.function: step.kernel.cost.code for step in steps}
        time[level] = sum(step.kernel.cost.time for step in steps)
        flash[level] = sum(step.kernel.cost.constants for step in steps) + sum(code.values())
        arena[level] = compiled.plans[0].arena
    assert time["speed"] <= 1.001 * min(time.values())
    assert flash["size"] <= 1.001 * min(flash.values())
    assert arena["ram"] == min(arena.values())
    memory = {level: flash[level] + arena[level] for level in LEVELS if level != "ram"}
    assert memory["size"] <= 1.001 * min(memory.values())
