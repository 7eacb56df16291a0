"""Bounds of cycles, by the tables of the cores' manuals; and worst cases as a header."""

from dataclasses import replace
from pathlib import Path

import pytest

from crtgen import api
from crtgen.boards import find_board
from crtgen.compiler.codegen.module import cycles_of
from crtgen.proof.certificate import depth_of, prove_built, timing_of
from crtgen.proof.checker import CoreTiming, prove
from crtgen.proof.checker.binary.image import DecodedInstruction
from crtgen.proof.printed import functions_of, lines_of, worst_header
from tests.proof.checker.networks import rare
from tests.support import ROOT, nightly, require_tool

M4 = "mps2_an386"


def instruction(text: str, size: int = 2, address: int = 0x100) -> DecodedInstruction:
    name, _, operands = text.partition(" ")
    parts = (operands,) if operands.startswith("{") else tuple(operands.split(", ", 1)) if operands else ()
    return DecodedInstruction(address, name, "", parts, "", address + size, text)


@pytest.mark.parametrize(
    ("core", "text", "cycles"),
    [
        ("cortex-m0", "muls r0, r1", 1),
        ("cortex-m0", "bl 200", 4),
        ("cortex-m0", "bne 200", 3),
        ("cortex-m0", "pop {r4, pc}", 6),
        ("cortex-m0plus", "bl 200", 3),
        ("cortex-m0plus", "bx lr", 2),
        ("cortex-m0plus", "pop {r4, pc}", 5),
        ("cortex-m0plus", "ldrh r0, [r1]", 2),
        ("cortex-m3", "smlal r0, r1, r2, r3", 7),
        ("cortex-m3", "mla r0, r1, r2, r3", 2),
        ("cortex-m3", "cbz r0, 200", 4),
        ("cortex-m4", "smlal r0, r1, r2, r3", 1),
        ("cortex-m4", "udiv r0, r1, r2", 12),
        ("cortex-m4", "bics r0, r1", 1),
        ("cortex-m4", "ldr r0, [r1]", 2),
        ("cortex-m4", "ldr pc, [r1]", 5),
        ("cortex-m4", "push {r4, r5, lr}", 4),
        ("cortex-m4", "vpush {d8-d9}", 5),
        ("cortex-m23", "muls r0, r1", 2),
        ("cortex-m23", "bl 200", 5),
        ("cortex-m23", "udiv r0, r1, r2", 35),
        ("cortex-m33", "smlad r0, r1, r2, r3", 2),
        ("cortex-m33", "udiv r0, r1, r2", 13),
        ("cortex-m33", "b 200", 6),
        ("cortex-m33", "vdiv s0, s1, s2", 15),
        ("cortex-m7", "add r0, r1, r2", 3),
        ("cortex-m7", "ldrsb r0, [r1]", 4),
        ("cortex-m7", "vfma s0, s1, s2", 8),
        ("cortex-m7", "vsqrt s0, s1", 18),
        ("cortex-m7", "bne 200", 10),
        ("cortex-m55", "udiv r0, r1, r2", 14),
        ("cortex-m55", "vmlava r0, q1, q2", 7),
        ("cortex-m55", "vldrw q0, [r1]", 7),
        ("cortex-m55", "vldrb q0, [r1, q2]", 25),
        ("cortex-m55", "vstrw q0, [q2]", 25),
        ("cortex-m55", "vpst", 7),
        ("cortex-m55", "letp lr, 200", 8),
        ("cortex-m85", "le lr, 200", 12),
        ("cortex-m85", "vpush {d8-d9}", 8),
        ("riscv", "add r0, r1", 0),
    ],
)
def test_tables(core: str, text: str, cycles: int) -> None:
    assert CoreTiming(core).most(instruction(text)) == cycles


def test_waits() -> None:
    """For the words that are fetched first by an instruction, for those it loads, and around a branch."""
    m4 = CoreTiming("cortex-m4", 5)
    assert m4.most(instruction("adds r0, r1", address=0x100)) == 1 + 5
    assert m4.most(instruction("adds r0, r1", address=0x102)) == 1
    assert m4.most(instruction("add r0, r1", size=4, address=0x102)) == 1 + 5
    assert m4.most(instruction("ldrd r0, [r1]", size=4, address=0x100)) == 3 + 15
    assert m4.most(instruction("b 200", address=0x102)) == 4 + 15


def test_waits_of_caches() -> None:
    """A word is in a line of eight, and data may push out another line."""
    m7 = CoreTiming("cortex-m7", 9)
    assert m7.most(instruction("adds r0, r1", address=0x100)) == 3 + 9 + 8
    assert m7.most(instruction("ldr r0, [r1]", address=0x100)) == 4 + 9 + 8 + 9 + 16
    assert (m7.split, CoreTiming("cortex-m7").split, CoreTiming("").split) == (2 * (1 + 9 + 16), 2, 0)


def test_waits_of_boards() -> None:
    """Those of the file; nothing is said where nobody knows."""
    assert timing_of(find_board("nucleo_l4r5zi")) == CoreTiming("cortex-m4", 5)
    assert timing_of(find_board("mps2_an385")) == CoreTiming("cortex-m3", 0)
    assert timing_of(find_board("nucleo_h743zi")) == CoreTiming("cortex-m7", 17), "of a line of its AXI SRAM"
    assert timing_of(find_board("arduino_uno_r4_minima")).is_known is False
    assert [CoreTiming(core).is_published for core in ("cortex-m4", "cortex-m33", "")] == [True, False, False]


@pytest.mark.qemu
@pytest.mark.parametrize("name", ["rare", nightly("digits")])
@pytest.mark.parametrize("board", [nightly("mps2_an500"), "mps2_an505", nightly("mps3_an547")])
def test_bounds_of_cores_without_a_table(board: str, name: str, tmp_path: Path) -> None:
    """No bound is below what QEMU counts as instructions, or what crtgen expects of the core."""
    require_tool("arm-none-eabi-gcc")
    require_tool("qemu-system-arm")
    model = tmp_path / f"{name}.tflite"
    model.write_bytes(rare() if name == "rare" else (ROOT / "demo" / "digits.tflite").read_bytes())
    compiled = api.load(model).compile(board)
    built = compiled.generate("standalone").build()
    proof = prove_built(built, model, find_board(board))
    assert proof.is_proven, lines_of(proof)
    with compiled.generate().build().run() as session:
        counts = [session.measure().instructions for _ in range(16)]  # in ticks of 50 instructions
    expected = cycles_of(compiled.modules[0].info.layers)
    counted = min(count for count in counts if count is not None)
    assert expected is not None
    assert proof.instructions[0] <= counted < proof.cycles
    assert expected < proof.cycles < 8 * proof.instructions[1]
    assert f"_WORST_CYCLES {proof.cycles}\n" in worst_header(proof)
    assert ", one instruction after the other, memory never waits)" in " ".join(lines_of(proof))


@pytest.mark.qemu
def test_worst_case_of_a_small_network(tmp_path: Path) -> None:
    """The depth of the stack is that of the call graph; the functions are within the whole."""
    require_tool("arm-none-eabi-gcc")
    model = tmp_path / "rare.tflite"
    model.write_bytes(rare())
    built = api.load(model).compile(M4).generate("standalone").build()
    proof = prove_built(built, model, find_board(M4))
    assert proof.is_proven, lines_of(proof)
    assert depth_of(built, proof.model) == proof.stack
    least, most = proof.instructions
    assert least == most
    assert most < proof.cycles < 5 * most
    ((_, counts),) = functions_of(proof).items()
    assert counts[0] == counts[1] < most
    lines = worst_header(proof).splitlines()
    assert f"#define RARE_WORST_INSTRUCTIONS {most}" in lines
    assert f"#define RARE_WORST_STACK {proof.stack}" in lines
    assert f"#define RARE_WORST_CYCLES {proof.cycles}" in lines
    assert not any("decoders" in line for line in lines_of(proof))
    without = {key: value for key, value in proof.certificate.items() if key != "llvm"}
    assert "decoders: binutils alone" in lines_of(replace(proof, certificate=without))[0]
    assert "CYCLES" not in worst_header(prove(built.path, model)), "where nobody knows the core"
