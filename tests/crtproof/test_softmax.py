"""Softmax in the second checker: its arithmetic, and functions of a sum in Python."""

import random

import numpy as np
import pytest

from crtgen.proof.checker.network import arithmetic
from crtproof.compare import Entry
from crtproof.powers import exponential, reciprocal
from crtproof.rows import compiled, finder
from crtproof.values import OPERATIONS, Refused, signed

_NUMBERS = {"asr": (9,), "lsl": (5,), "lsr": (31,), "ssat": (8,), "usat": (5,), "ulong": (32,)}
_OPERATIONS = (
    *("add", "sub", "mul", "and", "orr", "eor", "min", "max", "eq", "gt", "ge", "hi", "cs", "carry"),
    *("mvn", "sxtb", "sxth", "uxtb", "uxth", "clz", "asr", "lsl", "lsr", "ssat", "usat", "ulong"),
    *("lslr", "lsrr", "asrr"),
)


def test_powers_are_those_of_the_first_checker() -> None:
    drawn = np.random.default_rng(1)
    powers = np.concatenate([-np.arange(300), -drawn.integers(0, 1 << 31, 2000)])
    assert [exponential(int(a)) for a in powers] == arithmetic.exp_negative(powers, 5).tolist()
    totals = np.concatenate([1 << np.arange(19, 25), drawn.integers(1 << 19, 1 << 25, 2000)])
    shifted = (totals << 32 - np.frexp(totals.astype(np.float64))[1] & 0xFFFFFFFF) - (1 << 31)
    assert [reciprocal(int(t)) for t in totals] == arithmetic.reciprocal(shifted).tolist()


def _both(name: str, numbers: tuple[int, ...], values: list[int], total: int) -> tuple[int, int]:
    # The last of the operands is the sum.
    leaves: list[Entry] = [("number", (v,), ()) for v in values[:-1]]
    program = (*leaves, ("leaf", (0,), ()), (name, numbers, tuple(range(len(values)))))
    ends = [(v, v) for v in (*values[:-1], total)]
    (least, most), (found,) = OPERATIONS[name](numbers, tuple(ends)), compiled((program,))(total)
    assert least == most
    return signed(found), least


@pytest.mark.parametrize("name", [*_OPERATIONS, "sel", "long", "sum_ge"])
def test_an_operation_in_python_is_the_operation(name: str) -> None:
    drawn = random.Random(name)
    count = {"sel": 3, "sum_ge": 3, "long": 4}.get(name, 1 if name in _OPERATIONS[14:25] else 2)
    for _ in range(300):
        edges = (0, 1, -1, 2**31 - 1, -(2**31), drawn.randint(-300, 300), drawn.randint(-(2**31), 2**31 - 1))
        numbers: tuple[int, ...] = _NUMBERS.get(name, ())
        if name == "long":
            numbers = drawn.randint(-(2**40), 2**40), drawn.choice((0, 31, 32))
        elif name == "sum_ge":
            numbers = drawn.choice((1, -1)), drawn.choice((0, 1))
        values = [drawn.choice(edges) for _ in range(count)]
        if name in ("sel", "sum_ge"):
            values[0 if name == "sel" else 1] = drawn.choice((0, 1))
        found, wanted = _both(name, numbers, values, drawn.randrange(1 << 19, 1 << 25))
        assert found == wanted, (numbers, values)


def test_a_sum_for_which_a_program_is_wrong() -> None:
    """Only one of a million: it is found. An operation without a form is refused."""
    leaf, wrong = ("leaf", (0,), ()), ("number", (1_234_567,), ())
    program: tuple[Entry, ...] = (leaf, wrong, ("eq", (), (0, 1)))
    find = finder((program,), 0)
    assert find(1 << 20, 1_234_567, (0,), reciprocal)[0] is None
    assert find(1 << 20, 1 << 21, (0,), reciprocal)[0] == 1_234_567
    with pytest.raises(Refused, match="with table"):
        compiled(((leaf, ("table", (32, 0), (0,))),))
