"""What the checker takes instructions to do, against QEMU: on numbers, and on symbols with such values."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crtgen.proof.checker.algebra.expression import evaluate
from crtgen.proof.checker.algebra.meaning import BRANCHES
from crtgen.proof.checker.algebra.value import (
    Bytes,
    Halves,
    LinearSum,
    Symbol,
    Word,
    WordOp,
    signed8,
    signed16,
)
from crtgen.proof.checker.binary import decoders
from crtgen.proof.checker.binary.decoders import agree
from crtgen.proof.checker.binary.image import DecodedImage, read_image
from crtgen.proof.checker.core.machine import Machine
from crtgen.proof.checker.refusal import Refusal
from tests.proof.checker.mutations import flipped
from tests.proof.checker.programs import ALIASED, CASES, CORE, HELIUM, OTHERS, Core, States, run_on_core

pytestmark = pytest.mark.qemu

_COUNT = 100
_FEW = 20
_HOLDS: dict[str, Callable[[bool, bool, bool, bool], bool]] = {
    "eq": lambda n, z, c, v: z, "ne": lambda n, z, c, v: not z, "lt": lambda n, z, c, v: n != v,
    "ge": lambda n, z, c, v: n == v, "gt": lambda n, z, c, v: not z and n == v,
    "le": lambda n, z, c, v: z or n != v, "hi": lambda n, z, c, v: c and not z,
    "ls": lambda n, z, c, v: not c or z, "cs": lambda n, z, c, v: c, "cc": lambda n, z, c, v: not c,
    "mi": lambda n, z, c, v: n, "pl": lambda n, z, c, v: not n,
}  # fmt: skip


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> States:
    return run_on_core(tmp_path_factory.mktemp("cases"), _COUNT, seed=1)


@pytest.fixture(scope="module")
def image(ran: States) -> DecodedImage:
    return read_image(ran.image)


@pytest.fixture(scope="module")
def machine(image: DecodedImage) -> Machine:
    return Machine(image, 1 << 40)


def _run(machine: Machine, number: int, r: list[Word], q: list[list[Word]]) -> None:
    """A case from registers r0 to r3, r6, r7 and q0 to q2."""
    machine.r[:4], machine.r[6:8], machine.q[:3] = r[:4], r[4:6], q
    machine.predicate, machine.greater = 0xFFFF, None
    machine.tail, machine.block = 0, None  # which a run may leave that is refused
    at, end = machine.image.symbols[f"case{number}"], machine.image.symbols[f"end{number}"]
    while at != end:
        at = machine.one(at)


def _compare_flags(machine: Machine, apsr: int) -> int:
    """How many conditions the checker follows there, each as N, Z, C and V of the core say."""
    compared = 0
    flags = [bool(apsr >> bit & 1) for bit in (31, 30, 29, 28)]
    for condition in BRANCHES:
        try:
            holds = machine.holds(condition)
        except Refusal:
            continue
        if isinstance(holds, int):
            assert holds == _HOLDS[condition](*flags), condition
            compared += 1
    return compared


@pytest.mark.parametrize("number", range(len(CASES)), ids=CASES)
def test_numbers(ran: States, machine: Machine, number: int) -> None:
    compared = 0
    for state, result in zip(ran.states, ran.results[number], strict=True):
        vectors: list[list[Word]] = [list(state[6 + 4 * i : 10 + 4 * i]) for i in range(3)]
        if CASES[number].startswith("vrshl") and state[14] >> 31 == 0:
            continue  # to the left by that much, which is refused
        try:
            _run(machine, number, list(state[:6]), vectors)
        except Refusal:
            continue
        assert (*machine.r[:4], *machine.q[0]) == (*result[:4], *result[5:]), state
        followed = _compare_flags(machine, result[4])
        compared += followed >= 4
        assert followed >= 4 or number >= len(CORE + HELIUM)
    least = _COUNT if number < len(CORE + HELIUM) else _COUNT // 4  # some are no number
    assert compared >= least or "vrshl" in CASES[number]


@pytest.mark.parametrize("core", OTHERS, ids=[core.name for core in OTHERS])
def test_numbers_on(core: Core, tmp_path: Path) -> None:
    """The same instructions as code for other cores, which their own decoders read."""
    ran = run_on_core(tmp_path, _FEW, seed=2, core=core)
    machine = Machine(read_image(ran.image), 1 << 40)
    for number, text in enumerate(core.cases):
        for state, result in zip(ran.states, ran.results[number], strict=True):
            _run(machine, number, list(state[:6]), [[0] * 4] * 3)
            assert tuple(machine.r[:4]) == result[:4], (text, state)
            assert _compare_flags(machine, result[4]) >= 4, text
    assert len(machine.steps) >= 2 * len(core.cases)
    agree(machine.image, machine.steps)


class _Symbols:
    """Words of symbols that have given values."""

    def __init__(self, seed: int) -> None:
        self.values: dict[Symbol, int] = {}
        self.random = random.Random(seed)

    def symbol(self, value: int) -> Symbol:
        made = Symbol(0, len(self.values), -128, 127)
        self.values[made] = value
        return made

    def word(self, v: int) -> Word:
        """A word with this value: a number, four bytes, two halves, or a sum."""
        kind = self.random.randrange(4)
        if kind == 1:
            return Bytes(tuple(self.symbol(signed8(v >> 8 * i)) for i in range(4)))
        if kind == 2:
            return Halves(self.half(signed16(v)), self.half(signed16(v >> 16)))
        if kind == 3:
            if signed8(v) & 0xFFFFFFFF == v:
                return self.symbol(signed8(v)).word
            return WordOp("add", self.half(signed16(v)), v - signed16(v) & 0xFFFFFFFF)
        return v

    def half(self, v: int) -> Word:
        """A sum with this value."""
        symbol = self.symbol(self.random.randint(-128, 127))
        k = self.random.randint(1, 9)
        return LinearSum(v - k * self.values[symbol], {symbol: k})

    def value(self, word: Word) -> int:
        def leaf(s: LinearSum) -> Any:
            return s.constant + sum(k * self.values[symbol] for symbol, k in s.terms().items())

        return int(evaluate(word, leaf, {})) & 0xFFFFFFFF


@pytest.mark.parametrize("number", range(len(CASES)), ids=CASES)
def test_symbols(ran: States, machine: Machine, number: int) -> None:
    """The values of what comes out are those that the core had."""
    compared = 0
    for k, (state, result) in enumerate(zip(ran.states, ran.results[number], strict=True)):
        symbols = _Symbols(k)
        r = [symbols.word(v) if i in (1, 2) else v for i, v in enumerate(state[:6])]
        q = [[symbols.word(v) for v in state[6 + 4 * i : 10 + 4 * i]] for i in range(3)]
        try:
            _run(machine, number, r, q)
            found = [symbols.value(w) for w in (*machine.r[:4], *machine.q[0])]
        except Refusal:
            continue
        assert found == [*result[:4], *result[5:]], state
        compared += 1
    by_lanes = "shl.s32 q0, q1, q2" in CASES[number]  # an amount that is a symbol is refused
    assert compared >= _COUNT // 4 or by_lanes


@pytest.mark.parametrize("count", [6, pytest.param(60, marks=pytest.mark.nightly)])
def test_one_register_in_several_places(count: int, tmp_path: Path) -> None:
    """Each form with its registers aliased, on numbers and on symbols in any of r0 to r3."""
    ran = run_on_core(tmp_path, count, seed=count, core=ALIASED)
    machine = Machine(read_image(ran.image), 1 << 40)
    followed: dict[str, int] = {}
    for number, text in enumerate(ALIASED.cases):
        for k, (state, result) in enumerate(zip(ran.states, ran.results[number], strict=True)):
            symbols = _Symbols(k)
            some = [[], [], [0, 1], [1, 2], [0, 3], [0, 1, 2, 3]][k % 6]
            r = [symbols.word(v) if i in some else v for i, v in enumerate(state[:6])]
            q = [[symbols.word(v) if some else v for v in state[6 + 4 * i : 10 + 4 * i]] for i in range(3)]
            try:
                _run(machine, number, r, q)
                found = [symbols.value(w) for w in (*machine.r[:4], *machine.q[0])]
            except Refusal:
                assert some or "vrshl" in text or "vshl" in text, text
                continue
            assert found == [*result[:4], *result[5:]], (text, state, some)
            followed[text] = followed.get(text, 0) + 1
    assert len(followed) > len(ALIASED.cases) * 0.99 > 600


def test_text_is_assembled_again(image: DecodedImage) -> None:
    spans = [(image.symbols[f"case{i}"], image.symbols[f"end{i}"]) for i in range(len(CASES))]
    used = [a for a in image.instructions if any(first <= a < end for first, end in spans)]
    assert len(used) >= 2 * len(CASES)
    assert set(agree(image, used)) == {"binutils", "llvm"}


def test_decoders_that_disagree(image: DecodedImage, tmp_path: Path) -> None:
    """A shift that one of them would take for another, and bits that have to be set in each division."""
    at = image.symbols[f"case{CASES.index('vqrshrnb.s32 q0, q1, #5')}"]
    at = next(a for a in range(at, at + 8, 2) if image.instructions[a].name == "vqrshrnb")
    wrong = replace(image.instructions[at], text="vqrshrnb.s32 q0, q1, #11")
    with pytest.raises(Refusal, match="binutils disagree about 'vqrshrnb"):
        agree(replace(image, instructions={at: wrong}), [at])
    at = next(a for a, i in image.instructions.items() if i.name == "udiv")
    changed = read_image(flipped(image.path, at + 3, 5, tmp_path))
    assert at not in changed.instructions or changed.instructions[at].name != "udiv"


def test_llvm_is_asked_on_its_own(image: DecodedImage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where binutils takes a text for its bytes, wrong as both may be."""
    monkeypatch.setattr(decoders, "_for_binutils", lambda i: "adds r0, r1, r2")
    at = next(a for a, i in image.instructions.items() if i.text == "adds r0, r1, r2")
    wrong = replace(image.instructions[at], text="adds r0, r2, r1")
    with pytest.raises(Refusal, match="LLVM disagree about 'adds r0, r2, r1'"):
        agree(replace(image, instructions={at: wrong}), [at])
