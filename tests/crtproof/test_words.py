"""Operations on intervals, forms of words, and memory, each by values: no image, no compiler."""

import random
from collections.abc import Callable
from itertools import product

import pytest

from crtgen.proof.checker.algebra.meaning import OPS
from crtproof import words
from crtproof.compare import Comparer
from crtproof.elf import Image
from crtproof.memory import Memory
from crtproof.values import (
    ALL,
    MASK,
    OPERATIONS,
    Bytes,
    Halves,
    Interval,
    Linear,
    Op,
    Piece,
    Symbol,
    Word,
    signed,
)

_EDGES = (
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    32767,
    32768,
    65535,
    65536,
    2**31 - 1,
    -1,
    -128,
    -129,
    -32768,
    -(2**31),
)
# By operation: how many operands it has, and numbers that it is tried with.
_FORMS: dict[str, tuple[int, tuple[tuple[int, ...], ...]]] = {
    **dict.fromkeys(("add", "sub", "mul", "and", "orr", "eor", "min", "max"), (2, ((),))),
    **dict.fromkeys(("eq", "gt", "ge", "hi", "cs"), (2, ((),))),
    **dict.fromkeys(("mvn", "sxtb", "sxth", "uxtb", "uxth", "clz"), (1, ((),))),
    **dict.fromkeys(("asr", "lsl", "lsr", "ror"), (1, tuple((n,) for n in (1, 7, 8, 16, 31)))),
    "ssat": (1, ((8,), (16,), (5,))),
    "usat": (1, ((8,), (5,), (16,))),
    "sel": (3, ((),)),
}


def _plain(name: str, numbers: tuple[int, ...], values: tuple[int, ...]) -> int:
    """The first checker's meaning, which was compared with QEMU's."""
    if name in ("ssat", "usat"):
        return int(OPS[name](numbers[0], *values))
    return int(OPS[name](*values, *numbers))


@pytest.mark.parametrize("name", _FORMS)
def test_an_operation_holds_all_results(name: str) -> None:
    """Exact for one number, and nothing is left out of an interval's."""
    count, every = _FORMS[name]
    drawn = random.Random(name)
    for numbers, _ in product(every, range(60)):
        ends: list[Interval] = []
        for k in range(count):
            low = drawn.choice(_EDGES) + drawn.randint(-3, 3)
            low = max(ALL[0], min(ALL[1] - 4, low))
            ends.append((0, 1) if name == "sel" and k == 0 else (low, low + drawn.randint(0, 4)))
        least, most = OPERATIONS[name](numbers, tuple(ends))
        for values in product(*(range(a, b + 1) for a, b in ends)):
            wanted = _plain(name, numbers, values)
            assert least <= wanted <= most, (ends, values)
            points = OPERATIONS[name](numbers, tuple((v, v) for v in values))
            assert points == (wanted, wanted), values


def test_divisions_and_long_sums() -> None:
    drawn = random.Random(3)
    for _ in range(300):
        a, n = drawn.choice(_EDGES) + drawn.randint(-2, 2), drawn.randint(1, 70)
        a = max(ALL[0], min(ALL[1] - 9, a))
        low, high = OPERATIONS["sdiv"]((), ((a, a + 9), (n, n)))
        assert all(low <= int(OPS["sdiv"](v, n)) <= high for v in range(a, a + 10))
        factor, more, shift = drawn.getrandbits(31), drawn.getrandbits(50), drawn.choice((0, 16, 32))
        low, high = OPERATIONS["long"]((more, shift), ((a, a + 3), (factor, factor)))
        for v in range(a, a + 4):
            assert low <= signed((v * factor + more) >> shift) <= high


class _Values:
    """Words at random, with a value for each symbol."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.values: dict[Symbol, int] = {}
        self.comparer = Comparer(Memory(Image((), {}), []))

    def symbol(self) -> Symbol:
        low = self.random.choice((-128, -128, 0, -5))
        made = Symbol(0, len(self.values), low, self.random.choice((127, 127, 3)))
        self.values[made] = self.random.choice(
            (made.low, made.high, self.random.randint(made.low, made.high))
        )
        return made

    def linear(self) -> Linear:
        made = self.symbol().word.times(self.random.choice((1, 1, -1, 3, 127, 256, 65536, 1 << 21)))
        for _ in range(self.random.randrange(3)):
            made = made.added(self.symbol().word, self.random.choice((1, -7, 127, 65536)))
        return made.plus(self.random.choice((0, 0, 1, -128, 32768, 65536)))

    def half(self) -> Word:
        if self.random.random() < 0.3:
            return self.random.randint(-32768, 32767)
        return self.symbol().word.times(self.random.choice((1, -1, 100))).plus(self.random.randint(-9, 9))

    def piece(self) -> Piece:
        return self.random.choice((self.random.randrange(256), self.symbol(), self.linear()))

    def word(self, depth: int = 2) -> Word:
        kind = self.random.randrange(7 if depth else 4)
        if kind == 0:
            return self.random.choice((self.random.getrandbits(32), 0, 255, 65535))
        if kind == 1:
            return self.linear()
        if kind == 2:
            return Halves(self.half(), self.half())
        if kind == 3:
            return Bytes(tuple(self.piece() for _ in range(4)))
        if kind == 4:
            name = self.random.choice(("sxtb", "uxtb", "sxth", "uxth", "mvn"))
            return Op(name, (self.word(depth - 1),))
        if kind == 5:
            shift = self.random.choice(("lsl", "lsr", "asr"))
            return Op(shift, (self.word(depth - 1),), (self.random.choice((1, 8, 16, 21, 24)),))
        name = self.random.choice(("orr", "and", "add"))
        return Op(name, (self.word(depth - 1), self.word(depth - 1)))

    def of(self, w: Piece) -> int:
        """The value of a word, as a number from 0."""

        def at(x: Linear) -> int:
            return x.const + sum(k * self.values[s] for s, k in x.terms().items())

        if isinstance(w, Symbol):
            return self.values[w] & MASK
        if isinstance(w, Linear):
            assert w.low <= at(w) <= w.high
        return self.comparer.value(w, at) & MASK


def _byte(v: _Values, w: Word, found: Piece, i: int) -> bool:
    return v.of(found) & 255 == v.of(w) >> 8 * i & 255


def _shift(kind: str) -> Callable[[_Values, Word, Word], bool]:
    def is_right(v: _Values, a: Word, b: Word) -> bool:
        return all(
            v.of(words.shifted(kind, a, n)) == OPS[kind](signed(v.of(a)), n) & MASK
            for n in (1, 8, 10, 16, 21, 24, 31)
        )

    return is_right


# Each function of ``words`` with the value that its result has to have.
_RULES: dict[str, Callable[[_Values, Word, Word], bool]] = {
    "add": lambda v, a, b: v.of(words.add(a, b)) == v.of(a) + v.of(b) & MASK,
    "subtract": lambda v, a, b: v.of(words.subtract(a, b)) == v.of(a) - v.of(b) & MASK,
    "multiply": lambda v, a, b: v.of(words.multiply(a, 77)) == v.of(a) * 77 & MASK,
    "multiply_add": lambda v, a, b: v.of(words.multiply_add(a, b, -9 & MASK)) == v.of(a) - 9 * v.of(b) & MASK,
    "multiply_subtract": lambda v, a, b: (
        v.of(words.multiply_add(a, b, 5, -1)) == v.of(a) - 5 * v.of(b) & MASK
    ),
    "together": lambda v, a, b: v.of(words.together(a, b)) == v.of(a) | v.of(b),
    "upper and lower": lambda v, a, b: (
        v.of(words.together(Op("uxth", (a,)), words.shifted("lsl", b, 16)))
        == v.of(a) & 0xFFFF | v.of(b) << 16 & MASK
    ),
    "packed": lambda v, a, b: v.of(words.packed(a, b)) == v.of(a) & 0xFFFF | v.of(b) << 16 & MASK,
    "greatest": lambda v, a, b: signed(v.of(words.greatest(a, b))) == max(signed(v.of(a)), signed(v.of(b))),
    "masked": lambda v, a, b: all(
        v.of(words.masked(a, m)) == v.of(a) & m
        for m in (0, 7, 255, 0xFFFF, 0xFF00FF, 0x1FFFFF, 0xFFFFFFF8, MASK)
    ),
    "halves": lambda v, a, b: all(
        v.of(words.half_of(a, k)) == signed(v.of(a) >> 16 * k, 16) & MASK for k in (0, 1)
    ),
    "bytes": lambda v, a, b: all(_byte(v, a, words.byte_of(a, i), i) for i in range(4)),
    "signed_byte": lambda v, a, b: (
        v.of(words.signed_byte(words.byte_of(a, 1))) == signed(v.of(a) >> 8, 8) & MASK
    ),
    "unsigned_byte": lambda v, a, b: v.of(words.unsigned_byte(words.byte_of(a, 2))) == v.of(a) >> 16 & 255,
    "word_of_bytes": lambda v, a, b: (
        v.of(words.word_of_bytes(tuple(words.byte_of(a, i) for i in range(4)))) == v.of(a)
    ),
    **{kind: _shift(kind) for kind in ("lsl", "lsr", "asr", "ror")},
}  # fmt: skip


@pytest.mark.parametrize("name", _RULES)
def test_a_form_of_words_keeps_the_value(name: str) -> None:
    for seed in range(400):
        v = _Values(seed)
        a, b = v.word(), v.word()
        assert _RULES[name](v, a, b), seed


def test_a_choice_keeps_the_value() -> None:
    for seed in range(400):
        v = _Values(seed)
        a, b = v.word(), v.word()
        x, y = v.random.choice(((a, b), (b, a), (a, 5)))
        condition = Op(v.random.choice(("gt", "ge", "eq")), (x, y))
        wanted = v.of(a) if v.of(condition) else v.of(b)
        assert v.of(words.chosen(condition, a, b)) == wanted, seed


def test_fields_of_a_long_sum() -> None:
    """Three sums in fields of 21 bits, as SMLAL makes them, and a field that two words have parts of."""
    for seed in range(200):
        v = _Values(seed)
        total = Linear(0, 0, 0, 0, ()).plus((1 << 20) + (1 << 41) + (1 << 62))
        for place in (0, 21, 42):
            for _ in range(4):
                total = total.added(v.symbol().word, v.random.randint(-127, 127) << place)
        exact = total.const + sum(k * v.values[s] for s, k in total.terms().items())
        high = Op("field", (total,), (32,))
        fields = (
            (words.masked(total, (1 << 21) - 1), exact & (1 << 21) - 1),
            (words.shifted("lsr", high, 10), exact >> 42 & (1 << 22) - 1),
            (words.joined_fields(words.shifted("lsr", total, 21), high, 11, 10), exact >> 21 & (1 << 21) - 1),
        )
        for found, wanted in fields:
            assert found is not None
            assert v.of(found) == wanted & MASK, seed


def test_memory_gives_back_what_was_stored() -> None:
    """Bytes, halves and words at any place, against an array of bytes."""
    for seed in range(50):
        v = _Values(seed)
        memory, plain = Memory(Image((), {}), [(0x100, 0x120)]), dict.fromkeys(range(0x100, 0x120), 0)
        for a in range(0x100, 0x120, 4):
            memory.store(a, 0)
        for _ in range(30):
            size = v.random.choice((1, 2, 4))
            a, w = 0x100 + v.random.randrange(0x20 - size + 1), v.word(1)
            if size == 1:
                memory.store_byte(a, words.byte_of(w, 0))
            elif size == 2:
                memory.store_half(a, w)
            else:
                memory.store(a, w)
            for i in range(size):
                plain[a + i] = v.of(w) >> 8 * i & 255
            b = 0x100 + v.random.randrange(0x1D)
            whole = sum(plain[b + i] << 8 * i for i in range(4))
            assert v.of(memory.load(b)) == whole, seed
            for bits in (8, 16):
                assert v.of(memory.narrow(b, bits, False)) == whole & (1 << bits) - 1, seed
                assert v.of(memory.narrow(b, bits, True)) == signed(whole, bits) & MASK, seed


def test_a_saturation_of_the_greatest_element() -> None:
    """As on Cortex-M3: to eight bits or more it changes no element, but a number that is none."""
    a, b = (Symbol(0, i, -128, 127) for i in range(2))
    most = Op("max", (a.word, Op("max", (b.word, (-128) & MASK))))
    assert words.set_of_greatest(Op("ssat", (most,), (8,))) == frozenset((a, b))
    assert words.set_of_greatest(Op("ssat", (most,), (7,))) is None
    assert words.set_of_greatest(Op("ssat", (Op("max", (most, 200)),), (8,))) == frozenset((a, b, 200))
    wide = Symbol(0, 2, -300, 300)
    assert words.set_of_greatest(Op("ssat", (Op("max", (a.word, wide.word)),), (8,))) is None
