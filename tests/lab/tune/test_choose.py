"""The exact choice, and in which images candidates are measured."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from crtgen import api
from crtgen.api.report import Report
from crtgen.base.errors import DoesNotFitError, MismatchError
from crtgen.compiler.kernels import Kernel
from crtgen.compiler.kernels.engine.variants import Candidate
from crtgen.lab.tune.choose import Chosen, check_solver, choose, flash_of
from crtgen.lab.tune.images import Images
from crtgen.lab.tune.layers import KernelFigures, TunableLayer

pytest.importorskip("ortools")

Measured = dict[tuple[str, int], KernelFigures]


def _problem(rows: Mapping[str, list[tuple[str, int, int, int]]]) -> tuple[list[TunableLayer], Measured]:
    """Layers by name: each candidate is a function, its figure, its code, its constants."""
    layers: list[TunableLayer] = []
    measured: Measured = {}
    for name, found in rows.items():
        made = tuple(Candidate(f[0], "speed", Kernel(f[0], f[0], None)) for f in found)
        layers.append(TunableLayer(name, "d", made, 0))
        measured |= {(name, n): KernelFigures(f[1], f[3], (f[2],)) for n, f in enumerate(found)}
    return layers, measured


def test_it_is_the_best_of_all() -> None:
    """Against trying everything, for all amounts of flash that make a difference."""
    rows = {}
    for i in range(5):
        fast = (f"fast{i % 3}", 90 + 7 * i, 300 + 10 * (i % 3), 20 * i)
        shared = ("shared", 130 + 5 * i, 350, 16)
        rows[str(i)] = [fast, shared, (f"own{i}", 110 + 6 * i, 100 + i, 24)]
    layers, measured = _problem(rows)
    every = [dict(zip(rows, numbers, strict=True)) for numbers in product(range(3), repeat=5)]
    for room in range(450, 1500, 150):
        within = [c for c in every if flash_of(layers, measured, c) <= room]
        best = min(
            (sum(measured[k].figure for k in c.items()), flash_of(layers, measured, c)) for c in within
        )
        chosen = choose(layers, measured, room)
        assert (sum(measured[k].figure for k in chosen.items()), flash_of(layers, measured, chosen)) == best


def test_equal_figures_are_no_reason_to_move() -> None:
    layers, measured = _problem({"a": [("one", 10, 50, 0), ("two", 10, 50, 0)]})
    assert choose(layers, measured, 100) == {"a": 0}


def test_what_is_not_to_be() -> None:
    layers, measured = _problem(
        {"a": [("one", 20, 50, 0), ("two", 10, 50, 0)], "b": [("x", 9, 9, 0), ("y", 5, 9, 0)]}
    )
    assert choose(layers, measured, 100) == {"a": 1, "b": 1}
    assert choose(layers, measured, 100, [{"a": 1, "b": 1}]) == {"a": 1, "b": 0}
    assert choose(layers, measured, 100, [{"a": 1}]) == {"a": 0, "b": 1}
    with pytest.raises(DoesNotFitError, match="no choice of kernels fits the memory"):
        choose(layers, measured, 58)


def test_a_candidate_without_figures_is_none() -> None:
    layers, measured = _problem({"a": [("one", 20, 50, 0), ("two", 10, 50, 0)]})
    del measured["a", 1]
    assert choose(layers, measured, 100) == {"a": 0}


class _Board:
    """A board on which what ``broken`` names goes wrong; ``tried`` are the images."""

    def __init__(self, broken: str = "") -> None:
        self.broken = broken
        self.tried: list[dict[str, int]] = []
        self.found: dict[str, KernelFigures] = {}

    def trial(self, chosen: Chosen) -> Any:
        self.tried.append(dict(chosen))
        if any(f"{name}{n}" == self.broken for name, n in chosen.items()):
            raise MismatchError("it is wrong")
        return chosen, None


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(compiled: api.Compiled, report: Report) -> dict[str, KernelFigures]:
        chosen: Any = compiled
        return {name: KernelFigures(n, 0, ()) for name, n in chosen.items()}

    monkeypatch.setattr("crtgen.lab.tune.images._figures", made)


def _images(board: _Board, addresses: Mapping[str, list[str]]) -> Images:
    layers, _ = _problem({name: [(a, 1, 1, 1) for a in listed] for name, listed in addresses.items()})
    return Images(layers, addresses, board.trial, board.found.update)


@pytest.mark.usefixtures("figures")
def test_equal_layers_share_the_work() -> None:
    """Two layers with the same four candidates and one with two of its own take two images."""
    board = _Board()
    same = [f"x{n}" for n in range(4)]
    images = _images(board, {"a": same, "b": same, "c": ["y0", "y1"]})
    wanted = {*same, "y0", "y1"}
    assert images.count(wanted) == 2
    images.measure(wanted)
    assert (images.built, set(board.found)) == (2, wanted)
    assert board.tried[0] == {"a": 0, "b": 1, "c": 0}


@pytest.mark.usefixtures("figures")
def test_what_is_known_is_not_measured_again() -> None:
    board = _Board()
    images = _images(board, {"a": ["x0", "x1"], "b": ["y0", "y1"]})
    images.measure({"y1"})
    assert board.tried == [{"a": 0, "b": 1}]
    assert set(board.found) == {"y1"}


@pytest.mark.usefixtures("figures")
def test_a_candidate_that_is_wrong_is_found_and_left_out() -> None:
    board = _Board(broken="c1")
    addresses = {name: [f"{name}0", f"{name}1"] for name in "abcd"}
    images = _images(board, addresses)
    wanted = {address for listed in addresses.values() for address in listed}
    images.measure(wanted)
    assert images.failed == {"c1": "it is wrong"}
    assert set(board.found) == wanted - {"c1"}


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crtgen.lab.tune.choose.find_spec", lambda name: None)
    with pytest.raises(Exception, match="OR-Tools") as caught:
        check_solver()
    assert caught.value.hint == "pip install 'crtgen[tune]'"  # type: ignore[attr-defined]
