"""Helium's loads and stores."""

import re
from collections.abc import Callable, Sequence

from crtgen.proof.checker.algebra.value import M32, Word
from crtgen.proof.checker.algebra.words import (
    add,
    bytes_of,
    low_byte,
    pair,
    raw_halves,
    unsigned_byte,
    word_of,
)
from crtgen.proof.checker.binary.image import DecodedInstruction
from crtgen.proof.checker.core.instructions.lanes import lane_bytes, mask, vector
from crtgen.proof.checker.core.instructions.packed import as_word
from crtgen.proof.checker.core.instructions.registry import family
from crtgen.proof.checker.core.instructions.transfers import aligned_base
from crtgen.proof.checker.core.machine import Machine, Step
from crtgen.proof.checker.core.operands import address, known_place, register
from crtgen.proof.checker.refusal import Refusal

__all__: list[str] = []

_SIZE = {"b": 1, "h": 2, "w": 4}
_INDEXED = re.compile(r"\[(\w+), (q[0-7])(?:, uxtw #(\d))?\]")
_OF_VECTOR = re.compile(r"\[(q[0-7])(?:, #(-?\d+))?\](!)?")

_NAMES = [f"v{way}{size}{t}" for way in ("ldr", "str") for size in "bhw" for t in ("", "t")]


@family(*_NAMES)
def transfer(m: Machine, i: DecodedInstruction) -> Step:
    """Step of VLDRB.S32 and the like, in which elements of memory and lanes may differ in size."""
    d, size, lane = vector(i.operands[0]), _SIZE[i.name[4]], lane_bytes(i.kind)
    places, contiguous = _places(m, i, size, lane)
    predicated = i.name.endswith("t")
    gather = _INDEXED.fullmatch(", ".join(i.operands[1:]))
    if gather and i.name[1] == "l":
        return _gather(m, d, gather, (size, lane, i.kind[0] == "s"), predicated)
    if i.name[1] == "l":
        return _load(m, d, (size, lane, i.kind[0] == "s"), places, contiguous, predicated)
    return _store(m, d, (size, lane), places, contiguous, predicated)


def _places(m: Machine, i: DecodedInstruction, size: int, lane: int) -> tuple[Callable[[], list[int]], bool]:
    # The address of each element, and whether they follow each other.
    text = ", ".join(i.operands[1:])
    of_vector, indexed = _OF_VECTOR.fullmatch(text), _INDEXED.fullmatch(text)
    if of_vector:
        return _vector_places(m, of_vector), False
    if indexed:
        return _indexed_places(m, indexed, lane), False
    at = address(m, i, i.operands[1:])
    count = 16 // lane

    def places() -> list[int]:
        first = at()
        return [first + size * k for k in range(count)]

    return places, True


def _numbers(words: Sequence[Word]) -> list[int]:
    found = [w for w in words if isinstance(w, int)]
    if len(found) < len(words):
        raise Refusal("an address depends on an input")
    return found


def _vector_places(m: Machine, match: re.Match[str]) -> Callable[[], list[int]]:
    q, offset, back = vector(match[1]), int(match[2] or 0), bool(match[3])

    def places() -> list[int]:
        moved = [add(w, offset & M32) for w in m.q[q]]
        if back:
            m.q[q] = moved
        return [known_place(w) for w in moved]

    return places


def _indexed_places(m: Machine, match: re.Match[str], lane: int) -> Callable[[], list[int]]:
    base, q, scale = register(match[1]), vector(match[2]), int(match[3] or 0)

    def places() -> list[int]:
        data = b"".join(w.to_bytes(4, "little") for w in _numbers(m.q[q]))
        offsets = [int.from_bytes(data[k : k + lane], "little") for k in range(0, 16, lane)]
        return [known_place(add(m.r[base], n << scale & M32)) for n in offsets]

    return places


def _aligned(at: Sequence[int], size: int) -> None:
    for a in at:
        if a % size:
            raise Refusal(f"{a:#x} is not aligned")


def _load(
    m: Machine,
    d: int,
    form: tuple[int, int, bool],
    places: Callable[[], list[int]],
    contiguous: bool,
    predicated: bool,
) -> Step:
    (size, lane, _), memory, element = form, m.memory, _element(m, form)

    def step() -> None:
        at, which = places(), mask(m, predicated)
        taken = [which >> k * lane & 1 for k in range(len(at))]
        _aligned([a for a, t in zip(at, taken, strict=True) if t], size)
        if contiguous and size == lane and which == 0xFFFF:
            m.q[d] = [memory.load(at[0] + 4 * k) for k in range(4)]
            return
        m.q[d] = _packed([element(a) if t else 0 for a, t in zip(at, taken, strict=True)], lane)

    return step


def _gather(m: Machine, d: int, match: re.Match[str], form: tuple[int, int, bool], predicated: bool) -> Step:
    # Elements at offsets that may depend on inputs: entries of a table.
    base, q, scale = register(match[1]), vector(match[2]), int(match[3] or 0)
    lane, element = form[1], _element(m, form)

    def one(start: Word, offset: Word) -> Word:
        if isinstance(offset, int):
            return element(known_place(add(start, offset << scale & M32)))
        if not isinstance(start, int):
            raise Refusal("an address depends on an input")
        m.varies("an address")
        return m.memory.table(start, offset, scale, element)

    def step() -> None:
        start, which = m.r[base], mask(m, predicated)
        offsets = [v for w in m.q[q] for v in _unsigned_lanes(w, lane)]
        found = [one(start, v) if which >> k * lane & 1 else 0 for k, v in enumerate(offsets)]
        m.q[d] = _packed(found, lane)

    return step


def _unsigned_lanes(w: Word, lane: int) -> list[Word]:
    if lane == 4:
        return [w]
    if lane == 1:
        return [unsigned_byte(b) for b in bytes_of(w)]
    return [h & 0xFFFF if isinstance(h, int) else pair(h, 0) for h in raw_halves(w)]


def _element(m: Machine, form: tuple[int, int, bool]) -> Callable[[int], Word]:
    # Loads an element: its bytes, the lane's bytes, signed or not.
    size, lane, is_signed = form
    memory = m.memory

    def element(a: int) -> Word:
        _aligned((a,), size)
        if size == 1:
            return memory.signed_byte(a) if is_signed or size == lane else memory.unsigned_byte(a)
        return memory.half(a, is_signed) if size == 2 else memory.load(a)

    return element


def _packed(v: Sequence[Word], lane: int) -> list[Word]:
    if lane == 4:
        return list(v)
    if lane == 2:
        return [pair(v[2 * k], v[2 * k + 1]) for k in range(4)]
    return [word_of(tuple(low_byte(x) for x in v[4 * k : 4 * k + 4])) for k in range(4)]


def _store(
    m: Machine,
    d: int,
    form: tuple[int, int],
    places: Callable[[], list[int]],
    contiguous: bool,
    predicated: bool,
) -> Step:
    size, lane = form
    memory = m.memory

    def put(a: int, k: int) -> None:
        word, part = m.q[d][k * lane >> 2], k * lane & 3
        if size == 1 and part == 0:
            memory.store_low_byte(a, word)
        elif size == 1:
            memory.store_byte(a, bytes_of(word)[part])
        elif size == 2:
            memory.store_half(a, as_word(raw_halves(word)[part >> 1]) if lane == 2 else word)
        else:
            memory.store(a, word)

    def step() -> None:
        at, which = places(), mask(m, predicated)
        taken = [which >> k * lane & 1 for k in range(len(at))]
        _aligned([a for a, t in zip(at, taken, strict=True) if t], size)
        if contiguous and size == lane and which == 0xFFFF:
            for k in range(4):
                memory.store(at[0] + 4 * k, m.q[d][k])
            return
        for k, a in enumerate(at):
            if taken[k]:
                put(a, k)

    return step


# Which of 16 words of memory each of VLD40 to VLD43 moves, one for each beat.
_GROUPS = ((0, 1, 10, 11), (2, 3, 12, 13), (4, 5, 14, 15), (6, 7, 8, 9))


@family(*(f"v{way}4{k}" for way in ("ld", "st") for k in range(4)))
def interleaved(m: Machine, i: DecodedInstruction) -> Step:
    """VLD4 and VST4 of bytes: word k in memory has byte k of each of four registers. Predicates do not
    apply.
    """
    if i.kind != "8":
        raise Refusal(f"interleaved lanes of {i.kind}")
    registers = [vector(q.strip()) for q in i.operands[0].strip("{}").split(",")]
    base, back = register(i.operands[1].strip("[]!")), i.operands[1].endswith("!")
    group, loads = _GROUPS[int(i.name[-1])], i.name[1] == "l"

    def step() -> None:
        a, after = aligned_base(m.r[base]), add(m.r[base], 64)
        for k in group:
            if loads:
                for d, byte in zip(registers, bytes_of(m.memory.load(a + 4 * k)), strict=True):
                    parts = list(bytes_of(m.q[d][k >> 2]))
                    parts[k & 3] = byte
                    m.q[d] = [word_of(tuple(parts)) if n == k >> 2 else w for n, w in enumerate(m.q[d])]
            else:
                parts = [bytes_of(m.q[d][k >> 2])[k & 3] for d in registers]
                m.memory.store(a + 4 * k, word_of(tuple(parts)))
        if back:
            m.write_back(base, after)

    return step
