"""What the second checker takes instructions to do, against QEMU: on numbers, and on symbols."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from crtproof.compare import Comparer
from crtproof.elf import read_image
from crtproof.machine import Machine
from crtproof.memory import Memory
from crtproof.values import Bytes, Halves, Linear, Op, Refused, Symbol, Word
from tests.proof.checker.programs import CORE, M55, States, aliased, run_on_core

pytestmark = pytest.mark.qemu

_COUNT = 40
# Not followed at all: long shifts, a byte order, long sums of halves, and a choice of bytes that is no
# maximum.
_REFUSED = re.compile(
    r"asrl|lsll|lsrl|rev|smmls|smlal[dbt]|ssub8|shadd|q(add|sub)16|[su]sat16|s(add|sub)16.*sel|.*rrx"
)


class _Symbols:
    """Words of symbols that have given values."""

    def __init__(self, seed: int) -> None:
        self.values: dict[Symbol, int] = {}
        self.random = random.Random(seed)

    def symbol(self, value: int) -> Symbol:
        made = Symbol(0, len(self.values), -128, 127)
        self.values[made] = value
        return made

    def half(self, v: int) -> Linear:
        k = self.random.randint(1, 9)
        symbol = self.symbol(self.random.randint(-128, 127))
        return symbol.word.times(k).plus(v - k * self.values[symbol])

    def word(self, v: int) -> Word:
        """A word with this value: a number, four bytes, two halves, a sum, or an operation."""
        signed = [(v >> 8 * i & 255) - 256 * (v >> 8 * i + 7 & 1) for i in range(4)]
        kind = self.random.randrange(5)
        if kind == 1:
            return Bytes(tuple(self.symbol(b) for b in signed))
        if kind == 2:
            low, high = (v & 0xFFFF ^ 0x8000) - 0x8000, (v >> 16 ^ 0x8000) - 0x8000
            return Halves(self.half(low), self.half(high))
        if kind == 3:
            return self.half(v)
        return Op("add", (self.half(v), Op("mul", (self.half(0), 1)))) if kind == 4 else v

    def value(self, machine: Machine, word: Word) -> int:
        def at(x: Linear) -> int:
            return x.const + sum(k * self.values[s] for s, k in x.terms().items())

        return Comparer(machine.memory).value(word, at) & 0xFFFFFFFF


def _machine(ran: States) -> tuple[Machine, dict[str, tuple[int, int]]]:
    image = read_image(ran.image)
    return Machine(image, Memory(image, []), lambda address, size: None), image.symbols


def _run(machine: Machine, at: int, end: int, r: list[Word]) -> list[Word]:
    machine.r[:4], machine.r[6:8], machine.block = r[:4], r[4:6], []
    while at != end:
        at = machine.one(at)
    return machine.r[:4]


def _checked(ran: States, cases: tuple[str, ...]) -> dict[str, int]:
    # How often each case was followed, on numbers or on symbols.
    machine, symbols = _machine(ran)
    followed = dict.fromkeys(cases, 0)
    for number, text in enumerate(cases):
        at, end = symbols[f"case{number}"][0] & ~1, symbols[f"end{number}"][0] & ~1
        for k, (state, result) in enumerate(zip(ran.states, ran.results[number], strict=True)):
            given = _Symbols(k)
            some = [(), (), (0, 1), (1, 2), (0, 3), (0, 1, 2, 3)][k % 6]
            r = [given.word(v) if i in some else v for i, v in enumerate(state[:6])]
            try:
                found = [given.value(machine, w) for w in _run(machine, at, end, r)]
            except Refused:
                assert some or _REFUSED.match(text), text
                continue
            assert found == list(result[:4]), (text, state[:6], some)
            followed[text] += 1
    return followed


def test_instructions(tmp_path: Path) -> None:
    followed = _checked(run_on_core(tmp_path, _COUNT, seed=3, core=replace(M55, cases=CORE)), CORE)
    never = [text for text, count in followed.items() if count < _COUNT // 3]
    assert all(_REFUSED.match(text) for text in never), never
    assert len(never) <= 23


@pytest.mark.parametrize("count", [6, pytest.param(60, marks=pytest.mark.nightly)])
def test_one_register_in_several_places(count: int, tmp_path: Path) -> None:
    cases = aliased(CORE)
    core = replace(M55, cases=cases)
    followed = _checked(run_on_core(tmp_path, count, seed=count, core=core), cases)
    assert sum(n > 0 for n in followed.values()) > 300
