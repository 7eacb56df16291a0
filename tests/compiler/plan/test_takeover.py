"""Kernels that may only work at their input's very address."""

from dataclasses import replace

import pytest

from crtgen.base.errors import CrtgenError
from crtgen.compiler.kernels.engine.kernel import InPlace
from crtgen.compiler.plan import ArenaSlot, check_plan, make_plan
from tests.compiler.plan.fakes import Net, kernel, node

EXACT = InPlace(exact=True)


def test_takes_over_a_place_that_nothing_else_reads() -> None:
    net = Net(
        {"x": 64},
        "c",
        node("one", "x", {"a": 128}),
        node("two", "a", {"b": 128}, kernel(EXACT, scratch=16)),
        node("three", "b", {"c": 32}),
    )
    plan = make_plan(net.graph, net.kernels)
    check_plan(plan)
    assert plan.slots["a"] == plan.slots["b"]
    assert plan.arena == 128 + 64


def test_takes_over_an_input_unless_it_is_kept() -> None:
    net = Net({"x": 64}, "y", node("one", "x", {"y": 64}, kernel(EXACT)))
    assert make_plan(net.graph, net.kernels).arena == 64
    assert make_plan(net.graph, net.kernels, keep_inputs=True).arena == 128


@pytest.mark.parametrize("outputs", ["a d", "d"])
def test_leaves_alone_what_another_reads_or_what_is_an_output(outputs: str) -> None:
    extra = [] if outputs == "a d" else [node("also", "a b", {"d": 16})]
    last = [] if extra else [node("last", "b", {"d": 16})]
    net = Net(
        {"x": 64},
        outputs,
        node("one", "x", {"a": 64}),
        node("two", "a", {"b": 64}, kernel(EXACT)),
        *extra,
        *last,
    )
    plan = make_plan(net.graph, net.kernels)
    check_plan(plan)
    assert plan.slots["a"] != plan.slots["b"]


def test_leaves_alone_what_an_alias_lets_another_read() -> None:
    net = Net(
        {"x": 64},
        "d",
        node("alias", "x", {"a": 64}, kernel(alias=True)),
        node("two", "a", {"b": 64}, kernel(EXACT)),
        node("also", "x b", {"d": 16}),
    )
    plan = make_plan(net.graph, net.kernels)
    check_plan(plan)
    assert plan.slots["x"] != plan.slots["b"]


def test_refuses_another_size() -> None:
    net = Net({"x": 64}, "y", node("one", "x", {"y": 32}, kernel(EXACT)))
    assert make_plan(net.graph, net.kernels).arena == 96


def test_the_proof_asks_for_the_very_address() -> None:
    net = Net({"x": 64}, "y", node("one", "x", {"y": 64}, kernel(EXACT)))
    plan = make_plan(net.graph, net.kernels)
    moved = replace(plan, slots={"y": ArenaSlot(0, 64), "x": ArenaSlot(16, 64)}, arena=80, lower_bound=0)
    with pytest.raises(CrtgenError, match="may not overwrite x"):
        check_plan(moved)
