"""The order of instructions: what it may not change, what it gains, and the model of cores behind it."""

import re
import subprocess
from collections import Counter
from functools import cache

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Kernel
from crtgen.compiler.kernels.asm import CorePipeline, Function, Routine, cycles, pipeline_of, scheduled
from crtgen.compiler.kernels.asm.effects import effects
from crtgen.compiler.kernels.asm.routine import BasicBlock, Instruction, Label
from crtgen.network.ops import all_cases
from tests.compiler.kernels.measured import is_measured, kernels_of
from tests.support import nightly, require_tool

_MCA = "llvm-mca-19"
_TRIPLES = {"cortex-m55": "thumbv8.1m.main-none-eabi", "cortex-m7": "thumbv7em-none-eabi"}


def _pipeline(core: str) -> CorePipeline:
    found = pipeline_of(find_core(core))
    assert found is not None
    return found


def _line(text: str) -> Instruction:
    mnemonic, _, rest = text.partition(" ")
    return Instruction(mnemonic, tuple(re.findall(r"\{[^}]*\}|\[[^\]]*\]!?(?:, #-?\d+)?|[^,\s]+", rest)))


def _lines(text: str) -> tuple[Instruction, ...]:
    return tuple(_line(line.strip()) for line in text.strip().splitlines())


_STEP = _lines("""
    vldrw.u32 q0, [r1, #16]
    vldrw.u32 q2, [r5], #16
    vldrw.u32 q1, [r1, #32]
    vldrw.u32 q3, [r5], #16
    vmladava.s8 r0, q0, q2
    vmladava.s8 r8, q1, q2
    vldrw.u32 q2, [r5], #16
    vmladava.s8 r2, q0, q3
    vmladava.s8 r10, q1, q3
    vldrw.u32 q3, [r5], #16
    vmladava.s8 r4, q0, q2
    vmladava.s8 r12, q1, q2
    vmladava.s8 r6, q0, q3
    vmladava.s8 lr, q1, q3
""")
"""A step of a matrix product with Helium, as it is written: two pixels, four channels."""


def _routine(lines: tuple[Instruction, ...]) -> Routine:
    made = Function("f", "int *x").done()
    block = BasicBlock(Label(".L_loop"), (*lines, _line("le lr, .L_loop")), (), 1)
    return Routine(made.name, "", "void", made.parameters, made.roles, made.frame, (block,))


def _ordered(lines: tuple[Instruction, ...], core: str) -> tuple[Instruction, ...]:
    return scheduled(_routine(lines), _pipeline(core)).blocks[0].straight


def test_loads_and_products_alternate() -> None:
    """The products bound the time: eight of them take two cycles each; the first one waits for two."""
    helium = _pipeline("cortex-m55")
    found = _ordered(_STEP, "cortex-m55")
    assert (helium.cycles(_STEP, again=True), helium.cycles(found, again=True)) == (22, 18)
    assert Counter(found) == Counter(_STEP)


def test_an_order_is_found_only_where_it_matters() -> None:
    assert _ordered(_STEP, "cortex-m4") == _STEP


def test_what_depends_stays_in_order() -> None:
    lines = _lines("""
        vstrb.8 q0, [r0], #16
        vldrb.8 q0, [r1], #16
        vldrb.8 q1, [r1], #16
        vadd.i8 q2, q0, q1
        vstrb.8 q2, [r0], #16
    """)
    assert _ordered(lines, "cortex-m55") == lines


def test_what_runs_on_a_condition_stays_behind_it() -> None:
    lines = _lines("""
        vldrw.u32 q0, [r1], #16
        vldrw.u32 q1, [r1], #16
        vctp.32 r2
        vpstt
        vstrwt.32 q0, [r0]
        vstrwt.32 q1, [r0, #16]
        vmul.i32 q2, q0, q1
        vmul.i32 q3, q1, q1
    """)
    found = [line.mnemonic for line in _ordered(lines, "cortex-m55")]
    at = found.index("vpstt")
    assert found[at + 1 : at + 3] == ["vstrwt.32", "vstrwt.32"]
    assert "vctp.32" in found[:at]


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("ldrd r1, r2, [r3], #8", "r3", "r1 r2 r3"),
        ("ldm r0!, {r1, r2}", "r0", "r0 r1 r2"),
        ("strb r1, [r2, #3]", "r1 r2", ""),
        ("smlad r1, r2, r3, r4", "r2 r3 r4", "r1"),
        ("smlald r1, r2, r3, r4", "r1 r2 r3 r4", "r1 r2"),
        ("subs r1, r1, #1", "r1", "r1 flags"),
        ("adc r1, r2, #0", "r1 r2 flags", "r1"),
        ("movlt r1, #0", "r1 flags", "r1"),
        ("ssub8 r1, r2, r3", "r2 r3", "r1 flags"),
        ("vmov q1[2], q1[0], r2, r3", "r2 r3 s4 s5 s6 s7 vpr", "s4 s5 s6 s7"),
        ("vmladava.s8 r2, q0, q1", "r2 s0 s1 s2 s3 s4 s5 s6 s7 vpr", "r2"),
        ("vidup.u32 q0, r1, #1", "r1 s0 s1 s2 s3 vpr", "r1 s0 s1 s2 s3"),
        ("vldrw.u32 q0, [q1, #16]!", "s4 s5 s6 s7 vpr", "s0 s1 s2 s3 s4 s5 s6 s7"),
        ("vldmia r0!, {s2-s4}", "r0 vpr", "r0 s2 s3 s4"),
        ("vfma.f32 s1, s2, s3", "s1 s2 s3 vpr", "s1"),
        ("vmovmi.f32 s1, s2", "s1 s2 flags vpr", "s1"),
    ],
)
def test_effects(text: str, reads: str, writes: str) -> None:
    found = effects(_line(text))
    assert (found.reads, found.writes) == (frozenset(reads.split()), frozenset(writes.split()))


def test_an_instruction_without_rules_is_named() -> None:
    with pytest.raises(ValueError, match=r"vmystery\.s8"):
        effects(_line("vmystery.s8 q0, q1"))


@cache
def _routines(core: str) -> tuple[Routine, ...]:
    """Those of all kernels for the operators' own cases, once."""
    seen: dict[Routine, None] = {}

    def add(kernel: Kernel) -> None:
        seen.update(dict.fromkeys(kernel.routines))
        for part in kernel.parts:
            add(part.kernel)

    for case in filter(is_measured, all_cases()):
        for kernel in kernels_of(case, core, "-O2"):
            add(kernel)
    return tuple(seen)


@pytest.mark.parametrize("core", ["cortex-m55", nightly("cortex-m7")])
def test_all_routines_keep_what_they_are_made_of(core: str) -> None:
    """Blocks, labels, branches and instructions; and none gets slower by the model."""
    pipeline, count = _pipeline(core), 0
    for routine in _routines(core):
        found = scheduled(routine, pipeline)
        assert found.code_bytes == routine.code_bytes
        for before, after in zip(routine.blocks, found.blocks, strict=True):
            assert Counter(before.lines) == Counter(after.lines)
            assert (before.label, before.end) == (after.label, after.end)
            assert pipeline.cycles(after.lines, after.again) <= pipeline.cycles(before.lines, before.again)
        count += 1
    assert count > 50


@pytest.mark.parametrize(("core", "within"), [("cortex-m55", 0.12), nightly("cortex-m7", 0.3)])
def test_the_model_is_as_good_as_llvms(core: str, within: float) -> None:
    """Loops of kernels, nine of ten. Gathers are left out, which take it two cycles, and IT on the M7."""
    require_tool(_MCA)
    pipeline = _pipeline(core)
    blocks = {b.straight: b for r in _routines(core) for b in scheduled(r, pipeline).blocks if b.again}
    loops = [lines for lines in blocks if 10 < len(lines) < 200 and not any(map(_other, lines))][:60]
    assert len(loops) > 30
    errors = [pipeline.cycles(lines, True) / _by_llvm(lines, core) - 1 for lines in loops]
    assert np.median(np.abs(errors)) < 0.1
    assert np.quantile(np.abs(errors), 0.9) < within


def _other(line: Instruction) -> bool:
    gathers = line.operands[-1:] != () and "[" in line.operands[-1] and "q" in line.operands[-1]
    return gathers or line.mnemonic in ("it", "ite")


def _by_llvm(lines: tuple[Instruction, ...], core: str) -> float:
    rounds = 20
    text = "\n".join(f"{line.mnemonic} {', '.join(line.operands)}" for line in lines)
    command = [_MCA, f"-mtriple={_TRIPLES[core]}", f"-mcpu={core}", f"-iterations={rounds}"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    assert not done.returncode, done.stderr
    found = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    assert found
    return int(found[1]) / rounds


def test_cycles_of_a_function() -> None:
    """Cortex-M4: a load takes 2, its neighbour 1, a list 1 and 1 each, a branch that is taken 3."""
    f = Function("sum", "const int *x")
    (x,) = f.arguments
    a, b = f.core("a", ("r2",)), f.core("b", ("r3",))
    with f.counted_loop("words", f.core("left", ("r1",)), 10):
        f("ldr", a, f"[{x}], #4")
        f("ldr", b, f"[{x}], #4")
        f("add", a, a, b)
    routine = f.done()
    loop = 2 + 1 + 1 + 1 + 3
    assert cycles(routine.runs(), _pipeline("cortex-m4")) == 1 + 10 * loop + 3
    assert cycles(5 * routine.runs(), _pipeline("cortex-m4")) == 5 * (1 + 10 * loop + 3)
