"""Rows that are set in a list, as TensorFlow's converter lowers it: an update; the rest stays refused."""

from dataclasses import dataclass

import numpy as np
import pytest

from crtgen.base.errors import UnsupportedError
from crtgen.network.frontends import load_tflite
from tests.tflite_builder import Model, Operator, Options, Tensor


@dataclass
class Parts:
    """Parts of the pattern; each field but ``shape`` can be made wrong."""

    shape: tuple[int, ...] = (5, 2, 3)
    rows: int = 1
    one: int = 1
    start: int = 0
    rest: int = -1
    zeros: int = 0
    axis: int = 0
    activation: int = 0
    other: bool = False
    swapped: bool = False
    reshape: str = "RESHAPE"


def integers(name: str, *numbers: int) -> Tensor:
    return Tensor(name, [len(numbers)], "int32", data=np.array(numbers, np.int32))


def setting_a_row(parts: Parts) -> bytes:
    """``x[n, ...], row[1, ...], i -> x`` with the row at i, as the converter writes it."""
    rank, item = len(parts.shape), parts.shape[1:]
    unknown = [-1] * (rank - 1)
    tensors = [
        Tensor("x", parts.shape, "float32"),
        Tensor("z", parts.shape, "float32"),
        Tensor("row", (parts.rows, *item), "float32"),
        Tensor("i", [], "int32"),
        Tensor("one", [], "int32", data=np.array(parts.one, np.int32)),
        Tensor("j", [], "int32"),
        Tensor("i1", [1], "int32"),
        Tensor("j1", [1], "int32"),
        integers("length", 1),
        integers("axis", 0),
        integers("rest", *[parts.rest] * (rank - 1)),
        integers("zeros", *[parts.zeros] * (rank - 1)),
        integers("start", *[parts.start] * rank),
        integers("all", *[-1] * rank),
        Tensor("size", [rank], "int32"),
        Tensor("begin", [rank], "int32"),
        Tensor("before", (1, *unknown), "float32"),
        Tensor("after", (1, *unknown), "float32"),
        Tensor("y", parts.shape, "float32"),
    ]
    second = "length" if parts.reshape == "RESHAPE" else "axis"
    first = ["one", "i"] if parts.swapped else ["i", "one"]
    join = Options("ConcatenationOptions", Axis=0)
    whole = Options("ConcatenationOptions", Axis=parts.axis, FusedActivationFunction=parts.activation)
    operators = [
        Operator("ADD", first, ["j"], Options("AddOptions")),
        Operator(parts.reshape, ["i", second], ["i1"]),
        Operator("CONCATENATION", ["i1", "rest"], ["size"], join),
        Operator("SLICE", ["x", "start", "size"], ["before"]),
        Operator(parts.reshape, ["j", second], ["j1"]),
        Operator("CONCATENATION", ["j1", "zeros"], ["begin"], join),
        Operator("SLICE", ["z" if parts.other else "x", "begin", "all"], ["after"]),
        Operator("CONCATENATION", ["before", "row", "after"], ["y"], whole),
    ]
    return Model(tensors, operators, ["x", "z", "row", "i"], ["y"]).to_bytes()


@pytest.mark.parametrize("parts", [Parts(), Parts(shape=(4, 2)), Parts(swapped=True, reshape="EXPAND_DIMS")])
def test_setting_a_row_is_one_update(parts: Parts) -> None:
    graph = load_tflite(setting_a_row(parts))
    assert [n.op.name for n in graph.nodes if "update" in n.op.name] == ["dynamic_update_slice"]
    assert not any("slice" in n.op.name for n in graph.nodes if n.op.name != "dynamic_update_slice")
    random = np.random.default_rng(1)
    x, z, row = (random.random(s, np.float32) for s in (parts.shape, parts.shape, (1, *parts.shape[1:])))
    for i in range(parts.shape[0]):
        ((y,),) = graph.run([(x, z, row, np.array(i, np.int32))])
        np.testing.assert_array_equal(y, np.concatenate([x[:i], row, x[i + 1 :]]))


@pytest.mark.parametrize(
    "parts",
    [
        Parts(one=2),
        Parts(rows=2),
        Parts(start=1),
        Parts(rest=1),
        Parts(zeros=1),
        Parts(axis=1),
        Parts(activation=1),
        Parts(other=True),
    ],
    ids=str,
)
def test_another_pattern_is_refused(parts: Parts) -> None:
    with pytest.raises(UnsupportedError, match="SLICE: sizes that are computed"):
        load_tflite(setting_a_row(parts))
