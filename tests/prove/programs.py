"""Instructions with random states, run by QEMU: what a core makes of each."""

import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support import require_tool

__all__ = ["CASES", "CORE", "HELIUM", "States", "run_on_core"]

CORE = (
    "adds r0, r1, r2", "subs r0, r1, r2", "adcs r0, r1, r2", "sbcs r0, r1, r2", "rsbs r0, r1, #0",
    "add.w r0, r1, r2, lsl #3", "sub.w r0, r1, r2, asr #5", "ands r0, r1, r2", "orr.w r0, r1, r2, lsr #7",
    "orr.w r0, r1, r2, lsl #16",
    "eors r0, r1, r2", "bics r0, r1, r2", "orn r0, r1, r2", "mvns r0, r1", "mov.w r0, r1, ror #13",
    "movs r0, r1", "movw r0, #0x1234", "movt r0, #0x8765", "cmn r1, r2", "cmp r1, r2", "tst r1, r2",
    "teq r1, r2", "lsls r0, r1, #5", "lsrs r0, r1, #9", "asrs r0, r1, #17", "asrs r0, r1, #31",
    "lsls r0, r0, r3", "lsrs r0, r0, r3", "asrs r0, r0, r3", "rors r0, r3",
    "sxtb r0, r1", "uxtb r0, r1", "sxth r0, r1", "uxth r0, r1", "sxtb16 r0, r1", "sxtb16 r0, r1, ror #8",
    "uxtb16 r0, r1, ror #16", "sxtab16 r0, r1, r2", "sxtab16 r0, r1, r2, ror #8", "sxtab r0, r1, r2",
    "sxtah r0, r1, r2", "uxtab r0, r1, r2", "uxtah r0, r1, r2", "pkhbt r0, r1, r2",
    "pkhbt r0, r1, r2, lsl #16",
    "pkhtb r0, r1, r2", "pkhtb r0, r1, r2, asr #16", "smlad r0, r1, r2, r3", "smladx r0, r1, r2, r3",
    "smuad r0, r1, r2", "smuadx r0, r1, r2", "smlabb r0, r1, r2, r3", "smlabt r0, r1, r2, r3",
    "smlatb r0, r1, r2, r3", "smlatt r0, r1, r2, r3", "smulbb r0, r1, r2", "smulbt r0, r1, r2",
    "smultb r0, r1, r2", "smultt r0, r1, r2", "smlawb r0, r1, r2, r3", "smlawt r0, r1, r2, r3",
    "smulwb r0, r1, r2", "smulwt r0, r1, r2", "smmla r0, r1, r2, r3", "smmlar r0, r1, r2, r3",
    "smmls r0, r1, r2, r3", "smmul r0, r1, r2", "smmulr r0, r1, r2", "mul r0, r1, r2", "muls r0, r1",
    "mla r0, r1, r2, r3", "mls r0, r1, r2, r3", "smull r0, r3, r1, r2", "umull r0, r3, r1, r2",
    "smlal r0, r3, r1, r2", "umlal r0, r3, r1, r2", "ssat r0, #8, r1", "ssat r0, #16, r1, asr #7",
    "ssat r0, #12, r1, lsl #4", "usat r0, #8, r1", "usat r0, #5, r1, asr #3", "sadd16 r0, r1, r2",
    "ssub16 r0, r1, r2", "bfi r0, r1, #8, #8", "bfi r0, r1, #16, #16", "bfi r0, r1, #3, #7",
    "ubfx r0, r1, #5, #9", "sbfx r0, r1, #5, #9", "clz r0, r1", "rev r0, r1",
    "ssub8 r0, r1, r2 ; sel r3, r1, r2", "ssub8 r0, r2, r1 ; sel r3, r2, r0",
    "asrl r0, r3, #7", "lsll r0, r3, #9", "lsrl r0, r3, #31",
    "orr r3, #1 ; udiv r0, r1, r3", "orr r3, #1 ; sdiv r0, r1, r3", "it lt ; movlt r0, r1",
    "ite hi ; addhi r0, r1, r2 ; subls r0, r1, r2",
)  # fmt: skip

HELIUM = (
    "vadd.i32 q0, q1, q2", "vadd.i16 q0, q1, q2", "vadd.i8 q0, q1, q2", "vadd.i32 q0, q1, r1",
    "vsub.i32 q0, q1, q2", "vsub.i16 q0, q1, q2", "vmul.i32 q0, q1, q2", "vmul.i16 q0, q1, q2",
    "vmulh.s32 q0, q1, q2", "vrmulh.s32 q0, q1, q2", "vqrdmulh.s32 q0, q1, q2", "vqrdmulh.s32 q0, q1, r1",
    "vqdmulh.s32 q0, q1, q2", "vqdmulh.s32 q0, q1, r1", "vmla.s32 q0, q1, r1", "vmlas.s32 q0, q1, r1",
    "vqadd.s16 q0, q1, q2", "vqsub.s16 q0, q1, q2", "vqadd.s8 q0, q1, q2", "vrshr.s32 q0, q1, #7",
    "vrshr.s32 q0, q1, #12", "vrshr.s16 q0, q1, #3", "vshr.s32 q0, q1, #9", "vshl.i32 q0, q1, #5",
    "vshl.i16 q0, q1, #5", "vmax.s8 q0, q1, q2", "vmin.s8 q0, q1, q2", "vmax.s16 q0, q1, q2",
    "vmin.u32 q0, q1, q2", "vmax.u32 q0, q1, q2", "vmovlb.s16 q0, q1", "vmovlt.s16 q0, q1",
    "vmovnb.i32 q0, q1", "vmovnt.i32 q0, q1", "vmovnb.i16 q0, q1", "vqmovnb.s32 q0, q1",
    "vqmovnt.s32 q0, q1", "vqmovnb.s16 q0, q1", "vqmovnt.s16 q0, q1", "vqrshrnb.s32 q0, q1, #5",
    "vqrshrnt.s32 q0, q1, #11", "vqrshrnb.s16 q0, q1, #3", "vqrshrnt.s16 q0, q1, #8",
    "vqshrnb.s32 q0, q1, #5",
    "vshrnb.i32 q0, q1, #7", "vmlav.s8 r0, q1, q2", "vmlava.s8 r0, q1, q2", "vmlav.s16 r0, q1, q2",
    "vmlava.s16 r0, q1, q2", "vmlava.s32 r0, q1, q2", "vaddv.s32 r0, q1", "vaddva.s32 r0, q1",
    "vaddv.s8 r0, q1", "vmaxv.s8 r0, q1", "vminv.s8 r0, q1", "vdup.8 q0, r1", "vdup.16 q0, r1",
    "vdup.32 q0, r1", "vmov q0[2], q0[0], r1, r2", "vmov q0[3], q0[1], r1, r2", "vmov r0, r3, q1[2], q1[0]",
    "vmov.32 q0[1], r1", "vmov.i32 q0, #0x7f", "vmov q0, q1", "vctp.8 r3 ; vpsel q0, q1, q2",
    "vrshl.s32 q0, q1, q2", "vidup.u8 q0, r0, #4", "vidup.u32 q0, r0, #1", "vddup.u16 q0, r0, #8",
    "movs r0, #4 ; movs r1, #12 ; viwdup.u8 q0, r0, r1, #2",
    "movs r0, #4 ; movs r1, #12 ; vdwdup.u16 q0, r0, r1, #4",
    "vshl.u32 q0, r3", "rsb r3, #0 ; vshl.u32 q0, r3", "rsb r3, #0 ; vshl.s32 q0, r3", "vsri.32 q0, q1, #24",
    "vsri.32 q0, q1, #8", "vshlc q0, r3, #32", "vidup.u8 q1, r0, #4 ; vcmp.s8 ge, q1, r3 ; vpsel q0, q1, q2",
    "vidup.u16 q1, r0, #4 ; vcmp.u16 hi, q1, r3 ; vpsel q0, q1, q2",
    "vorr q0, q1, q2", "vand q0, q1, q2", "veor q0, q1, q2",
)  # fmt: skip

CASES = CORE + HELIUM

_WORDS = 18
"""Of a state: r0 to r3, what sets the flags, q0 to q2."""

_START = """
.syntax unified
.arch armv8.1-m.main
.arch_extension mve.fp
.thumb
.section .vectors, "a"
.word 0x20040000, start + 1
.text
.global start
.thumb_func
start:
ldr r0, =0xE000ED88
ldr r1, =0x00F00000
str r1, [r0]
dsb
isb
ldr r10, =0x21000000
"""

_CASE = """
ldr r8, =states
ldr r9, ={count}
1: ldmia r8!, {{r0-r3}}
ldmia r8!, {{r6, r7}}
vldrw.u32 q0, [r8], #16
vldrw.u32 q1, [r8], #16
vldrw.u32 q2, [r8], #16
.global case{number}
.type case{number}, %function
case{number}:
cmp r6, r7
{text}
.global end{number}
end{number}:
mrs r5, apsr
stmia r10!, {{r0-r3, r5}}
vstrw.32 q0, [r10], #16
subs r9, #1
bne 1b
b 2f
.ltorg
2:
"""

_END = """
ldr r4, =0x21000000
sub r10, r10, r4
ldr r1, =opening
movs r0, #1
bkpt 0xab
ldr r1, =writing
str r0, [r1]
str r4, [r1, #4]
str r10, [r1, #8]
movs r0, #5
bkpt 0xab
movs r0, #0x18
ldr r1, =0x20026
bkpt 0xab
.ltorg
.balign 4
opening: .word name, 5, 3
name: .asciz ":tt"
.data
.balign 4
writing: .word 0, 0, 0
.section .rodata
.balign 4
states:
"""

_LINK = """SECTIONS {
  . = 0; .vectors : { *(.vectors) } .text : { *(.text) } .rodata : { *(.rodata) }
  . = 0x20070000; .data : { *(.data) }
}
"""


_QEMU = (
    "-M", "mps3-an547", "-display", "none", "-serial", "none", "-monitor", "none",
    "-semihosting-config", "enable=on,target=native",
)  # fmt: skip


@dataclass(frozen=True)
class States:
    """The image, the states by number, and of each case and state what the core had afterwards.

    A result is r0 to r3, APSR, and the four words of q0.
    """

    image: Path
    states: tuple[tuple[int, ...], ...]
    results: tuple[tuple[tuple[int, ...], ...], ...]


def run_on_core(directory: Path, count: int, seed: int) -> States:
    """Run every case on ``count`` states, on QEMU's Cortex-M55."""
    numbers = random.Random(seed)
    states = tuple(_state(numbers) for _ in range(count))
    source = _START + "".join(
        _CASE.format(count=count, number=i, text=text.replace(" ; ", "\n")) for i, text in enumerate(CASES)
    )
    source += _END + "".join(f".word {', '.join(map(hex, state))}\n" for state in states)
    (directory / "cases.s").write_text(source)
    (directory / "link.ld").write_text(_LINK)
    image = directory / "cases.elf"
    compiler = require_tool("arm-none-eabi-gcc")
    flags = ["-mcpu=cortex-m55", "-mthumb", "-nostdlib", "-nostartfiles", "-Tlink.ld", "-Wl,-estart"]
    subprocess.run([compiler, *flags, "cases.s", "-o", image.name], cwd=directory, check=True, timeout=60)
    output = subprocess.run(
        [require_tool("qemu-system-arm"), *_QEMU, "-kernel", image.name],
        cwd=directory, capture_output=True, timeout=20, check=False,
    ).stdout  # fmt: skip
    assert len(output) == len(CASES) * count * 36, len(output)
    words = [int.from_bytes(output[i : i + 4], "little") for i in range(0, len(output), 4)]
    rows = [tuple(words[i : i + 9]) for i in range(0, len(words), 9)]
    results = tuple(tuple(rows[i * count : (i + 1) * count]) for i in range(len(CASES)))
    return States(image, states, results)


def _state(numbers: random.Random) -> tuple[int, ...]:
    """Words at random, many of them near where something saturates or changes its sign."""
    edges = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)

    def word() -> int:
        if numbers.random() < 0.3:
            return (numbers.choice(edges) + numbers.randint(-1, 1)) & 0xFFFFFFFF
        return numbers.getrandbits(32) if numbers.random() < 0.7 else numbers.getrandbits(32) >> 20

    r = [word() for _ in range(6)]
    r[3] &= 0x1F  # an amount of a shift, and of a predicate
    q = [word() for _ in range(12)]
    if numbers.random() < 0.5:  # amounts of VRSHL, to the right
        q[8:] = [-numbers.randint(1, 31) & 0xFFFFFFFF for _ in range(4)]
    return (*r, *q)
