"""The checker finds every way to be wrong: plans are damaged one by one."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from crtgen.base.errors import CrtgenError
from crtgen.compiler.kernels.engine.kernel import InPlace
from crtgen.compiler.plan import ArenaSlot, Plan, check_plan, make_plan
from tests.compiler.plan.fakes import Net, kernel, node


def good() -> Plan:
    net = Net(
        {"x": 32},
        "z",
        node("a", "x", {"y": 64}, kernel(InPlace(lead=16), scratch=16)),
        node("b", "y", {"z": 32}),
    )
    return make_plan(net.graph, net.kernels)


def moved(plan: Plan, **slots: ArenaSlot) -> Plan:
    table: Mapping[str, ArenaSlot] = {**plan.slots, **slots}
    return replace(plan, slots=table)


def test_a_good_plan_passes() -> None:
    plan = good()
    assert plan.arena == 96
    check_plan(plan)


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ({"z": ArenaSlot(8, 32)}, "not aligned to 16"),
        ({"z": ArenaSlot(80, 32)}, "leaves the arena"),
        ({"z": ArenaSlot(-16, 32)}, "leaves the arena"),
        ({"z": ArenaSlot(0, 16)}, "z has 16 bytes"),
    ],
)
def test_a_bad_slot(slots: dict[str, ArenaSlot], message: str) -> None:
    with pytest.raises(CrtgenError, match=message):
        check_plan(moved(good(), **slots))


def test_an_output_over_an_input_that_must_not_be_overwritten() -> None:
    plan = good()
    with pytest.raises(CrtgenError, match="b may not overwrite y"):
        check_plan(moved(plan, z=plan.slots["y"].__class__(plan.slots["y"].offset, 32)))


def test_an_output_too_close_to_its_input() -> None:
    plan = good()
    y = plan.slots["y"]
    with pytest.raises(CrtgenError, match="a may not overwrite x"):
        check_plan(moved(plan, x=ArenaSlot(y.offset, 32)))


def test_a_value_that_is_overwritten() -> None:
    net = Net({"x": 16}, "z", node("a", "x", {"y": 16}), node("b", "x y", {"z": 16}))
    plan = make_plan(net.graph, net.kernels)
    late = Net({"x": 16}, "z", node("a", "x", {"y": 16}, kernel(InPlace())), node("b", "x y", {"z": 16}))
    steps = tuple(replace(s, kernel=late.kernels[s.name]) for s in plan.steps)
    with pytest.raises(CrtgenError, match="x is overwritten before b reads it"):
        check_plan(replace(moved(plan, y=plan.slots["x"]), steps=steps))


def test_a_kept_input_that_is_overwritten() -> None:
    net = Net({"x": 16}, "y", node("a", "x", {"y": 16}, kernel(InPlace())))
    plan = make_plan(net.graph, net.kernels)
    with pytest.raises(CrtgenError, match="x is overwritten before the end of the run"):
        check_plan(replace(plan, kept_inputs=True))


def test_inputs_that_meet() -> None:
    net = Net({"x": 16, "w": 16}, "y", node("a", "x w", {"y": 16}))
    plan = make_plan(net.graph, net.kernels)
    with pytest.raises(CrtgenError, match="overwritten before the run"):
        check_plan(moved(plan, w=plan.slots["x"]))


def test_outputs_that_meet() -> None:
    net = Net({"x": 16}, "y z", node("a", "x", {"y": 16, "z": 16}))
    plan = make_plan(net.graph, net.kernels)
    with pytest.raises(CrtgenError, match="two outputs of a meet"):
        check_plan(moved(plan, z=plan.slots["y"]))


def test_a_wrong_order() -> None:
    plan = good()
    with pytest.raises(CrtgenError, match="b reads y before it is computed"):
        check_plan(replace(plan, steps=plan.steps[::-1]))


def test_a_missing_step() -> None:
    plan = good()
    with pytest.raises(CrtgenError, match="not the nodes"):
        check_plan(replace(plan, steps=plan.steps[:1]))


def test_scratch_over_an_output() -> None:
    plan = good()
    steps = (replace(plan.steps[0], scratch=ArenaSlot(plan.slots["y"].offset, 16)), plan.steps[1])
    with pytest.raises(CrtgenError, match="y meets the scratch of a"):
        check_plan(replace(plan, steps=steps))


def test_scratch_over_a_value_for_later() -> None:
    net = Net(
        {"x": 16, "w": 16}, "z", node("a", "x", {"y": 16}, kernel(scratch=16)), node("b", "y w", {"z": 16})
    )
    plan = make_plan(net.graph, net.kernels)
    steps = (replace(plan.steps[0], scratch=plan.slots["w"]), plan.steps[1])
    with pytest.raises(CrtgenError, match="w is overwritten before b reads it"):
        check_plan(replace(plan, steps=steps))


def test_missing_scratch() -> None:
    plan = good()
    with pytest.raises(CrtgenError, match="scratch memory"):
        check_plan(replace(plan, steps=(replace(plan.steps[0], scratch=None), plan.steps[1])))


def test_an_alias_that_lies_elsewhere() -> None:
    net = Net({"x": 16}, "z", node("r", "x", {"y": 16}, kernel(alias=True)), node("b", "y", {"z": 16}))
    plan = make_plan(net.graph, net.kernels)
    with pytest.raises(CrtgenError, match="alias"):
        check_plan(moved(plan, y=plan.slots["z"]))


def test_a_bound_above_the_arena() -> None:
    with pytest.raises(CrtgenError, match="below the bound"):
        check_plan(replace(good(), lower_bound=1000))
