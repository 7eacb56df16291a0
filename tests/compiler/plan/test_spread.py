"""Values in several memories: they fit, nothing overlaps, and the core waits less."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtgen.base.errors import CrtgenError
from crtgen.boards.board import FlashReads
from crtgen.compiler.plan import (
    FreeMemory,
    Plan,
    check_plan,
    faster_memory,
    make_plan,
    spread_arena,
    with_waits,
)
from tests.compiler.plan.fakes import Net, kernel, node
from tests.compiler.plan.test_random import nets

SLOW = FlashReads(wait_states=10, width=1)
MAIN = FreeMemory("ram", 1 << 20, SLOW)


def _waits(plan: Plan) -> float:
    return sum(step.waits for step in plan.steps)


def _plan(net: Net) -> Plan:
    return with_waits(make_plan(net.graph, net.kernels), {"": SLOW})


@settings(max_examples=150, deadline=None)
@given(nets(), st.sampled_from([1, 2]), st.sampled_from([0, 40, 100, 400]), st.randoms())
def test_random_networks_fit_their_memories(net: Net, others: int, room: int, random: Random) -> None:
    """Two and three memories of random sizes; ``make_plan`` proves byte by byte that nothing overlaps."""
    whole = _plan(net)
    main = replace(MAIN, nbytes=max(whole.arena - random.choice([0, 16, 64]), 0))
    memories = [
        FreeMemory("fast", room),
        FreeMemory("far", random.choice([0, 64, 1000]), FlashReads(wait_states=40, width=1)),
    ][:others]
    plan, notes = spread_arena(whole, main, memories)
    assert bool(plan.parts) == bool(notes)
    if not plan.parts:
        assert plan is whole
        return
    assert plan.arena <= main.nbytes
    for memory in memories:
        if memory.name in plan.parts:
            assert plan.parts[memory.name].lower_bound <= plan.parts[memory.name].size <= memory.nbytes
    assert [step.name for step in plan.steps] == [step.name for step in whole.steps]
    if whole.arena <= main.nbytes:
        assert _waits(plan) < _waits(whole)


def test_what_is_used_most_for_its_life_is_in_the_fast_memory() -> None:
    """``b`` is written and read at once, after ``x`` in the same place; ``a`` is kept until the end."""
    net = Net(
        {"x": 100},
        "y",
        node("one", "x", {"a": 100}, kernel()),
        node("two", "a", {"b": 100}, kernel()),
        node("three", "b a", {"y": 100}, kernel()),
    )
    plan, (note,) = spread_arena(_plan(net), MAIN, [FreeMemory("fast", 100)])
    assert plan.slots["b"].part == "fast"
    assert plan.slots["a"].part == ""
    assert plan.parts["fast"].size == 100
    assert "100 bytes of it are there, not in ram; a run takes 3,000 cycles less" in str(note)


def test_a_memory_that_is_too_small_is_relieved_by_a_slower_one() -> None:
    net = Net({"x": 200}, "y", node("one", "x", {"y": 8}, kernel(scratch=100)))
    small = replace(MAIN, nbytes=256)
    far = FreeMemory("far", 128, FlashReads(wait_states=40, width=1))
    plan, _ = spread_arena(_plan(net), small, [far])
    assert plan.steps[0].scratch is not None
    assert plan.steps[0].scratch.part == "far"
    assert plan.arena <= 256
    unchanged, notes = spread_arena(_plan(net), small, [replace(far, nbytes=64)])
    assert not unchanged.parts
    assert not notes


def test_bytes_that_fit_the_data_cache_are_not_waited_for() -> None:
    cached = replace(SLOW, data_cache=300)
    net = Net({"x": 100}, "y", node("one", "x", {"a": 100}, kernel()), node("two", "a", {"y": 300}, kernel()))
    plan = with_waits(make_plan(net.graph, net.kernels), {"": cached})
    assert [step.waits for step in plan.steps] == [0, 4000]
    main, fast = replace(MAIN, reads=cached), FreeMemory("fast", plan.arena)
    assert faster_memory([plan], plan.arena, main, [fast]) == "fast"
    assert faster_memory([plan], plan.arena + 1, main, [fast]) == ""
    assert faster_memory([plan], plan.arena, replace(main, reads=None), [fast]) == ""


def test_what_a_step_writes_goes_back_to_the_memory() -> None:
    """Outputs and scratch are read by the cache and then written, inputs are only read."""
    net = Net(
        {"x": 100},
        "y",
        node("one", "x", {"a": 80}, kernel(scratch=40)),
        node("two", "a x", {"y": 60}, kernel()),
    )
    written = replace(SLOW, write_back=5)
    plan = with_waits(make_plan(net.graph, net.kernels), {"": written})
    assert [step.waits for step in plan.steps] == [220 * 10 + 120 * 5, 240 * 10 + 60 * 5]
    assert _waits(_plan(net)) == 220 * 10 + 240 * 10
    moved, (note,) = spread_arena(plan, replace(MAIN, reads=written), [FreeMemory("fast", 1000)])
    assert _waits(moved) == 0
    assert "5,500 cycles less" in str(note)


@pytest.mark.parametrize("part", ["", "nowhere"])
def test_a_value_that_meets_another_one_in_its_part_is_found(part: str) -> None:
    net = Net(
        {"x": 100}, "y", node("one", "x", {"a": 100}, kernel()), node("two", "a x", {"y": 100}, kernel())
    )
    plan, _ = spread_arena(_plan(net), MAIN, [FreeMemory("fast", 100)])
    (name,) = (name for name, slot in plan.slots.items() if slot.part)
    wrong = {**plan.slots, name: replace(plan.slots[name], part=part)}
    with pytest.raises(CrtgenError, match="the memory plan is wrong"):
        check_plan(replace(plan, slots=wrong))
