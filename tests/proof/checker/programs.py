"""Instructions with random states, run by QEMU: what a core makes of each."""

import random
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

from tests.support import require_tool

__all__ = ["ALIASED", "CASES", "CORE", "HELIUM", "M55", "OTHERS", "Core", "States", "aliased", "run_on_core"]

CORE = (
    "adds r0, r1, r2", "subs r0, r1, r2", "adcs r0, r1, r2", "sbcs r0, r1, r2", "rsbs r0, r1, #0",
    "add.w r0, r1, r2, lsl #3", "sub.w r0, r1, r2, asr #5", "ands r0, r1, r2", "orr.w r0, r1, r2, lsr #7",
    "orr.w r0, r1, r2, lsl #16", "adds r3, r1, r2 ; mov.w r0, r1, rrx", "ands.w r0, r1, r2, lsr #7",
    "orrs.w r0, r1, r2, lsl #3", "subs r3, r1, r2 ; movs.w r0, r1, rrx", "teq r1, r2, asr #31",
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
    "shadd16 r0, r1, r2", "qadd16 r0, r1, r2", "qsub16 r0, r1, r2", "ssat16 r0, #7, r1", "usat16 r0, #8, r1",
    "sadd16 r0, r1, r2 ; sel r3, r1, r2", "ssub16 r0, r1, r2 ; sel r3, r1, r2",
    "ssub16 r0, r2, r1 ; sel r3, r1, r2", "ssub16 r0, r1, r2 ; sel r3, r0, r2",
    "ssub8 r0, r1, r2 ; sel r3, r1, r2", "ssub8 r0, r2, r1 ; sel r3, r2, r0",
    "asrl r0, r3, #7", "lsll r0, r3, #9", "lsrl r0, r3, #31",
    "orr r3, #1 ; udiv r0, r1, r3", "orr r3, #1 ; sdiv r0, r1, r3", "it lt ; movlt r0, r1",
    "ite hi ; addhi r0, r1, r2 ; subls r0, r1, r2", "uxtab16 r0, r1, r2", "uxtab16 r0, r1, r2, ror #8",
    "pkhbt r0, r1, r2, lsl #6", "pkhtb r0, r1, r2, asr #3",
    "mov ip, r1 ; movs ip, ip, lsl #1 ; adc r3, r1, r2 ; mov r0, ip",
    "smlald r0, r3, r1, r2", "smlaldx r0, r3, r1, r2", "smlalbb r0, r3, r1, r2", "smlalbt r0, r3, r1, r2",
    "smlaltb r0, r3, r1, r2", "smlaltt r0, r3, r1, r2",
    "smlal r0, r3, r1, r2 ; ubfx r0, r0, #0, #21 ; lsr r3, r3, #10",
    "smlal r0, r3, r1, r2 ; lsr r0, r0, #21 ; bfi r0, r3, #11, #10",
    "cmp r1, r2 ; csel r0, r1, r3, lt", "cmp r1, r2 ; csinc r0, r1, r3, hs",
    "cmp r1, r2 ; csinv r0, r3, r1, ls", "cmp r1, r2 ; csneg r0, r1, r2, eq",
    "cmp r1, r2 ; cset r0, ne", "cmp r1, r2 ; csetm r0, mi",
    "cmp r1, r2 ; cinc r0, r3, gt", "cmp r1, r2 ; cinv r0, r3, le", "cmp r1, r2 ; cneg r0, r1, cc",
    "cmp r1, r2 ; csel r0, r1, zr, ge", "cmp r1, r2 ; csinc r0, zr, r3, pl",
    ".inst.n 0x1f00", ".inst.n 0x1dc0",
)  # fmt: skip
"""The last two are SUBS and ADDS of a register and a small number, as Clang encodes them."""

HELIUM = (
    "vadd.i32 q0, q1, q2", "vadd.i16 q0, q1, q2", "vadd.i8 q0, q1, q2", "vadd.i32 q0, q1, r1",
    "vsub.i32 q0, q1, q2", "vsub.i16 q0, q1, q2", "vmul.i32 q0, q1, q2", "vmul.i16 q0, q1, q2",
    "vmulh.s32 q0, q1, q2", "vrmulh.s32 q0, q1, q2", "vqrdmulh.s32 q0, q1, q2", "vqrdmulh.s32 q0, q1, r1",
    "vqdmulh.s32 q0, q1, q2", "vqdmulh.s32 q0, q1, r1", "vmla.s32 q0, q1, r1", "vmlas.s32 q0, q1, r1",
    "vqadd.s16 q0, q1, q2", "vqsub.s16 q0, q1, q2", "vqadd.s8 q0, q1, q2", "vrshr.s32 q0, q1, #7",
    "vqadd.u32 q0, q1, q2", "vqsub.u32 q0, q1, q2", "vqadd.u32 q0, q1, r1",
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
    "vrshl.s32 q0, q1, q2", "vshl.s32 q0, q1, q2", "vidup.u8 q0, r0, #4",
    "vidup.u32 q0, r0, #1", "vddup.u16 q0, r0, #8",
    "movs r0, #4 ; movs r1, #12 ; viwdup.u8 q0, r0, r1, #2",
    "movs r0, #4 ; movs r1, #12 ; vdwdup.u16 q0, r0, r1, #4",
    "vshl.u32 q0, r3", "rsb r3, #0 ; vshl.u32 q0, r3", "rsb r3, #0 ; vshl.s32 q0, r3", "vsri.32 q0, q1, #24",
    "vsri.32 q0, q1, #8", "vshlc q0, r3, #32", "vidup.u8 q1, r0, #4 ; vcmp.s8 ge, q1, r3 ; vpsel q0, q1, q2",
    "vidup.u16 q1, r0, #4 ; vcmp.u16 hi, q1, r3 ; vpsel q0, q1, q2",
    "vcmp.u32 hi, q1, q2 ; vpsel q0, q1, q2", "vcmp.s32 le, q1, q2 ; vpsel q0, q1, q2",
    "vidup.u16 q1, r0, #4 ; vidup.u16 q2, r0, #1 ; vcmp.u16 cs, q1, q2 ; vpsel q0, q1, q2",
    "vorr q0, q1, q2", "vand q0, q1, q2", "veor q0, q1, q2", "vsli.32 q0, q1, #16", "vsli.32 q0, q1, #8",
    "vsli.16 q0, q1, #8", "vsri.32 q0, q1, #16", "vsri.16 q0, q1, #8", "vmullb.s16 q0, q1, q2",
    "vmullt.s16 q0, q1, q2", "vabs.s32 q0, q1", "vabs.s8 q0, q1", "vneg.s16 q0, q1", "vmulh.u32 q0, q1, q2",
    "vshr.u32 q0, q1, #9", "vshlc q0, r3, #8", "vshlc q0, r3, #24",
    "vmlalv.s16 r2, r3, q1, q2", "vmlalva.s16 r2, r3, q1, q2",
    "movs r0, #3 ; vctp.16 r0 ; vpst ; vaddt.i16 q0, q1, q2",
    "movs r0, #7 ; vctp.8 r0 ; vpst ; vaddt.i16 q0, q1, r1",
    "vpt.s32 lt, q1, zr ; vaddt.i32 q0, q1, r1",
    "vpt.s32 ge, q1, r3 ; vaddt.i32 q0, q2, r1",
    "vpt.s32 lt, q1, zr ; vaddt.i32 q0, q1, r1 ; vpsel q0, q2, q1",
    *(f"movs r0, #{n} ; dlstp.8 lr, r0 ; 3: vctp.8 r3 ; letp lr, 3b ; vpsel q0, q1, q2" for n in (5, 16, 21)),
    "vidup.u16 q1, r0, #4 ; movs r0, #5 ; "
    "dlstp.16 lr, r0 ; 3: vcmp.u16 hi, q1, r3 ; vpsel q0, q1, q2 ; letp lr, 3b ; mov r0, lr",
    "movs r0, #3 ; dlstp.32 lr, r0 ; 3: vctp.8 r3 ; vpsel q0, q1, q2 ; letp lr, 3b ; vmrs r0, p0",
    "movs r0, #40 ; dlstp.8 lr, r0 ; 3: vadd.i8 q0, q0, q1 ; letp lr, 3b ; mov r0, lr",
    "movs r0, #0 ; mov lr, r1 ; wls lr, r0, 3f ; mov lr, r2 ; 3: mov r0, lr",
    "movs r0, #0 ; mov lr, r1 ; wlstp.8 lr, r0, 3f ; mov lr, r2 ; 3: mov r0, lr",
    "movs r0, #3 ; dls lr, r0 ; 3: add r3, r3, r1 ; le lr, 3b ; mov r0, lr",
    *(
        "vmov.i32 q3, #0x55 ; ldr r0, =states ; "
        f"vld4{k}.8 {{q0, q1, q2, q3}}, [r0]{back} ; veor q0, q0, q1 ; veor q0, q0, q3"
        for k, back in enumerate(("", "", "", "!"))
    ),
)  # fmt: skip

_CHOICES = ("vseleq", "vselge", "vselgt")
_TO_REALS = "vcvt.f32.s32 q1, q1 ; vcvt.f32.s32 q2, q2"
_SMALL = "movw r3, #0 ; movt r3, #0x3380"
"""2^-24, as a number of float32."""
REALS = (
    *(f"{name}.f32 s0, s4, s8" for name in ("vadd", "vsub", "vmul", "vdiv", "vmaxnm", "vminnm")),
    "vfma.f32 s0, s4, s8", "vfms.f32 s0, s4, s8", "vnmul.f32 s0, s4, s8", "vsqrt.f32 s0, s4",
    *(f"{_TO_REALS} ; {name}.f32 s0, s4, s8" for name in ("vmla", "vmls", "vnmla", "vnmls", "vnmul")),
    f"{_TO_REALS} ; vsqrt.f32 s0, s4",
    *(f"{name}.f32 q0, q1, q2" for name in ("vadd", "vsub", "vmul", "vmaxnm", "vminnm", "vfma")),
    *(f"{_TO_REALS} ; {name}.f32 s0, s4, s8" for name in ("vadd", "vsub", "vmul", "vdiv", "vmaxnm", "vfma")),
    *(f"{_TO_REALS} ; {name}.f32 q0, q1, q2" for name in ("vadd", "vsub", "vmul", "vminnm")),
    f"{_SMALL} ; {_TO_REALS} ; vmul.f32 q0, q1, r3 ; vfma.f32 q0, q2, r3",
    f"{_SMALL} ; {_TO_REALS} ; vmul.f32 q1, q1, r3 ; vcvtn.s32.f32 q0, q1",
    f"{_SMALL} ; {_TO_REALS} ; vmul.f32 q1, q1, r3 ; vcvt.s32.f32 q0, q1",
    f"{_SMALL} ; vmov s9, r3 ; vcvt.f32.s32 s4, s4 ; vmul.f32 s4, s4, s9 ; vcvt.s32.f32 s0, s4",
    f"{_SMALL} ; vmov s9, r3 ; vcvt.f32.s32 s4, s4 ; vmul.f32 s4, s4, s9 ; vcvtr.s32.f32 s0, s4",
    "vcvta.s32.f32 s0, s4", "vcvta.s32.f32 q0, q1", "vcvt.s16.f32 s4, s4, #1 ; vmov.f32 s0, s4",
    f"{_SMALL} ; vcvt.f32.s32 s4, s4 ; vcvt.s16.f32 s4, s4, #3 ; vmov.f32 s0, s4",
    "vcvt.f32.s32 s4, s4, #15 ; vmov.f32 s0, s4", "vcvt.f32.s32 s4, s4, #32 ; vmov.f32 s0, s4",
    "vcvt.s32.f32 s4, s4, #7 ; vmov.f32 s0, s4", "vcvt.s32.f32 s4, s4, #32 ; vmov.f32 s0, s4",
    f"{_SMALL} ; vcvt.f32.s32 s4, s4, #3 ; vcvt.s32.f32 s4, s4, #5 ; vmov.f32 s0, s4",
    "vadd.f32 q0, q1, r1", "vcvt.f32.s32 q0, q1", "vcvt.s32.f32 q0, q1", "vcvtn.s32.f32 q0, q1",
    "vcvt.f32.s32 s0, s4", "vcvt.s32.f32 s0, s4", "vcvtr.s32.f32 s0, s4", "vcvtn.s32.f32 s0, s4",
    "vneg.f32 s0, s4", "vabs.f32 s0, s4", "vmov.f32 s0, s9", "vmov.f32 s0, #0.3125", "vmov.f32 s1, #-21.0",
    "vmov s0, s1, r1, r2 ; vmov r3, r0, s4, s5", "vmov s2, r1 ; vmov r3, s8",
    "vcmpe.f32 s4, s8 ; vmrs APSR_nzcv, fpscr", "vcmp.f32 s4, #0.0 ; vmrs APSR_nzcv, fpscr",
    "vcmp.f32 s4, s8 ; vmrs APSR_nzcv, fpscr ; it mi ; vmovmi.f32 s4, s8 ; vmov.f32 s0, s4",
    *(f"vcmp.f32 s4, s8 ; vmrs APSR_nzcv, fpscr ; {name}.f32 s0, s4, s8" for name in _CHOICES),
    *(f"cmp r0, r1 ; {name}.f32 s0, s4, s8" for name in _CHOICES),
)  # fmt: skip

CASES = CORE + HELIUM + REALS

_SAME = (
    "r1=r0", "r2=r0", "r2=r1", "r3=r0", "r3=r1", "r3=r2", "r1=r0 r2=r0", "r1=r0 r2=r0 r3=r0", "r2=r1 r3=r1",
    "r0=r3 r1=r3", "q1=q0", "q2=q0", "q2=q1", "q1=q0 q2=q0",
)  # fmt: skip
_TWO_RESULTS = re.compile(r"(?:^|; )(?:[su]m[ul]\w*l\w*|asrl|lsll|lsrl|vmov) (r\d), (r\d),")

_NO_FORM = re.compile(
    r"^\.inst|vld4|v[iwd]+dup|^(asrl|lsll|lsrl) r\d, r[02]|^v(mlav|addv)\S* r[13]"
    r"|^vmlalv\S* (r[13]|r\d, r[02])"
)
"""Registers that have to be even, or odd."""


def _renamed(names: Mapping[str, str], register: re.Match[str]) -> str:
    return names.get(register[0], register[0])


def aliased(cases: Sequence[str]) -> tuple[str, ...]:
    """Cases with one register in several places, wherever that has a meaning."""
    found: dict[str, None] = {}
    for text, same in product(cases, _SAME):
        names = dict(pair.split("=") for pair in same.split())
        made = re.sub(r"\b[rq][0-3]\b", partial(_renamed, names), text)
        twice = any(m[1] == m[2] for m in _TWO_RESULTS.finditer(made))
        if not twice and not _NO_FORM.search(made):
            found[made] = None
    return tuple(text for text in found if text not in cases)


BASE = (
    "adds r0, r1, r2", "subs r0, r1, r2", "adcs r0, r1", "sbcs r0, r1", "rsbs r0, r1, #0", "adds r0, #200",
    ".inst.n 0x1f00", ".inst.n 0x1dc0",
    "subs r0, #3", "ands r0, r1", "orrs r0, r1", "eors r0, r1", "bics r0, r1", "mvns r0, r1", "muls r0, r1",
    "cmn r1, r2", "cmp r1, r2", "tst r1, r2", "lsls r0, r1, #5", "lsrs r0, r1, #9", "asrs r0, r1, #31",
    "lsls r0, r3", "lsrs r0, r3", "asrs r0, r3", "rors r0, r3", "sxtb r0, r1", "uxtb r0, r1", "sxth r0, r1",
    "uxth r0, r1", "rev r0, r1", "movs r0, r1",
)  # fmt: skip
"""Of the Cortex-M0."""

_LONG = re.compile(r"asrl|lsll|lsrl|cmp r1, r2 ; c")
_DSP = re.compile(
    r"[su]xt(b16|a)|pkh|sml|smu|smm|(s|sh|q)add16|qsub16|[su]sat16|ssub|asrl|lsll|lsrl|cmp r1, r2 ; c"
)


@dataclass(frozen=True)
class Core:
    """A core and a machine of QEMU with it; where results and variables go, and what it can do."""

    name: str
    machine: str
    results: int
    variables: int
    cases: tuple[str, ...]
    has_helium: bool = False


M55 = Core("cortex-m55", "mps3-an547", 0x21000000, 0x20070000, CASES, has_helium=True)
ALIASED = replace(M55, cases=aliased(CORE + HELIUM))
OTHERS = (
    Core("cortex-m0", "microbit", 0x20000000, 0x20003800, BASE),
    Core("cortex-m3", "mps2-an385", 0x21000000, 0x20070000, tuple(c for c in CORE if not _DSP.match(c))),
    Core("cortex-m4", "mps2-an386", 0x21000000, 0x20070000, tuple(c for c in CORE if not _LONG.match(c))),
)

_START = """
.syntax unified
.thumb
.section .vectors, "a"
.word {stack:#x}, start + 1
.text
.global start
.thumb_func
start:
{enable}
ldr r4, ={results:#x}
mov r10, r4
"""

_ENABLE = """
ldr r0, =0xE000ED88
ldr r1, =0x00F00000
str r1, [r0]
dsb
isb
"""

_CASE = """
ldr r4, =states
mov r8, r4
ldr r4, ={count}
mov r9, r4
1: mov r4, r8
ldmia r4!, {{r0-r3}}
ldmia r4!, {{r6, r7}}
{load}
mov r8, r4
.global case{number}
.type case{number}, %function
case{number}:
cmp r6, r7
{text}
.global end{number}
end{number}:
mrs r5, apsr
mov r4, r10
stmia r4!, {{r0-r3, r5}}
{store}
mov r10, r4
mov r4, r9
subs r4, #1
mov r9, r4
beq 2f
b 1b
.ltorg
2:
"""
_LOAD = "vldrw.u32 q0, [r4], #16\nvldrw.u32 q1, [r4], #16\nvldrw.u32 q2, [r4], #16"
_SKIP = "adds r4, #48"
_STORE = "vstrw.32 q0, [r4], #16"

_END = """
ldr r4, ={results:#x}
mov r5, r10
subs r5, r5, r4
ldr r1, =opening
movs r0, #1
bkpt 0xab
ldr r1, =writing
str r0, [r1]
str r4, [r1, #4]
str r5, [r1, #8]
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
  . = VARIABLES; .data : { *(.data) }
}
"""


_QEMU = (
    "-display", "none", "-serial", "none", "-monitor", "none",
    "-semihosting-config", "enable=on,target=native",
)  # fmt: skip


@dataclass(frozen=True)
class States:
    """The image, the states by number, and of each case and state what the core had afterwards.

    A result is r0 to r3, APSR, and the four words of q0 where there is one.
    """

    image: Path
    states: tuple[tuple[int, ...], ...]
    results: tuple[tuple[tuple[int, ...], ...], ...]


def run_on_core(directory: Path, count: int, seed: int, core: Core = M55) -> States:
    """Run every case on ``count`` states, on QEMU's core."""
    numbers = random.Random(seed)
    states = tuple(_state(numbers) for _ in range(count))
    enable, load, store = (_ENABLE, _LOAD, _STORE) if core.has_helium else ("", _SKIP, "")
    source = _START.format(stack=core.variables + 0x800, enable=enable, results=core.results)
    for i, text in enumerate(core.cases):
        lines = text.replace(" ; ", "\n")
        source += _CASE.format(count=count, number=i, text=lines, load=load, store=store)
    source += _END.format(results=core.results)
    source += "".join(f".word {', '.join(map(hex, state))}\n" for state in states)
    (directory / "cases.s").write_text(source)
    (directory / "link.ld").write_text(_LINK.replace("VARIABLES", hex(core.variables)))
    image = directory / "cases.elf"
    compiler = require_tool("arm-none-eabi-gcc")
    flags = [f"-mcpu={core.name}", "-mthumb", "-nostdlib", "-nostartfiles", "-Tlink.ld", "-Wl,-estart"]
    flags += ["-mfloat-abi=hard"] if core.has_helium else []
    subprocess.run([compiler, *flags, "cases.s", "-o", image.name], cwd=directory, check=True, timeout=60)
    output = subprocess.run(
        [require_tool("qemu-system-arm"), "-M", core.machine, *_QEMU, "-kernel", image.name],
        cwd=directory, capture_output=True, timeout=60, check=False,
    ).stdout  # fmt: skip
    size = 9 if core.has_helium else 5
    assert len(output) == len(core.cases) * count * size * 4, len(output)
    words = [int.from_bytes(output[i : i + 4], "little") for i in range(0, len(output), 4)]
    rows = [tuple(words[i : i + size]) for i in range(0, len(words), size)]
    results = tuple(tuple(rows[i * count : (i + 1) * count]) for i in range(len(core.cases)))
    return States(image, states, results)


def _state(numbers: random.Random) -> tuple[int, ...]:
    """Words at random, many of them near where something saturates or changes its sign."""
    edges = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)

    def word() -> int:
        if numbers.random() < 0.3:
            return (numbers.choice(edges) + numbers.randint(-1, 1)) & 0xFFFFFFFF
        return numbers.getrandbits(32) if numbers.random() < 0.7 else numbers.getrandbits(32) >> 20

    r = [word() for _ in range(6)]
    if r[3] & 0x100:
        r[3] &= 0xFF  # an amount of a shift, and of a predicate
    q = [word() for _ in range(12)]
    if numbers.random() < 0.5:  # amounts of VRSHL, to the right
        q[8:] = [-numbers.randint(1, 31) & 0xFFFFFFFF for _ in range(4)]
    return (*r, *q)
