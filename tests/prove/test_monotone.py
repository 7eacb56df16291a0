"""Expressions that never turn, and some that look like it."""

import pytest

from crtgen.prove.monotone import Course, course_of
from crtgen.prove.value import Op, Sum, Symbol

X = Sum(0, {Symbol(0, 0, 0, 127): 8})
LOW = Op("sxtb", Op("sub", X, 128))


def course(e: Op) -> Course | None:
    return course_of(e, lambda leaf: Course(*leaf.bounds(), 1), {})


@pytest.mark.parametrize(
    "e", [Op("sel", Op("hi", X, 255), 127, LOW), Op("sel", Op("le", X, 255), LOW, 127)], ids=["hi", "le"]
)
def test_a_limit_by_a_branch(e: Op) -> None:
    assert course(e) == Course(-128, 127, 1)


@pytest.mark.parametrize(
    "e",
    [
        Op("sel", Op("hi", X, 255), 126, LOW),  # falls from 127 to 126
        Op("sel", Op("hi", X, 256), 127, LOW),  # 256 wraps
        Op("sel", Op("ls", X, 255), 127, LOW),
        Op("sel", Op("eq", X, 255), 127, LOW),
        LOW,
    ],
)
def test_what_turns_or_wraps(e: Op) -> None:
    assert course(e) is None
