"""Convolutions and transposed ones with groups, strides and padding, in one to three dimensions."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from crtgen.network.frontends import load_onnx

Real = npt.NDArray[np.float64]


def _computed(op: str, x: Real, constants: Sequence[Real], **attributes: Any) -> Real:
    """By the references of crtgen's operators."""
    names = [f"c{n}" for n in range(len(constants))]
    node = helper.make_node(op, ["x", *names], ["y"], name="layer", **attributes)
    initial = [
        numpy_helper.from_array(c.astype(np.float32), n) for n, c in zip(names, constants, strict=True)
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", x.shape), ("y", None))]
    graph = helper.make_graph([node], "net", ends[:1], ends[1:], initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    made = load_onnx(shape_inference.infer_shapes(model).SerializeToString())
    ((y,),) = made.run([[x.astype(np.float32)]])
    return y.astype(np.float64)


def _transposed(
    x: Real, w: Real, bias: Real, groups: int, stride: int, dilation: int, pads: Sequence[int], more: int
) -> Real:
    """Every input times every tap, added to its place."""
    spatial = x.ndim - 2
    full = [(d - 1) * stride + (k - 1) * dilation + 1 for d, k in zip(x.shape[2:], w.shape[2:], strict=True)]
    each = w.shape[1]
    y = np.zeros((x.shape[0], groups * each, *(f + more for f in full)))
    inputs = x.shape[1] // groups
    for g, tap in product(range(groups), np.ndindex(*w.shape[2:])):
        rows = np.s_[g * inputs : (g + 1) * inputs]
        part = np.einsum("nc...,co->no...", x[:, rows], w[(rows, slice(None), *tap)])
        at = tuple(
            slice(t * dilation, t * dilation + (d - 1) * stride + 1, stride)
            for t, d in zip(tap, x.shape[2:], strict=True)
        )
        y[(slice(None), slice(g * each, (g + 1) * each), *at)] += part
    ends = zip(y.shape[2:], pads[:spatial], pads[spatial:], strict=True)
    cut = tuple(slice(a, d - b) for d, a, b in ends)
    kept: Real = y[(slice(None), slice(None), *cut)] + bias.reshape(-1, *(1,) * spatial)
    return kept


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_transposed(spatial: int, groups: int) -> None:
    random = np.random.default_rng(groups + 10 * spatial)
    for stride, dilation in ((1, 1), (1, 2), (2, 1), (3, 1), (2, 2)):
        x = random.normal(size=(2, 4, *(5, 3, 4)[:spatial]))
        w, bias = random.normal(size=(4, 3, *(3, 2, 4)[:spatial])), random.normal(size=3 * groups)
        pads, more = [1, 0, 2][:spatial] + [0, 1, 1][:spatial], min(1, stride - 1)
        attributes = {name: [n] * spatial for name, n in (("strides", stride), ("dilations", dilation))}
        y = _computed(
            "ConvTranspose",
            x,
            [w, bias],
            group=groups,
            pads=pads,
            output_padding=[more] * spatial,
            **attributes,
        )
        expected = _transposed(x, w, bias, groups, stride, dilation, pads, more)
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_in_three_dimensions(groups: int) -> None:
    random = np.random.default_rng(groups)
    for stride, dilation in ((1, 1), (2, 1), (1, 2), (2, 2)):
        x, w = random.normal(size=(2, 4, 7, 6, 8)), random.normal(size=(8, 4 // groups, 3, 2, 3))
        bias, pads = random.normal(size=8), [1, 0, 2, 2, 1, 0]
        y = _computed(
            "Conv", x, [w, bias], group=groups, pads=pads, strides=[stride] * 3, dilations=[dilation] * 3
        )
        ends = list(zip(pads[:3], pads[3:], strict=True))
        padded, each = np.pad(x, [(0, 0), (0, 0), *ends]), 8 // groups
        expected = np.zeros(y.shape) + bias.reshape(-1, 1, 1, 1)
        for g, tap in product(range(groups), np.ndindex(3, 2, 3)):
            seen = tuple(
                slice(t * dilation, t * dilation + (d - 1) * stride + 1, stride)
                for t, d in zip(tap, y.shape[2:], strict=True)
            )
            part = padded[(slice(None), slice(g * (4 // groups), (g + 1) * (4 // groups)), *seen)]
            rows = np.s_[g * each : (g + 1) * each]
            expected[:, rows] += np.einsum("nc...,oc->no...", part, w[(rows, slice(None), *tap)])
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("shape", [(1, 3, 5, 4), (2, 1, 1, 7), (1, 2, 3, 4, 5), (3, 1, 2, 1, 3)])
def test_affine_grids(shape: Sequence[int], aligned: int) -> None:
    rank = len(shape) - 2
    theta = np.random.default_rng(7).normal(size=(shape[0], rank, rank + 1)).astype(np.float32)
    node = helper.make_node("AffineGrid", ["x", "size"], ["y"], name="layer", align_corners=aligned)
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", theta.shape), ("y", None))
    ]
    size = numpy_helper.from_array(np.array(shape, np.int64), "size")
    graph = helper.make_graph([node], "net", ends[:1], ends[1:], [size])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    data = shape_inference.infer_shapes(model).SerializeToString()
    (wanted,) = onnxruntime.InferenceSession(data).run(None, {"x": theta})
    ((made,),) = load_onnx(data).run([[theta]])
    np.testing.assert_allclose(made.astype(np.float64), wanted, atol=2e-6)
