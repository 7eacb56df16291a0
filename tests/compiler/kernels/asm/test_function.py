"""The builder of functions in assembly: registers, loops, what it counts, and what assemblers make of it."""

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile

from crtgen.boards.core import Core, find_core
from crtgen.compiler.kernels import Target, applicable
from crtgen.compiler.kernels.asm import EVEN, HIGH, LOW, Function, Routine, Writer, assembly_file
from crtgen.compiler.kernels.asm.isa import is_narrow
from crtgen.compiler.kernels.asm.routine import Instruction
from crtgen.network.ops import all_cases
from tests.support import few, nightly, require_tool, symbol_table


def _copy(elements: int = 40) -> Function:
    f = Function("copy", "uint8_t *to", "const uint8_t *from")
    to, source = f.arguments
    vector = f.vector("bytes")
    with f.predicated_loop("vectors", 8, elements):
        f("vldrb.8", vector, f"[{source}], #16")
        f("vstrb.8", vector, f"[{to}], #16")
    return f


def _nested() -> Routine:
    """Two vectors and eight registers to save, two arguments kept, two words of its own, rounds by name."""
    f = Function("sum", "int *y", "int *x", "int n", purpose="Sums.", keep=(0, 2), local=2)
    y, pointer, n = f.arguments
    f.free(y, n)
    sums = f.cores("sums", 4, EVEN)
    more = f.vectors("vectors", 6)
    with f.loop("pairs", "pairs") as again:
        with f.counted_loop("channels", f.core("channels left"), 5):
            f("vldrw.u32", more[5], f"[{pointer}], #16")
            f("vmladava.s8", sums[0], more[5], more[0])
        f("ldr", sums[1], f.kept[2])
        f("cmp", sums[0], sums[1])
        f("bne", again)
    f("ldr", sums[2], f.kept[0])
    f("str", sums[0], f"[{sums[2]}]")
    return f.done()


def test_registers_are_taken_and_given_back() -> None:
    f = Function("f", "int *x")
    assert f.arguments == ("r0",)
    first = f.core("first")
    assert first == "r1"
    assert f.cores("sums", 3, EVEN) == ("r2", "r4", "r6")
    f.free(first)
    assert f.core("another") == "r1"
    f.vectors("all", 8)
    with pytest.raises(ValueError, match="f: no register is free for one too many"):
        f.vector("one too many")


def test_a_register_that_nobody_took_is_refused() -> None:
    f = Function("f", "int *x")
    with pytest.raises(ValueError, match="add r0, r0, r7: r7 is not taken"):
        f("add", "r0", "r0", "r7")
    scratch = f.core("scratch")
    f.free(scratch)
    with pytest.raises(ValueError, match="r1 is not taken"):
        f("ldr", "r0", f"[{scratch}]")


def test_an_instruction_without_a_row_is_refused() -> None:
    f = Function("f", "int *x")
    with pytest.raises(
        ValueError, match=r"vqshrnb\.s16: crtgen\.compiler\.kernels\.asm\.isa does not know what it does"
    ):
        f("vqshrnb.s16", "r0", "r0", "#1")


def test_parameters_are_in_registers() -> None:
    with pytest.raises(ValueError, match="5 parameters"):
        Function("f", *["int x"] * 5)


def test_frame() -> None:
    """Only what is taken is saved; lr comes with it, since the epilogue returns with it."""
    assert _copy().done().frame.begin[0].operands == ("{lr}",)
    frame = _nested().frame
    texts = [f"{line.mnemonic} {', '.join(line.operands)}" for line in (*frame.begin, *frame.end)]
    assert texts == [
        "push {r4, r6, lr}",
        "vpush {d8, d9, d10, d11}",
        "push {r0, r2}",
        "sub sp, sp, #8",
        "add sp, sp, #16",
        "vpop {d8, d9, d10, d11}",
        "pop {r4, r6, pc}",
    ]
    assert frame.bytes == _nested().stack == 12 + 32 + 8 + 8


def _narrow() -> Routine:
    """High registers, a kept argument, a word of its own, a number of three bytes, one below zero."""
    f = Function("narrow", "int *x", "int n", keep=(1,), local=1, narrow=True)
    low, high = f.core("low", LOW), f.cores("high", 2, HIGH)
    f.number(low, 0x10203)
    f("mov", high[0], low)
    f.number(low, -300)
    f("mov", high[1], low)
    f("ldr", low, f.kept[1])
    f("muls", low, "r0", low)
    f("str", low, "[sp, #0]")
    return f.done()


def test_narrow_instructions_only(tmp_path: Path) -> None:
    """High registers are saved through low ones; debuggers learn where they are."""
    frame = _narrow().frame
    texts = [f"{line.mnemonic} {', '.join(line.operands)}" for line in (*frame.begin, *frame.end)]
    assert texts == [
        "push {r4, r5, lr}",
        *("mov r4, r8", "mov r5, r9", "push {r4, r5}", "push {r1}", "sub sp, sp, #4"),
        *("add sp, sp, #8", "pop {r4, r5}", "mov r8, r4", "mov r9, r5", "pop {r4, r5, pc}"),
    ]
    body = [line for line in _narrow().body if isinstance(line, Instruction)]
    numbers = [f"{line.mnemonic} {line.operands[-1]}" for line in body]
    assert numbers[:5] == ["movs #1", "lsls #8", "adds #2", "lsls #8", "adds #3"]
    assert numbers[6:10] == ["movs #1", "lsls #8", "adds #43", "mvns r2"]
    (tmp_path / "f.S").write_text(assembly_file("test", [("f", _narrow())]))
    elf = _assemble(tmp_path / "f.S", find_core("cortex-m0plus"))
    (symbol,) = (s for s in symbol_table(elf).iter_symbols() if s.name == "f")
    assert symbol["st_size"] == _narrow().code_bytes
    (unwound,) = [e.get_decoded() for e in elf.get_dwarf_info().CFI_entries() if isinstance(e, FDE)]
    saved = {r: rule.arg for r, rule in unwound.table[-5].items() if isinstance(r, int)}
    assert saved == {4: -12, 5: -8, 14: -4, 8: -20, 9: -16}
    f = Function("f", "int *x", narrow=True)
    with pytest.raises(ValueError, match=r"ldr r0, \[r0\], #4: is no narrow instruction"):
        f("ldr", "r0", "[r0], #4")


def test_numbers_of_the_fpu(tmp_path: Path) -> None:
    """What a function takes of them is saved by whole vectors; without an FPU it is no code."""
    f = Function("f", "float *x")
    f("vldmia", f"{f.arguments[0]}!", f"{{{', '.join(f.singles('numbers', 21))}}}")
    with pytest.raises(ValueError, match="s21 is not taken"):
        f("vneg.f32", "s20", "s21")
    routine = f.done()
    assert [line.operands for line in routine.frame.begin] == [("{d8, d9, d10, d11}",)]
    assert (routine.instructions(), routine.stack, routine.code_bytes) == (4, 32, 14)
    (tmp_path / "f.S").write_text(assembly_file("test", [("f", routine)]))
    assert _bytes(_assemble(tmp_path / "f.S", find_core("cortex-m4")), ".text.f")[:14]
    with pytest.raises(subprocess.CalledProcessError) as failed:
        _assemble(tmp_path / "f.S", find_core("cortex-m3"))
    assert b"these functions use the FPU: compile with -mfloat-abi=hard" in failed.value.stderr


def test_kept_arguments_cost_no_instruction() -> None:
    f = Function("f", "int *x", "int n", keep=(1,))
    f("ldr", f.core("n", ("r5",)), f.kept[1])
    frame = f.done().frame
    assert [line.operands for line in frame.begin] == [("{r1, r5, lr}",)]
    assert [line.mnemonic for line in frame.end] == ["add", "pop"]


def test_instructions_are_those_of_a_call() -> None:
    assert _copy(40).done().instructions() == 2 + 2 + 3 * 3  # push, pop; movw, dlstp; three rounds
    pair = 1 + 5 * 4 + 3
    assert _nested().instructions(pairs=3) == 7 + 3 * pair + 2
    with pytest.raises(KeyError):
        _nested().instructions()


def test_no_loop_of_one_round() -> None:
    f = Function("f")
    with f.low_overhead_loop("once", 1):
        f("nop")
    assert f.done().instructions() == 2


@pytest.mark.parametrize(("count", "instructions"), [(11, 1 + 2 * (4 + 2) + 3), (4, 4), (3, 3), (0, 0)])
def test_rounds_and_what_is_left_of_them(count: int, instructions: int) -> None:
    f = Function("clear", "uint8_t *to")
    (to,) = f.arguments
    value = f.core("a byte")
    before = f.done().instructions()

    def some(stores: int) -> None:
        for _ in range(stores):
            f("strb", value, f"[{to}], #1")

    f.rounds("bytes", count, 4, some)
    assert f.done().instructions() - before == instructions


def test_a_writer_writes_equal_descriptions_once() -> None:
    class Adder(Writer):
        def __init__(self, number: int) -> None:
            self.f = Function("add", "int n")
            self.number = number

        def write(self) -> None:
            self.f("add", "r0", "r0", f"#{self.number}")

    assert Adder.routine(2) is Adder.routine(2)
    assert Adder.routine(2) != Adder.routine(3)


def test_numbers() -> None:
    def texts(value: int) -> list[str]:
        f = Function("f", "int x")
        f.number("r0", value)
        return [f"{line.mnemonic} {line.operands[1]}" for line in f.done().body]  # type: ignore[union-attr]

    assert texts(65535) == ["movw #65535"]
    assert texts(-2) == ["mvn #1"]
    assert texts(1 << 16) == ["movw #0", "movt #1"]
    assert texts(-300) == ["movw #65236", "movt #65535"]


def test_equal_functions_are_equal() -> None:
    assert _copy().done() == _copy().done()
    assert hash(_copy().done()) == hash(_copy().done())
    assert _copy().done() != _copy(41).done()


_LENGTHS = """
push {r4, lr}; push {r4, r8}; pop {r0, pc}; ldm r0!, {r1, r2}; stm r1!, {r2, r8}; ldm r0, {r1, r2}
mov r8, r9; mov r0, #1; movs r0, #255; movs r8, #1; movs r1, r2; mvn r0, #1; movw r0, #1
add r0, r0, r9; add r0, r1, r2; add r0, r0, #4; add r0, sp, #8; add sp, sp, #16; sub sp, sp, #508
add r0, r0, r1, asr #31; add sp, sp, #512; add r8, sp, #8
sub r0, r0, r1; adds r0, r1, r2; adds r0, r0, #255; adds r0, r1, #7
adds r0, r1, #8; subs r3, r3, #1; subs r8, r8, #1; subs r1, #4; cmp r0, #255; cmp r8, #1; cmp r8, r9
ldr r0, [r1]; ldr r0, [r1, #124]; ldr r0, [r1, #128]; ldr r0, [sp, #1020]; ldr r8, [sp]; ldr r0, [r1], #4
str r0, [r1, r2]; str r0, [r1, r2, lsl #2]; ldrb r0, [r1, #31]; ldrb r0, [r1, #32]; strh r0, [r1, #62]
ldrsb r0, [r1]; ldrsb r0, [r1, r2]; ldrd r0, r1, [r2]; lsls r0, r1, #3; asrs r0, r0, r1; lsl r0, r1, #3
sxtb r0, r1; sxtb r8, r1; uxth r0, r1; sxtb16 r0, r1; smlad r0, r1, r2, r3; ssat r0, #8, r1; bx lr; nop
"""


@pytest.mark.qemu
def test_lengths_of_instructions(tmp_path: Path) -> None:
    """As long as the assembler makes them, each by itself."""
    texts = [text.strip() for line in _LENGTHS.split("\n") for text in line.split(";") if text.strip()]
    body = "".join(f'.section .text.i{i}, "ax"\n{text}\n' for i, text in enumerate(texts))
    (tmp_path / "all.S").write_text(f".syntax unified\n.thumb\n{body}")
    elf = _assemble(tmp_path / "all.S", find_core("cortex-m33"))
    for number, text in enumerate(texts):
        mnemonic, _, operands = text.partition(" ")
        parts = tuple(_split(operands))
        assert is_narrow(mnemonic, parts) == (len(_bytes(elf, f".text.i{number}")) == 2), text


def _split(operands: str) -> Iterator[str]:
    depth, part = 0, ""
    for letter in operands:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and not depth:
            yield part.strip()
            part = ""
        else:
            part += letter
    yield from [part.strip()] if part else []


def _assemble(path: Path, core: Core) -> ELFFile:
    command = [require_tool("arm-none-eabi-gcc"), *core.gcc_flags, "-c", str(path)]
    command += ["-o", str(path.with_suffix(".o"))]
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    return ELFFile(io.BytesIO(path.with_suffix(".o").read_bytes()))


def _bytes(elf: ELFFile, section: str) -> bytes:
    found = elf.get_section_by_name(section)
    assert found is not None
    return found.data()


def _value(elf: ELFFile, symbol: str) -> int:
    found = symbol_table(elf).get_symbol_by_name(symbol)
    assert found is not None
    return int(found[0]["st_value"])


def _routines(core: Core) -> list[Routine]:
    """Those of every kernel of some cases of each operator and type."""
    levels = [Target(core, level) for level in ("speed", "size")]
    cases = few(all_cases(), lambda case: [(type(case.op), case.sig.x.dtype)], 3)
    kernels = (k for case in cases for target in levels for k in applicable(case.op, case.sig, target))
    return list(dict.fromkeys(routine for kernel in kernels for routine in kernel.routines))


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("core", "least"), [("cortex-m55", 50), ("cortex-m3", 5), nightly("cortex-m0plus", 5)]
)
def test_sizes_stack_and_unwinding_of_all_routines(tmp_path: Path, core: str, least: int) -> None:
    """Code is as long as is told, and the call frame after the prologue is the stack that is declared."""
    routines = {"nested": _nested()} if core == "cortex-m55" else {}
    routines |= {f"f{i}": routine for i, routine in enumerate(_routines(find_core(core)))}
    assert len(routines) > least
    (tmp_path / "all.S").write_text(assembly_file("All.", routines.items()))
    elf = _assemble(tmp_path / "all.S", find_core(core))
    symbols = {s.name: s for s in symbol_table(elf).iter_symbols()}
    frames = [e for e in elf.get_dwarf_info().CFI_entries() if isinstance(e, FDE)]
    assert len(frames) == len(routines)
    for (name, routine), entry in zip(routines.items(), frames, strict=True):
        words = sum(4 * len(words) for _, words in routine.tables)
        assert symbols[name]["st_size"] == routine.code_bytes - words, name
        assert symbols[f"crt_stack_of_{name}"]["st_value"] == routine.stack
        assert max(row["cfa"].offset for row in entry.get_decoded().table) == routine.stack


@pytest.mark.cc
def test_signed_return_addresses(tmp_path: Path) -> None:
    """Where the compiler is asked to protect branches, functions sign what they return to."""
    pytest.importorskip("ziglang")
    (tmp_path / "all.S").write_text(assembly_file("All.", [("nested", _nested()), ("copy", _copy().done())]))
    codes = {}
    for protection in ("none", "standard"):
        command = [sys.executable, "-m", "ziglang", "cc", *find_core("cortex-m85").zig_flags]
        command[-1] += "+pacbti"
        command += [f"-mbranch-protection={protection}", "-c", str(tmp_path / "all.S")]
        out = tmp_path / f"{protection}.o"
        subprocess.run([*command, "-o", str(out)], check=True, timeout=120)
        elf = ELFFile(io.BytesIO(out.read_bytes()))
        codes[protection] = _bytes(elf, ".text.nested")
        stack = _nested().stack + (8 if protection == "standard" else 0)
        assert _value(elf, "crt_stack_of_nested") == stack
    pac, aut = b"\xaf\xf3\x1d\x80", b"\xaf\xf3\x2d\x80"
    assert codes["standard"].startswith(pac)
    assert codes["standard"].endswith(aut + b"\x70\x47")  # then BX LR
    assert pac not in codes["none"]
    assert aut not in codes["none"]
