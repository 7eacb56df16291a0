"""The instructions that kernels use, in one table: operands that are read and written, length, and execution
unit.

The source is the Armv8-M Architecture Reference Manual. The rules for narrow encodings are those of
assemblers in unified syntax (C2.4): low registers, short offsets, and setting the flags if the narrow form
does. An instruction without a rule is wide, like all of Helium and the DSP extension.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

__all__ = ["Mnemonic", "find", "follows", "is_narrow"]

Operands = tuple[str, ...]
Rule = Callable[[Operands], bool]


@dataclass(frozen=True, slots=True)
class Mnemonic:
    """A row of the table.

    The first ``writes`` operands are written. With ``accumulates`` they are read, too; with ``two``, only if
    there are fewer than three operands. With ``steps``, the second operand is updated. ``moves`` is ``load``
    or ``store``: of registers before an address, in a list after it (``lists``), or in a list alone
    (``stack``). It ``sets`` and ``uses`` flags, and sets the ``predicate`` of vectors.

    ``branch`` is B, whose length depends on its distance. An instruction that ``ends`` its block separates
    code with possibly different execution counts. ``narrow`` decides from the operands if it is two bytes
    long. ``unit`` is the execution unit, as far as pipelines distinguish units.
    """

    writes: int = 1
    name: str = ""
    accumulates: bool = False
    two: bool = False
    moves: str = ""
    lists: bool = False
    stack: bool = False
    steps: bool = False
    sets: bool = False
    uses: bool = False
    predicate: bool = False
    branch: bool = False
    ends: bool = False
    narrow: Rule | None = None
    unit: str = "alu"

    @property
    def vector(self) -> bool:
        return self.name.startswith("v")


@lru_cache(maxsize=1024)
def find(mnemonic: str) -> Mnemonic:
    """Return the row of a mnemonic, ignoring its types and predicate. Raises ``ValueError`` if there is
    none.
    """
    name = mnemonic.partition(".")[0]
    row = _ROWS.get(name) or (_ROWS.get(name[:-1]) if name[:1] == "v" and name[-1] in "te" else None)
    if row is None:
        raise ValueError(f"{mnemonic}: crtgen.compiler.kernels.asm.isa does not know what it does")
    return row


@lru_cache(maxsize=16384)
def is_narrow(mnemonic: str, operands: Operands) -> bool:
    """Return True if the instruction takes two bytes; branches are assumed to be short."""
    rule = find(mnemonic).narrow
    shifted = operands and operands[-1].startswith(SHIFTED)
    return rule is not None and not shifted and rule(operands)


def follows(mnemonic: str) -> int:
    """Return the number of following instructions that belong to IT, VPST or VPT."""
    found = _BLOCK.match(mnemonic.partition(".")[0])
    return 1 + len(found[1]) if found else 0


SHIFTED = ("lsl ", "lsr ", "asr ", "ror ")
"""Prefixes of a shifted last operand."""

_BLOCK = re.compile(r"(?:it|vpst|vpt)([te]*)$")
_LOW = re.compile(r"r[0-7]")
_ADDRESS = re.compile(r"\[(\w+)(?:, (?:#(\d+)|(\w+)))?\]")


def _low(*operands: str) -> bool:
    return all(_LOW.fullmatch(operand) for operand in operands)


def _below(operand: str, limit: int, multiple: int = 1) -> bool:
    number = int(operand[1:]) if re.fullmatch(r"#\d+", operand) else limit
    return number < limit and number % multiple == 0


def _listed(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def _stack_list(operands: Operands) -> bool:
    # PUSH takes lr, and POP pc; neither reads the other's.
    return _low(*(_listed(operands[0]) - {"lr", "pc"}))


def _several(operands: Operands) -> bool:
    base, listed = operands[0].rstrip("!"), _listed(operands[1])
    return operands[0].endswith("!") and _low(base, *listed) and base not in listed


def _access(scale: int) -> Rule:
    # Offsets in units of ``scale`` bytes; 0 if the offset cannot be a number.
    def rule(operands: Operands) -> bool:
        found = _ADDRESS.fullmatch(operands[-1])
        if found is None or len(operands) != 2 or not _low(operands[0]):
            return False
        base, offset, index = found[1], int(found[2] or 0), found[3]
        if index is not None:
            return _low(base, index)
        if not scale or offset % scale:
            return False
        return (scale == 4 and offset <= 1020) if base == "sp" else _low(base) and offset < 32 * scale

    return rule


def _add(operands: Operands) -> bool:
    # Without flags: any two registers, or what has to do with the stack pointer.
    target, *rest = operands if len(operands) > 2 else (operands[0], *operands)
    return target in rest[:2] if not rest[-1].startswith("#") and "sp" not in rest else _add_to_sp(operands)


def _add_to_sp(operands: Operands) -> bool:
    target, *rest = operands if len(operands) > 2 else (operands[0], *operands)
    if "sp" not in rest:
        return False
    return _below(rest[-1], 512, 4) if target == "sp" else _low(target) and _below(rest[-1], 1021, 4)


def _add_flags(operands: Operands) -> bool:
    first, last = operands[0], operands[-1]
    if not _low(*(o for o in operands if not o.startswith("#"))):
        return False
    return not last.startswith("#") or _below(last, 256 if operands[-2] == first else 8)


def _multiply(operands: Operands) -> bool:
    return _low(*operands) and (len(operands) == 2 or operands[0] in operands[1:])


def _compare(operands: Operands) -> bool:
    return not operands[1].startswith("#") or (_low(operands[0]) and _below(operands[1], 256))


def _move(operands: Operands) -> bool:
    return not operands[1].startswith("#") and len(operands) == 2


def _move_flags(operands: Operands) -> bool:
    return _low(operands[0]) and (_below(operands[1], 256) or _low(operands[1]))


def _move_if(operands: Operands) -> bool:
    # Within an IT block: any registers, or a number of eight bits.
    return not operands[1].startswith("#") or _move_flags(operands)


def _shift_flags(operands: Operands) -> bool:
    last = operands[-1]
    if last.startswith("#"):
        return _low(*operands[:-1])
    return _low(*operands) and (len(operands) == 2 or operands[0] == operands[1])


def _extend(operands: Operands) -> bool:
    return len(operands) == 2 and _low(*operands)


def _always(operands: Operands) -> bool:
    return True


_TABLE: Mapping[str, Mnemonic] = {
    # moves and arithmetic
    "mov": Mnemonic(narrow=_move),
    "movs": Mnemonic(sets=True, narrow=_move_flags),
    "mvn movw clz rbit rev16 qadd qsub qadd16 qsub16": Mnemonic(),
    "mvns": Mnemonic(sets=True, narrow=_extend),
    "movt": Mnemonic(accumulates=True),
    "add": Mnemonic(two=True, narrow=_add),
    "sub": Mnemonic(two=True, narrow=_add_to_sp),
    "adds subs": Mnemonic(two=True, sets=True, narrow=_add_flags),
    "and orr eor bic": Mnemonic(two=True),
    "ands orrs eors bics": Mnemonic(two=True, sets=True),
    "adc sbc": Mnemonic(two=True, uses=True),
    "adcs sbcs": Mnemonic(two=True, sets=True, uses=True),
    "rsb": Mnemonic(two=True, unit="reverse"),
    "rsbs": Mnemonic(two=True, sets=True, unit="reverse"),
    "lsl lsr asr ror": Mnemonic(two=True, unit="shift"),
    "lsls lsrs asrs": Mnemonic(two=True, sets=True, unit="shift", narrow=_shift_flags),
    "rors": Mnemonic(two=True, sets=True, unit="shift"),
    "cmp": Mnemonic(0, sets=True, narrow=_compare),
    "cmn tst teq": Mnemonic(0, sets=True),
    "sdiv udiv": Mnemonic(unit="divide"),
    # parts of words
    "sxtb sxth uxtb uxth": Mnemonic(unit="extend", narrow=_extend),
    "rev": Mnemonic(narrow=_extend),
    "sxtb16 uxtb16": Mnemonic(unit="extend"),
    "sxtab sxtah sxtab16 uxtab uxtah uxtab16": Mnemonic(unit="extend and add"),
    "pkhbt pkhtb": Mnemonic(unit="pack"),
    "ubfx sbfx": Mnemonic(unit="field"),
    "bfi bfc": Mnemonic(accumulates=True, unit="field"),
    "ssat usat ssat16 usat16": Mnemonic(unit="saturate"),
    "sadd16 ssub16 sasx ssax sadd8 ssub8 uadd16 usub16 uasx usax uadd8 usub8": Mnemonic(
        sets=True, unit="lanes"
    ),
    "shadd16 shsub16 uqsub16": Mnemonic(unit="lanes"),
    "sel": Mnemonic(uses=True),
    # products
    "mul": Mnemonic(two=True, unit="multiply"),
    "muls": Mnemonic(two=True, sets=True, unit="multiply", narrow=_multiply),
    "mls smuad smuadx smusd smulbb smulbt smultb smultt smulwb smulwt smmul smmulr smmls": Mnemonic(
        unit="multiply"
    ),
    "mla smlad smladx smlsd smlsdx smlabb smlabt smlatb smlatt smlawb smlawt smmla smmlar": Mnemonic(
        unit="mac"
    ),
    "smull umull": Mnemonic(2, unit="multiply"),
    "smlal smlald smlalbb smlalbt smlaltb smlaltt": Mnemonic(2, accumulates=True, unit="mac"),
    "umlal umaal": Mnemonic(2, accumulates=True, unit="multiply"),
    # loads and stores
    "ldr": Mnemonic(moves="load", narrow=_access(4)),
    "ldrb": Mnemonic(moves="load", narrow=_access(1)),
    "ldrh": Mnemonic(moves="load", unit="extend", narrow=_access(2)),
    "ldrsb ldrsh": Mnemonic(moves="load", unit="extend", narrow=_access(0)),
    "ldrd": Mnemonic(moves="load"),
    "ldm": Mnemonic(moves="load", lists=True, narrow=_several),
    "ldmia ldmdb vldm vldmia vldmdb": Mnemonic(moves="load", lists=True),
    "pop": Mnemonic(moves="load", stack=True, narrow=_stack_list),
    "vpop": Mnemonic(moves="load", stack=True),
    "vldr vldrb vldrh vldrw vldrd vld20 vld21": Mnemonic(moves="load"),
    "str": Mnemonic(moves="store", narrow=_access(4)),
    "strb": Mnemonic(moves="store", narrow=_access(1)),
    "strh": Mnemonic(moves="store", narrow=_access(2)),
    "strd": Mnemonic(moves="store"),
    "stm": Mnemonic(moves="store", lists=True, narrow=_several),
    "stmia stmdb vstm vstmia vstmdb": Mnemonic(moves="store", lists=True),
    "push": Mnemonic(moves="store", stack=True, narrow=_stack_list),
    "vpush": Mnemonic(moves="store", stack=True),
    "vstr vstrb vstrh vstrw vstrd": Mnemonic(moves="store"),
    # where to go on
    "b": Mnemonic(0, branch=True, ends=True, narrow=_always),
    "bx cbz cbnz": Mnemonic(0, ends=True, narrow=_always),
    "dls wls dlstp wlstp le letp": Mnemonic(0, ends=True),
    # vectors stay on their side of an IT block
    "it itt ite ittt itte itet itee": Mnemonic(0, uses=True, predicate=True, narrow=_always),
    "nop": Mnemonic(0, narrow=_always),
    "vctp vpst vpstt vpste vpsttt vpstttt vpt vptt vpte": Mnemonic(0, predicate=True),
    # numbers of the FPU and vectors
    "vcmp": Mnemonic(0, sets=True, predicate=True),
    "vcmpe": Mnemonic(0, sets=True),
    "vmrs": Mnemonic(sets=True, uses=True),
    "vmov vmsr vdup vabs vneg vand vorr veor vbic vmvn vnot vpsel vrev16 vrev32 vrev64": Mnemonic(),
    "vmax vmin vmaxnm vminnm vqadd vqsub vhadd vhsub vcadd vaddv vrshr vshr": Mnemonic(),
    "vmovlb vmovlt vshllb vshllt": Mnemonic(),
    "vadd vsub vshl vrshl vqshl vqrshl": Mnemonic(two=True),
    "vcvt vcvta vcvtn vcvtr vrint vrintn vrintz": Mnemonic(),
    "vdiv vsqrt": Mnemonic(unit="divide"),
    "vmul": Mnemonic(two=True, unit="multiply"),
    "vnmul vmulh vrmulh vmullb vmullt vqdmulh vqrdmulh vcmul vmladav vmladavx vmlsdav vmlav": Mnemonic(
        unit="multiply"
    ),
    "vmla vmlas vmls vnmla vnmls vfma vfms vfmas vfnma vfnms vmladava vmladavax vmlsdava vmlava": Mnemonic(
        accumulates=True, unit="mac"
    ),
    "vqdmlah vqrdmlah vqrdmlsdh vqrdmladhx": Mnemonic(accumulates=True, unit="mac"),
    "vmlaldava vmlsldava": Mnemonic(2, accumulates=True, unit="mac"),
    "vaddva vmaxv vminv vmaxav vmaxnmv vsli vsri vbfi": Mnemonic(accumulates=True),
    "vidup vddup vshlc": Mnemonic(accumulates=True, steps=True),
    # of vectors half as wide; VQSHRN is left out: GNU as 2.40 assembles VQRSHRN in its place, which rounds
    "vmovnb vmovnt vqmovnb vqmovnt vqmovunb vqmovunt": Mnemonic(accumulates=True, unit="narrow"),
    "vshrnb vshrnt vrshrnb vrshrnt vqrshrnb vqrshrnt": Mnemonic(accumulates=True, unit="narrow"),
}
_CONDITIONS = ("eq", "ne", "cs", "cc", "hs", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le")
# Conditional instructions, and the rule for their narrow form within an IT block.
_CONDITIONAL: Mapping[str, Rule | None] = dict.fromkeys(("ldr", "add", "sub", "rsb", "mvn", "vmov")) | {
    "b": _always,
    "mov": _move_if,
}


def _rows() -> Iterator[tuple[str, Mnemonic]]:
    for names, row in _TABLE.items():
        for name in names.split():
            yield name, replace(row, name=name)


_UNCONDITIONAL = dict(_rows())
# Rows by mnemonic. VMOVLT is the widening move of odd lanes, not VMOV with a condition.
_ROWS: Mapping[str, Mnemonic] = {
    base + condition: replace(_UNCONDITIONAL[base], name=base + condition, uses=True, narrow=rule)
    for base, rule in _CONDITIONAL.items()
    for condition in _CONDITIONS
} | _UNCONDITIONAL
