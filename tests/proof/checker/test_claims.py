"""What a run says of all code: each function here breaks one rule, and the run ends there."""

import subprocess
from pathlib import Path

import pytest

from crtgen.proof.checker.algebra.value import STACK_TOP, Symbol, WordByte, WordOp
from crtgen.proof.checker.binary.image import DecodedImage, read_image
from crtgen.proof.checker.core.machine import Machine
from crtgen.proof.checker.refusal import Refusal
from tests.support import require_tool

pytestmark = pytest.mark.qemu

ARENA = 0x20000000

BROKEN = {
    "a kept register": ("movs r4, #1 ; bx lr", "a register that a callee has to keep"),
    "half of d8": ("vmov.i32 q4, #0 ; bx lr", "a register that a callee has to keep"),
    "the stack": ("sub sp, #8 ; bx lr", "does not give the stack back"),
    "a return elsewhere": ("ldr r0, =start + 1 ; bx r0", "does not go back to where"),
    "a return by the stack": ("push {lr} ; str sp, [sp] ; pop {pc}", "does not go back to where"),
    "a load outside": ("ldr r0, =0x60000000 ; ldr r1, [r0] ; bx lr", "outside of constants, arena and stack"),
    "a store outside": ("ldr r0, =0x60000000 ; str r0, [r0] ; bx lr", "outside of arena and stack"),
    "a store into code": ("ldr r0, =start ; str r0, [r0] ; bx lr", "outside of arena and stack"),
    "a store behind the arena": ("ldr r0, =0x20000100 ; strb r0, [r0] ; bx lr", "outside of arena and stack"),
    "a store below the stack": ("sub r0, sp, #0x404 ; str r0, [r0] ; bx lr", "below the stack pointer"),
    "an address from an input": (
        "ldr r0, =0x20000000 ; ldrb r1, [r0] ; str r1, [r0, r1] ; bx lr",
        "an address depends on an input",
    ),
    "a jump by an input": ("ldr r0, =0x20000000 ; ldrb r1, [r0] ; blx r1 ; bx lr", "a call of what depends"),
    "a loop without an end": ("1: b 1b", "an endless loop: a branch to itself"),
    "undefined code": ("udf #1", "udf"),
    "a register of the system": ("msr control, r0 ; bx lr", "a register that is not followed"),
    "a register that says where the stack ends": (
        "msr msplim, r0 ; bx lr",
        "a register that is not followed",
    ),
    "interrupts": ("cpsid i ; bx lr", "a register that is not followed"),
    "a loop that is left": (
        "mov r3, lr ; movs r0, #3 ; dlstp.8 lr, r0 ; bx r3",
        "a loop with tail predication is left before its end",
    ),
    "a predicate from before": (
        "ldr r1, =0x20000000 ; vpst ; vldrbt.u8 q0, [r1] ; bx lr",
        "a predicate that nothing set",
    ),
    "a word on an odd place": ("ldr r0, =0x20000001 ; ldr r1, [r0] ; bx lr", ""),
}
M0 = ("a word on an odd place", "a load outside")


def assembled(folder: Path, core: str, names: tuple[str, ...]) -> DecodedImage:
    compiler = require_tool("arm-none-eabi-gcc")
    lines = [".syntax unified", ".thumb", ".text", "start:"]
    for name in names:
        label = name.replace(" ", "_")
        lines += [".balign 4", f".global {label}", f".type {label}, %function", f"{label}:"]
        lines += [*BROKEN[name][0].split(" ; "), ".ltorg", f".size {label}, . - {label}"]
    (folder / "broken.s").write_text("\n".join([*lines, ""]))
    flags = [f"-mcpu={core}", "-mthumb", "-nostdlib", "-nostartfiles", "-Wl,-Ttext=0x8000,-estart"]
    command = [compiler, *flags, "broken.s", "-o", "broken.elf"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    return read_image(folder / "broken.elf")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> DecodedImage:
    return assembled(tmp_path_factory.mktemp("broken"), "cortex-m55", tuple(BROKEN))


def run(image: DecodedImage, name: str) -> Machine:
    """Run a function of which the first byte of the arena is an input."""
    machine = Machine(image, 1000)
    machine.memory.allow(ARENA, ARENA + 0x100)
    machine.memory.allow_stack(STACK_TOP - 0x400, STACK_TOP)
    machine.memory.store_byte(ARENA, Symbol(0, 0, -128, 127))
    machine.run(image.symbols[name.replace(" ", "_")], STACK_TOP)
    return machine


@pytest.mark.parametrize("name", [name for name, (_, said) in BROKEN.items() if said])
def test_the_run_ends_there(image: DecodedImage, name: str) -> None:
    with pytest.raises(Refusal, match=BROKEN[name][1]):
        run(image, name)


def test_alignment_is_asked_for_where_the_core_asks(image: DecodedImage, tmp_path: Path) -> None:
    small = assembled(tmp_path, "cortex-m0", M0)
    with pytest.raises(Refusal, match="is not aligned, and this core asks for that"):
        run(small, "a word on an odd place")
    run(image, "a word on an odd place")


def test_memory_and_registers_from_before_are_no_output(image: DecodedImage) -> None:
    """They are neither a number nor a symbol, and no two are the same."""
    machine = run(image, "a word on an odd place")
    found = [machine.memory.byte(ARENA + 4), machine.memory.byte(ARENA + 8)]
    assert all(isinstance(v, WordByte) for v in found)
    words = [v.word for v in found if isinstance(v, WordByte)] + Machine(image, 1).r
    assert all(isinstance(w, WordOp) and w.name == "unknown" for w in words)
    assert len({w.args for w in words if isinstance(w, WordOp)}) == len(words) == 18
