"""Channels that cannot vary: what goes, what stays, and that nothing else changes."""

import numpy as np
import pytest

from crtgen.network.ir import Array, DType, Graph, Op, Quant, Value
from crtgen.network.ops import (
    Activation,
    Add,
    AveragePool2d,
    Concat,
    Conv2d,
    DepthwiseConv2d,
    FullyConnected,
    Mean,
    Mul,
    Pad,
    Padding,
    Relu,
    Reshape,
    Softmax,
    StridedSlice,
    Transpose,
)
from crtgen.network.passes import FoldChannels, FoldedLayer
from tests.network.passes.networks import Network, assert_same_results

RELU = Activation.RELU
AROUND = Padding(1, 1, 1, 1)
LOW, HIGH = -1_000_000, 1_000_000
"""Accumulators that end at the least and at the greatest output, whatever the scales."""


def folded(graph: Graph, multiple: int = 1) -> tuple[Graph, tuple[FoldedLayer, ...]]:
    after, rewrites = assert_same_results(graph, (FoldChannels(multiple),))
    assert all(isinstance(h, FoldedLayer) for h in rewrites)
    return after, tuple(h for h in rewrites if isinstance(h, FoldedLayer))


def counts(graph: Graph) -> dict[str, int]:
    """Channels of what each node computes."""
    return {node.name: graph.values[node.outputs[0]].shape[-1] for node in graph.nodes}


def first(net: Network, sums: dict[int, int], channels: int = 6, activation: Activation = RELU) -> str:
    """A pointwise layer on a 5x6 image of 4 channels, with planted channels."""
    x = net.input("x", 1, 5, 6, 4)
    return net.planted("first", Conv2d(activation=activation), x, (channels, 1, 1, 4), sums)


def test_constants_go_into_the_bias() -> None:
    net = Network()
    y = first(net, {1: LOW, 4: HIGH})
    graph = net.graph(net.layer("second", Conv2d(), y, (3, 1, 1, 6)))
    after, rewrites = folded(graph)
    assert counts(after) == {"first": 4, "second": 3}
    old, new = (g.signature(g.nodes[1]).inputs for g in (graph, after))
    w = old[1].array().astype(np.int64)
    assert np.array_equal(new[1].array(), w[..., [0, 2, 3, 5]])
    # The first layer's output has zero point 3: relu gives 3, which counts as nothing, or 127.
    assert np.array_equal(new[2].array(), old[2].array().astype(np.int64) + (127 - 3) * w[:, 0, 0, 4])
    assert new[1].quant == old[1].quant
    first_quant = graph.signature(graph.nodes[0]).inputs[1].quant
    kept = after.signature(after.nodes[0]).inputs[1].quant
    assert first_quant is not None
    assert kept is not None
    assert kept.scales == tuple(first_quant.scales[c] for c in (0, 2, 3, 5))
    assert [str(h) for h in rewrites] == [
        "fold channels: first: 2 of 6 channels are constant and go; 240 of 720 MACs and 16 bytes saved",
        "fold channels: second: it reads fewer channels; 180 of 540 MACs and 6 bytes saved",
    ]


def test_the_certificate() -> None:
    net = Network()
    y = first(net, {1: LOW, 4: HIGH})
    _, (one, two) = folded(net.graph(net.layer("second", Conv2d(), y, (3, 1, 1, 6))))
    assert one.to_dict() == {
        "rule": "fold channels",
        "node": "first",
        "text": one.text,
        "operator": "conv2d",
        "removed": (
            {"channel": 1, "value": 3, "low": LOW, "high": LOW},
            {"channel": 4, "value": 127, "low": HIGH, "high": HIGH},
        ),
        "macs_before": 720,
        "macs_after": 480,
        "weight_bytes_before": 24 + 24,
        "weight_bytes_after": 16 + 16,
    }
    assert (two.removed, two.macs_before, two.macs_after) == ((), 540, 360)


@pytest.mark.parametrize(
    "padding", [AROUND, Padding(top=1), Padding(bottom=1), Padding(left=1), Padding(right=1)]
)
@pytest.mark.parametrize("total", [LOW, HIGH])
def test_at_the_border_a_constant_counts_only_as_the_zero_point(total: int, padding: Padding) -> None:
    """A padded 3x3 window sees the zero point outside of the image: 3, which relu gives, but not 127."""
    net = Network()
    graph = net.graph(net.layer("second", Conv2d(padding=padding), first(net, {2: total}), (3, 3, 3, 6)))
    after, _ = folded(graph)
    assert counts(after)["first"] == (5 if total == LOW else 6)
    net = Network()
    inside = net.graph(net.layer("inside", Conv2d(), first(net, {2: total}), (3, 3, 3, 6)))
    assert counts(folded(inside)[0])["first"] == 5


def test_without_weights_at_the_border_the_constant_counts_alike_everywhere() -> None:
    net = Network()
    y = net.layer("second", Conv2d(padding=AROUND), first(net, {2: HIGH}), (3, 3, 3, 6))
    w = net.values["second_w"].array().copy()
    w[:, [0, 2], :, 2] = 0
    w[:, :, [0, 2], 2] = 0
    net.values["second_w"] = Value.constant("second_w", w, net.values["second_w"].quant)
    assert counts(folded(net.graph(y))[0])["first"] == 5


@pytest.mark.parametrize(("bias", "removed"), [(0, 0), (LOW, 1), (HIGH, 1)])
def test_a_padded_depthwise_layer_on_a_constant(bias: int, removed: int) -> None:
    """Its border differs, unless every class of border pixels saturates to the same value."""
    net = Network()
    y = net.layer("dw", DepthwiseConv2d(padding=AROUND), first(net, {2: HIGH}), (1, 3, 3, 6), 3)
    w, b = (net.values[name].array().copy() for name in ("dw_w", "dw_b"))
    w[..., 2], b[2] = 1, bias  # 9, 6 or 4 taps of 127 - 3
    net.values["dw_w"] = Value.constant("dw_w", w, net.values["dw_w"].quant)
    net.values["dw_b"] = Value.constant("dw_b", b, net.values["dw_b"].quant)
    after, _ = folded(net.graph(net.layer("last", Conv2d(), y, (3, 1, 1, 6))))
    assert counts(after) == {"first": 6 - removed, "dw": 6 - removed, "last": 3}


def test_what_only_constants_read_goes_too() -> None:
    net = Network()
    dw = DepthwiseConv2d(padding=AROUND, activation=RELU)
    y = net.planted("dw", dw, first(net, {}), (1, 3, 3, 6), {0: LOW, 5: LOW}, 3)
    after, (one, two, _) = folded(net.graph(net.layer("last", Conv2d(), y, (3, 1, 1, 6))))
    assert counts(after) == {"first": 4, "dw": 4, "last": 3}
    assert [(r.channel, r.value) for r in one.removed] == [(0, None), (5, None)]
    assert [(r.channel, r.value) for r in two.removed] == [(0, 3), (5, 3)]
    assert "0 of 6 channels are constant and go, and 2 that nothing else needs" in one.text


def test_a_channel_without_weights_behind_it_goes() -> None:
    net = Network()
    y = net.layer("second", Conv2d(padding=AROUND), first(net, {}), (3, 3, 3, 6))
    w = net.values["second_w"].array().copy()
    w[..., 3] = 0
    net.values["second_w"] = Value.constant("second_w", w, net.values["second_w"].quant)
    assert counts(folded(net.graph(y))[0])["first"] == 5


def test_a_depthwise_multiplier_keeps_its_groups_together() -> None:
    net = Network()
    y = net.planted(
        "dw", DepthwiseConv2d(multiplier=2), first(net, {}), (1, 3, 3, 12), {0: LOW, 1: HIGH, 4: LOW}, 3
    )
    after, _ = folded(net.graph(net.layer("last", Conv2d(), y, (3, 1, 1, 12))))
    assert counts(after) == {"first": 5, "dw": 10, "last": 3}


def test_an_addition_removes_what_is_constant_in_its_sum() -> None:
    net = Network()
    a = first(net, {0: LOW, 1: HIGH, 2: LOW})
    b = net.planted("other", Conv2d(activation=RELU), "x", (6, 1, 1, 4), {0: LOW, 1: LOW, 5: LOW})
    y = net.node("add", Add(), a, b, quant=Quant.tensor(0.4, -20))
    after, _ = folded(net.graph(net.layer("last", Conv2d(), y, (3, 1, 1, 6))))
    assert counts(after) == {"first": 4, "other": 4, "add": 4, "last": 3}


def test_a_constant_operand_is_cut_and_a_broadcast_one_is_not() -> None:
    net = Network()
    data = np.arange(6, dtype=np.int8).reshape(1, 6)
    net.add_value(Value.constant("c", data, Quant.tensor(0.1, 2)))
    net.add_value(Value.constant("d", np.array([7], np.int8), Quant.tensor(0.3, 1)))
    y = net.node("add", Add(), first(net, {1: LOW}), "c", quant=Quant.tensor(0.3, 0))
    y = net.node("mul", Mul(), y, "d", quant=Quant.tensor(0.5, 0))
    after, _ = folded(net.graph(net.layer("last", Conv2d(), y, (3, 1, 1, 6))))
    assert counts(after) == {"first": 5, "add": 5, "mul": 5, "last": 3}
    assert np.array_equal(after.values["c"].array(), data[..., [0, 2, 3, 4, 5]])
    assert after.values["d"].shape == (1,)


def test_both_sides_of_a_concatenation() -> None:
    net = Network()
    a = first(net, {1: LOW})
    b = net.planted("other", Conv2d(activation=RELU), "x", (4, 1, 1, 4), {0: LOW, 3: LOW})
    y = net.node("join", Concat(3), a, b)
    after, _ = folded(net.graph(net.layer("last", Conv2d(padding=AROUND), y, (3, 3, 3, 10))))
    assert counts(after) == {"first": 5, "other": 2, "join": 7, "last": 3}


def test_a_concatenation_of_rows_removes_what_is_constant_in_both() -> None:
    net = Network()
    a = first(net, {1: LOW, 2: LOW})
    b = net.planted("other", Conv2d(activation=RELU), "x", (6, 1, 1, 4), {1: LOW, 2: HIGH, 3: LOW})
    y = net.node("join", Concat(1), a, b)
    after, _ = folded(net.graph(net.layer("last", Conv2d(), y, (3, 1, 1, 6))))
    assert counts(after) == {"first": 5, "other": 5, "join": 5, "last": 3}


@pytest.mark.parametrize("flat", [True, False])
def test_a_flattened_image_in_front_of_a_fully_connected_layer(flat: bool) -> None:
    net = Network()
    y = first(net, {0: LOW, 4: HIGH})
    if flat:
        y = net.node("flat", Reshape((1, 180)), y)
    graph = net.graph(net.layer("fc", FullyConnected(), y, (7, 180)))
    after, _ = folded(graph)
    assert counts(after) == {"first": 4, "fc": 7} | ({"flat": 120} if flat else {})
    w = graph.values["fc_w"].array().reshape(7, 30, 6)[..., [1, 2, 3, 5]].reshape(7, 120)
    assert np.array_equal(after.values["fc_w"].array(), w)


def test_a_constant_that_differs_from_pixel_to_pixel_goes_into_a_fully_connected_layer() -> None:
    net = Network()
    y = net.layer("dw", DepthwiseConv2d(padding=AROUND), first(net, {2: HIGH}), (1, 3, 3, 6), 3)
    after, _ = folded(net.graph(net.layer("fc", FullyConnected(), y, (7, 180))))
    assert counts(after) == {"first": 5, "dw": 5, "fc": 7}


def test_a_reshape_that_splits_channels() -> None:
    net = Network()
    y = net.node("split", Reshape((1, 30, 2, 3)), first(net, {0: LOW, 3: LOW, 4: LOW}))
    after, _ = folded(net.graph(net.layer("last", Conv2d(), y, (5, 1, 1, 3))))
    assert counts(after) == {"first": 4, "split": 2, "last": 5}
    assert after.values["split_out"].shape == (1, 30, 2, 2)


@pytest.mark.parametrize(
    "op",
    [
        AveragePool2d((2, 2), (2, 2)),
        Mean((1, 2)),
        Mean((1, 2), True),
        Relu(Activation.RELU6),
        Pad((0, 1, 0, 0), (0, 0, 2, 0), 3),
        Transpose((0, 2, 1, 3)),
        StridedSlice((0, 4, 0, 0), (1, -1, 6, 6), (1, -1, 2, 1)),
    ],
)
def test_operators_that_keep_channels_apart(op: Op) -> None:
    net = Network()
    y = net.node("op", op, first(net, {0: LOW, 3: LOW}))
    after, _ = folded(net.graph(net.layer("fc", FullyConnected(keep_dims=True), y, (3, 6))))
    assert counts(after) == {"first": 4, "op": 4, "fc": 3}


@pytest.mark.parametrize(
    "op",
    [
        Mean((3,), True),
        Pad((0, 0, 0, 1), (0, 0, 0, 0)),
        Transpose((0, 1, 3, 2)),
        StridedSlice((0, 0, 0, 1), (1, 5, 6, 6), (1, 1, 1, 1)),
        Pad((0, 1, 0, 0), (0, 0, 0, 0), 9),
        Softmax(),
        Reshape((1, 5, 9, 4)),
    ],
)
def test_operators_that_mix_channels_or_make_them_vary_keep_them(op: Op) -> None:
    net = Network()
    quant = Quant.tensor(1 / 256, -128) if isinstance(op, Softmax) else None
    y = net.node("op", op, first(net, {0: LOW, 3: LOW}), quant=quant)
    x = net.values[y].shape
    last = net.layer("last", Conv2d(), y, (3, 1, 1, x[-1]))
    assert folded(net.graph(last))[1] == ()


def test_outputs_stay_whole() -> None:
    net = Network()
    y = first(net, {0: LOW})
    assert folded(net.graph(y))[1] == ()
    last = net.layer("last", Conv2d(), y, (3, 1, 1, 6))
    assert counts(folded(net.graph(y, last))[0])["first"] == 6


def test_one_channel_stays() -> None:
    net = Network()
    y = first(net, dict.fromkeys(range(6), LOW))
    after, _ = folded(net.graph(net.layer("last", Conv2d(padding=AROUND), y, (3, 3, 3, 6))))
    assert counts(after) == {"first": 1, "last": 3}


def test_two_outputs_of_a_fully_connected_layer_with_several_scales_stay() -> None:
    """With one scale alone its factor is computed in another way."""
    net = Network()
    x = net.input("x", 1, 9)
    y = net.planted("fc", FullyConnected(RELU), x, (5, 9), dict.fromkeys((0, 1, 3, 4), LOW))
    after, _ = folded(net.graph(net.layer("last", FullyConnected(), y, (3, 5))))
    assert counts(after) == {"fc": 2, "last": 3}


def test_shared_weights_are_cut_for_each_reader() -> None:
    net = Network()
    y = first(net, {0: LOW})
    z = net.planted("other", Conv2d(activation=RELU), "x", (6, 1, 1, 4), {2: LOW, 3: LOW})
    one = net.layer("one", Conv2d(), y, (3, 1, 1, 6))
    two = net.node("two", Conv2d(), z, "one_w", "one_b", quant=Quant.tensor(0.3, 1))
    after, _ = folded(net.graph(one, two))
    assert counts(after) == {"first": 5, "other": 4, "one": 3, "two": 3}
    assert after.nodes[3].inputs[1:] == ("one_w of two", "one_b of two")


@pytest.mark.parametrize(("multiple", "left"), [(1, 5), (2, 6), (4, 8), (8, 8), (16, 9)])
def test_channels_are_rounded_up(multiple: int, left: int) -> None:
    net = Network()
    y = net.node("relu", Relu(), first(net, dict.fromkeys((2, 4, 5, 6), LOW), channels=9))
    after, _ = folded(net.graph(net.layer("last", Conv2d(), y, (3, 1, 1, 9))), multiple)
    assert counts(after) == {"first": left, "relu": left, "last": 3}


def test_a_narrower_input_range_is_used_and_kept_to() -> None:
    net = Network()
    x = net.input("x", 1, 2, 2, 2, zero_point=-7)
    net.add_value(Value.constant("w", np.array([[[[1, 1]]], [[[1, -1]]]], np.int8), Quant.tensor(1.0)))
    net.add_value(Value.constant("b", np.zeros(2, np.int32), Quant.tensor(0.05)))
    y = net.node("first", Conv2d(activation=RELU), x, "w", "b", quant=Quant.tensor(0.05, -128))
    graph = net.graph(net.layer("last", Conv2d(), y, (3, 1, 1, 2)))
    assert FoldChannels(1).rewrite(graph)[1] == ()
    narrow = FoldChannels(1, {"x": (-60, -7)}).run(graph)
    assert counts(narrow) == {"first": 1, "last": 3}
    random = np.random.default_rng(0)
    for _ in range(20):
        inputs: dict[str, Array] = {"x": random.integers(-60, -6, (1, 2, 2, 2)).astype(np.int8)}
        assert np.array_equal(graph.evaluate(inputs)["last_out"], narrow.evaluate(inputs)["last_out"])


def test_floats_are_left_alone() -> None:
    net = Network(real=True)
    y = net.layer("one", Conv2d(activation=RELU), net.input("x", 1, 5, 6, 4), (6, 1, 1, 4))
    assert folded(net.graph(net.layer("two", Conv2d(), y, (3, 1, 1, 6))))[1] == ()


def test_folding_twice_changes_nothing() -> None:
    net = Network()
    y = first(net, {0: LOW, 3: LOW})
    after = FoldChannels(1).run(net.graph(net.layer("last", Conv2d(), y, (3, 1, 1, 6))))
    assert FoldChannels(1).rewrite(after) == (after, ())


def test_weights_of_four_bits_stay_packed() -> None:
    net = Network()
    graph = net.graph(net.layer("second", Conv2d(), first(net, {1: LOW}), (3, 1, 1, 6)))
    weights = {node.inputs[1] for node in graph.nodes}
    values = [
        Value.constant(v.name, v.array().astype(np.int8) >> 4, v.quant, DType.INT4) if name in weights else v
        for name, v in graph.values.items()
    ]
    packed = Graph.build(graph.name, values, graph.nodes, graph.inputs, graph.outputs)
    after, rewrites = folded(packed)
    kept = counts(after)["first"]
    assert kept < 6
    assert all(after.values[node.inputs[1]].dtype is DType.INT4 for node in after.nodes)
    (cut, *_) = rewrites
    assert cut.weight_bytes_before - cut.weight_bytes_after == (6 - kept) * (4 // 2 + 4)
