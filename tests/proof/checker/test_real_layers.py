"""Lines of real layers, by which means of float networks are compared."""

from crtgen.proof.checker.algebra.value import Symbol
from crtgen.proof.checker.network.real_layers import LinearForm

_X = [Symbol(0, index, -128, 127) for index in range(2)]


def test_a_line_is_divided_where_all_can_be() -> None:
    line = LinearForm(24, frozenset({(_X[0], 8), (_X[1], -16)}))
    assert line.over(4) == LinearForm(6, frozenset({(_X[0], 2), (_X[1], -4)}))


def test_what_cannot_be_divided_keeps_the_divisor() -> None:
    line = LinearForm(24, frozenset({(_X[0], 8), (_X[1], -6)}))
    assert line.over(4) == line._replace(divisor=4)
    assert line.over(4).over(2) == line._replace(divisor=8)
    assert LinearForm(25, frozenset({(_X[0], 8)})).over(4).divisor == 4
    assert line.over(2) == LinearForm(12, frozenset({(_X[0], 4), (_X[1], -3)}))


def test_lines_over_another_divisor_are_other_functions() -> None:
    line = LinearForm(1, frozenset({(_X[0], 3)}))
    assert line.over(2).key() != line.over(4).key()
