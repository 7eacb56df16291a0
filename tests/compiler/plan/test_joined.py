"""Concatenations whose parts are computed in place: plans, and what images of them compute."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest

import crtgen
from crtgen.base.errors import CrtgenError
from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target, select
from crtgen.compiler.plan import ArenaSlot, check_plan, joined, lifetimes, make_plan, plan_model
from crtgen.compiler.plan.joined import join_in_place
from crtgen.lab.measure.cases import random_inputs
from crtgen.network.ir import Graph
from crtgen.network.ops import Activation, Concat, Conv2d, MaxPool2d, Padding, Reshape, StridedSlice
from tests.network.passes.networks import Network
from tests.support import nightly

_TARGET = Target(find_core("cortex-m55"), "balanced")
_SEEDS = (0, 5, 11)


def _same(net: Network, name: str, x: str, channels: int = 4) -> str:
    op = Conv2d((1, 1), Padding(1, 1, 1, 1), activation=Activation.RELU)
    return net.layer(name, op, x, (channels, 3, 3, net.values[x].shape[3]))


def heads() -> Network:
    """Two heads of a detector: 256 and 64 boxes of four numbers."""
    net = Network()
    fine = _same(net, "fine", net.input("x", 1, 16, 16, 4), 8)
    coarse = _same(net, "coarse", net.node("half", MaxPool2d((2, 2), (2, 2)), fine), 8)
    parts = [
        net.node(f"{name}_boxes", Reshape((1, count, 4)), _same(net, f"{name}_head", x))
        for name, x, count in (("fine", fine, 256), ("coarse", coarse, 64))
    ]
    net.node("boxes", Concat(1), *parts)
    return net


def grown(seed: int) -> Network:
    """Images that are computed, reshaped, and joined, some of them again or while others read them."""
    random, net = Random(seed), Network()
    images = [_same(net, "first", net.input("x", 1, 4, 4, 4))]
    for number in range(random.randint(5, 12)):
        image, kind = random.choice(images), random.random()
        if kind < 0.4 or len(images) < 2:
            images.append(_same(net, f"conv{number}", image))
            if random.random() < 0.5:
                images.remove(image)
        elif kind < 0.6:
            _, height, width, channels = net.values[image].shape
            shape = (1, height * 2, width // 2, channels) if width == 4 else (1, height // 2, 4, channels)
            images[images.index(image)] = net.node(f"view{number}", Reshape(shape), image)
        else:
            wide = [other for other in images if net.values[other].shape[2] == net.values[image].shape[2]]
            parts = random.sample(wide, min(len(wide), random.choice((2, 2, 3))))
            parts += [_same(net, f"more{number}", image)] * (len(parts) < 2)
            images = [other for other in images if other not in parts or random.random() < 0.05]
            images.append(net.node(f"joined{number}", Concat(1), *parts))
    return net


def graph_of(net: Network, *more: str) -> Graph:
    read = {name for node in net.nodes for name in node.inputs}
    return net.graph(*more, *(node.outputs[0] for node in net.nodes if node.outputs[0] not in read))


def test_heads_are_computed_in_place() -> None:
    plan, notes = plan_model(graph_of(heads()), _TARGET)
    whole, first, second = (plan.slots[f"{name}_out"] for name in ("boxes", "fine_boxes", "coarse_boxes"))
    assert (first.offset, first.size) == (whole.offset, 1024)
    assert (second.offset, second.size) == (whole.offset + 1024, 256)
    assert plan.slots["fine_head_out"] == first
    assert [note.node for note in notes if note.rule == "concat in place"] == ["boxes"]
    spans = {life.name: (life.first, life.last, life.alias_of) for life in lifetimes(plan)}
    begin = min(i for i, step in enumerate(plan.steps, 1) if step.name.endswith("_head"))
    assert spans["boxes_out"] == (begin, len(plan.steps) + 1, "")
    assert spans["fine_boxes_out"] == (begin, len(plan.steps) + 1, "boxes_out")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda whole: {"coarse_boxes_out": replace(whole, offset=whole.offset + 1028, size=256)},
            "elsewhere",
        ),
        (lambda whole: {"boxes_out": replace(whole, offset=whole.offset + 16)}, "which is not at"),
        (lambda whole: {"fine_head_out": ArenaSlot(whole.offset + 2, 1024)}, "not aligned to 4"),
    ],
)
def test_damaged_plans(change: Callable[[ArenaSlot], dict[str, ArenaSlot]], message: str) -> None:
    plan = plan_model(graph_of(heads()), _TARGET)[0]
    wrong = {**plan.slots, **change(plan.slots["boxes_out"])}
    with pytest.raises(CrtgenError, match=message):
        check_plan(replace(plan, slots=wrong, arena=plan.arena + 64))


def test_what_cannot_be_a_part() -> None:
    """Inputs, outputs, what is there twice, starts within a word, and other axes."""
    net = Network()
    x = net.input("x", 1, 4, 4, 4)
    parts = [_same(net, f"part{n}", x) for n in range(6)]
    net.node("of_input", Concat(1), x, parts[0])
    net.node("of_output", Concat(1), parts[1], parts[2])
    net.node("twice", Concat(1), parts[3], parts[3])
    odd = [
        net.node(f"odd{n}", StridedSlice((0, 0, 0, 0), (1, 1, 1, 3), (1, 1, 1, 1)), parts[n]) for n in (4, 5)
    ]
    net.node("within_word", Concat(1), *odd)
    net.node("channels", Concat(3), *(_same(net, f"wide{n}", x) for n in range(2)))
    graph = graph_of(net, parts[1])
    assert join_in_place(make_plan(graph, select(graph, _TARGET)), _TARGET)[1] == ()


def test_the_graph_executor_has_none() -> None:
    """Its tables know whole values only."""
    assert not any(
        step.kernel.joins for step in plan_model(graph_of(heads()), _TARGET, in_place=False)[0].steps
    )


@pytest.mark.cc
@pytest.mark.qemu
@pytest.mark.parametrize("board", ["host", nightly("mps3_an547"), nightly("mps2_an386"), nightly("rpi_pico")])
def test_outputs(board: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks whose concatenations are in place wherever they can be: no byte is lost."""
    monkeypatch.setattr(joined, "gain_of", lambda *_: 1.0)
    models = [crtgen.Model(replace(graph_of(grown(seed)), name=f"net{seed}")) for seed in _SEEDS]
    compiled = crtgen.compile(models, board)
    counts = [sum(step.kernel.joins for step in plan.steps) for plan in compiled.plans]
    assert sum(counts) > len(models)
    assert max(counts) > 2
    with compiled.generate("server").build().run() as session:
        for model in models:
            given = random_inputs(session.model(model.name).inputs, seed=0)
            (wanted,) = model.graph.run([given])
            for found, right in zip(session.infer(*given, model=model.name), wanted, strict=True):
                np.testing.assert_array_equal(found, right)
