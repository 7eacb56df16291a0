"""What an instruction reads and writes: registers, flags, memory.

From the Armv8-M Architecture Reference Manual, for the instructions that kernels use. Vectors and the
registers of the FPU share their storage, so all are named by their words: q1 is s4 to s7.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from crtgen.kernels.asm.routine import Instruction

__all__ = ["FLAGS", "Effects", "base_of", "effects", "follows", "is_known", "words_of"]

FLAGS, PREDICATE = "flags", "vpr"
_ADDRESS = re.compile(r"\[(.*?)\](!?)(?:, (.*))?$")
_NAMES = re.compile(r"\b(?:r1[0-2]|r\d|lr|sp|[qds]\d+)\b")
_RANGE = re.compile(r"([sd])(\d+)-[sd](\d+)")
_BLOCK = re.compile(r"(?:it|vpst|vpt)([te]*)$")


@dataclass(frozen=True, slots=True)
class Effects:
    """Registers that are read and written; ``loads`` and ``stores`` are what is done to memory.

    ``updated`` are address registers, which are ready sooner than what is loaded.
    """

    reads: frozenset[str]
    writes: frozenset[str]
    updated: frozenset[str] = frozenset()
    loads: bool = False
    stores: bool = False


def base_of(mnemonic: str) -> str:
    """Without types, and without the letter of a predicate."""
    name = mnemonic.partition(".")[0]
    return name if name in _KNOWN or name[:-1] not in _KNOWN or name[-1] not in "te" else name[:-1]


def is_known(mnemonic: str) -> bool:
    """Whether there are rules for the instruction."""
    return base_of(mnemonic) in _KNOWN


def follows(mnemonic: str) -> int:
    """How many instructions belong to this one, which says when they run: IT, VPST, VPT."""
    found = _BLOCK.match(mnemonic.partition(".")[0])
    return 1 + len(found[1]) if found else 0


@lru_cache(maxsize=4096)
def words_of(operand: str) -> tuple[str, ...]:
    """The registers in an operand; what the FPU has by words."""
    text = _RANGE.sub(_listed, operand)
    return tuple(word for name in _NAMES.findall(text) for word in _words(name))


@lru_cache(maxsize=16384)
def effects(line: Instruction) -> Effects:
    """Of one instruction alone; ``ValueError`` for one without rules."""
    name, operands = base_of(line.mnemonic), line.operands
    if name not in _KNOWN:
        raise ValueError(f"{line.mnemonic}: crtgen.kernels.asm.effects does not know what it does")
    if name in _LOADS or name in _STORES:
        return _access(name, operands)
    written = _written(name, operands)
    reads = {word for operand in operands[written:] for word in words_of(operand)}
    writes = {word for operand in operands[:written] for word in words_of(operand)}
    if _reads_target(name, operands):
        reads |= writes
    if name in _STEPS:
        writes |= set(words_of(operands[1]))
    if name in _SET_FLAGS or name in _COMPARES:
        writes.add(FLAGS)
    if name in _USE_FLAGS or _condition(name):
        reads |= {FLAGS, *writes}
    if name in _PREDICATES or name == "vcmp":
        writes.add(PREDICATE)
    if name[0] == "v":
        reads.add(PREDICATE)
    return Effects(frozenset(reads), frozenset(writes))


def _access(name: str, operands: tuple[str, ...]) -> Effects:
    """Loads and stores: of lists behind a register, of one or two registers before an address."""
    if name in _LISTS:
        base = words_of("sp") if name in _STACK else words_of(operands[0])
        moved = base if name in _STACK or operands[0].endswith("!") else ()
        data, used = words_of(operands[-1]), base
    else:
        found = _ADDRESS.search(operands[-1])
        if found is None:
            raise ValueError(f"{name} {', '.join(operands)}: an address is expected")
        used = words_of(f"{found[1]} {found[3] or ''}")
        moved = words_of(found[1].partition(",")[0]) if found[2] or found[3] else ()
        data = tuple(word for operand in operands[:-1] for word in words_of(operand))
    predicate = {PREDICATE} if name[0] == "v" else set()
    if name in _STORES:
        return Effects(frozenset({*used, *data, *predicate}), frozenset(moved), frozenset(moved), stores=True)
    return Effects(
        frozenset({*used, *predicate}), frozenset({*moved, *data}), frozenset(moved) - set(data), loads=True
    )


def _written(name: str, operands: tuple[str, ...]) -> int:
    """How many of the first operands are written."""
    if name in _COMPARES or name in _PREDICATES or name in _BRANCHES:
        return 0
    if name in _LONG or (name == "vmov" and len(operands) == 4):
        return 2
    return 1


def _reads_target(name: str, operands: tuple[str, ...]) -> bool:
    """Whether the target is read, too, beside being written."""
    if name in _COMPARES or name in _PREDICATES:
        return False
    partly = name == "vmov" and "[" in operands[0]
    return partly or name in _ADDS_UP or (len(operands) < 3 and name in _OF_TWO)


def _condition(name: str) -> bool:
    helium = name == "vmovlt"  # of the upper halves
    return not helium and name[:-2] in _CONDITIONAL and name[-2:] in _CONDITIONS


def _words(name: str) -> tuple[str, ...]:
    kind, rest = name[0], name[1:]
    if kind == "q":
        return tuple(f"s{4 * int(rest) + n}" for n in range(4))
    if kind == "d":
        return f"s{2 * int(rest)}", f"s{2 * int(rest) + 1}"
    return (name,)


def _listed(found: "re.Match[str]") -> str:
    return " ".join(f"{found[1]}{n}" for n in range(int(found[2]), int(found[3]) + 1))


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CONDITIONS = _set("eq ne cs cc hs lo mi pl vs vc hi ls ge lt gt le")
_CONDITIONAL = _set("b mov ldr add sub rsb mvn vmov")
_STACK = _set("push pop vpush vpop")
_LISTS = _STACK | _set("ldm ldmia ldmdb stm stmia stmdb vldm vldmia vldmdb vstm vstmia vstmdb")
_LOADS = _set(
    "ldr ldrb ldrh ldrsb ldrsh ldrd ldm ldmia ldmdb pop vldr vldrb vldrh vldrw vldrd vldm vldmia vldmdb vpop "
    "vld20 vld21"
)
_LOADS |= {f"ldr{condition}" for condition in _CONDITIONS}
_STORES = _set(
    "str strb strh strd stm stmia stmdb push vstr vstrb vstrh vstrw vstrd vstm vstmia vstmdb vpush"
)
_COMPARES = _set("cmp cmn tst teq vcmp vcmpe")
_WHEN = _set("it itt ite ittt itte itet itee")
_PREDICATES = _WHEN | _set("vctp vpst vpstt vpste vpsttt vpstttt vpt vptt vpte")
_BRANCHES = _set("b bl blx bx cbz cbnz le letp dls wls dlstp wlstp")
_BRANCHES |= {f"b{condition}" for condition in _CONDITIONS}
_LONG = _set("smlal smlald smlalbb smlalbt smlaltb smlaltt smull umull umlal umaal vmlaldava vmlsldava")
_STEPS = _set("vidup vddup vshlc")
_OF_TWO = _set(
    "add sub and orr eor bic rsb mul adc sbc adds subs ands orrs eors muls adcs sbcs lsl lsr asr ror lsls "
    "lsrs asrs rors vadd vsub vmul vshl vrshl vqshl vqrshl"
)
# VQSHRN is left out: GNU as 2.40 assembles VQRSHRN in its place, which rounds.
_ADDS_UP = _set(
    "vmla vmlas vmls vnmla vnmls vfma vfms vfmas vfnma vfnms vmladava vmladavax vmlsdava vmlava vaddva "
    "vmaxv vminv vsli vsri vqmovnb vqmovnt vqmovunb vqmovunt vmovnb vmovnt vshrnb vshrnt vrshrnb vrshrnt "
    "vqrshrnb vqrshrnt vqdmlah vqrdmlah vqrdmlsdh vqrdmladhx vmaxav "
    "vbfi bfi bfc movt smlal smlald smlalbb smlalbt "
    "smlaltb smlaltt umlal umaal vmlaldava vmlsldava vshlc vidup vddup"
)
_SET_FLAGS = _set(
    "adds subs movs lsls lsrs asrs rors ands orrs eors bics rsbs muls adcs sbcs mvns vmrs sadd16 ssub16 "
    "sasx ssax sadd8 ssub8 uadd16 usub16 uasx usax uadd8 usub8"
)
_USE_FLAGS = _WHEN | _set("adc sbc adcs sbcs sel vmrs")
_OTHERS = _set(
    "mov movw mvn mla mls ubfx sbfx clz rbit rev rev16 sdiv udiv ssat usat ssat16 usat16 nop pkhbt pkhtb "
    "sxtb sxth uxtb uxth sxtb16 uxtb16 sxtab sxtah sxtab16 uxtab uxtah uxtab16 shadd16 shsub16 qadd16 "
    "qsub16 qadd qsub smuad smuadx smusd smlad smladx smlsd smlsdx smulbb smulbt smultb smultt smlabb "
    "smlabt smlatb smlatt smlawb smlawt smulwb smulwt smmul smmulr smmla smmlar smmls vabs vneg vand vorr "
    "veor vbic vmvn vmov vdup vmax vmin vmaxnm vminnm vmulh vrmulh vmullb vmullt vmovlb vmovlt vqadd "
    "vqsub vhadd vhsub vqdmulh vqrdmulh vrshr vshr vshllb vshllt vrev16 vrev32 vrev64 vpsel vnot vcvt vcvta "
    "vcvtn vcvtr vmsr vcmul vcadd vmladav vmladavx vmlsdav vmlav vaddv vnmul vdiv vsqrt vrint vrintn vrintz"
)
_KNOWN = frozenset[str]().union(
    *(_LOADS, _STORES, _COMPARES, _PREDICATES, _BRANCHES, _LONG, _STEPS, _OF_TWO, _ADDS_UP),
    *(_SET_FLAGS, _USE_FLAGS, _OTHERS, {a + c for a in _CONDITIONAL for c in _CONDITIONS}),
)
