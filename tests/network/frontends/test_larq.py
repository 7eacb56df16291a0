"""Networks of Larq against their definition: convolutions of real numbers that are 1 or -1.

A bit that is set stands for -1. Operators and options are those of Larq Compute Engine 0.16.
"""

from itertools import product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from flatbuffers import flexbuffers

from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.network.frontends import load_tflite
from tests.tflite_builder import Model, Operator, Tensor

Array: TypeAlias = npt.NDArray[Any]

random = np.random.default_rng(5)
SAME, VALID = 0, 1


def options(**numbers: int) -> bytes:
    builder = flexbuffers.Builder()
    with builder.Map():
        for name, number in sorted(numbers.items()):
            builder.Key(name)
            builder.Int(number)
    return bytes(builder.Finish())


def packed(signs: Array) -> Array:
    """Bit by bit, into as many words as there have to be."""
    words = np.zeros((*signs.shape[:-1], -(-signs.shape[-1] // 32)), np.uint32)
    for i in range(signs.shape[-1]):
        words[..., i // 32] |= np.less(signs[..., i], 0).astype(np.uint32) << np.uint32(i % 32)
    return words.view(np.int32)


def convolution(x: Array, weights: Array, stride: int, spread: int, padding: int, fill: int) -> Array:
    """Sums of products, window by window."""
    signs = np.where(np.less(x, 0), -1, 1)
    outputs, rows, columns, _ = weights.shape
    around = []
    for length, taps in zip(x.shape[1:3], (rows, columns), strict=True):
        total = max(0, (-(-length // stride) - 1) * stride + (taps - 1) * spread + 1 - length)
        around.append((total // 2, total - total // 2) if padding == SAME else (0, 0))
    image = np.pad(signs, ((0, 0), *around, (0, 0)), constant_values=fill)
    height, width = (
        (n - (taps - 1) * spread - 1) // stride + 1
        for n, taps in zip(image.shape[1:3], (rows, columns), strict=True)
    )
    y = np.zeros((x.shape[0], height, width, outputs))
    for i, j in product(range(height), range(width)):
        window = image[:, i * stride :, j * stride :][
            :, : (rows - 1) * spread + 1, : (columns - 1) * spread + 1
        ]
        y[:, i, j] = np.einsum("nhwc,ohwc->no", window[:, ::spread, ::spread], weights)
    return y


def network(
    x: Array, weights: Array, sums: Array, kind: str, **numbers: int
) -> tuple[Model, dict[str, Array]]:
    """A sign of each input, and a binary convolution; what is beside the sums, by name."""
    channels = weights.shape[0]
    extra: dict[str, Array] = {
        "factor": random.normal(size=(channels,)).astype(np.float32),
        "bias": random.normal(0, 5, (channels,)).astype(np.float32),
        "threshold": random.integers(0, weights[0].size, channels).astype(np.int32),
    }
    shape = (*sums.shape[:3], -(-channels // 32)) if kind == "int32" else sums.shape
    quant: tuple[list[float], list[int]] = ([0.5], [3]) if kind == "int8" else ([], [])
    words = (*x.shape[:3], -(-x.shape[3] // 32))
    tensors = [
        Tensor("x", x.shape, "float32"),
        Tensor("signs", words, "int32"),
        Tensor("weights", packed(weights).shape, "int32", data=packed(weights)),
        *(Tensor(name, data.shape, data.dtype.name, data=data) for name, data in extra.items()),
        Tensor("sums", shape, kind, *quant),
        Tensor("y", sums.shape, "float32"),
    ]
    real = kind != "int32"
    beside = ["factor", "bias", None] if real else [None, None, "threshold"]
    numbers = {"channels_in": x.shape[3], "fused_activation_function": 0, **numbers}
    operators = [
        Operator("CUSTOM LceQuantize", ["x"], ["signs"], custom=options()),
        Operator("CUSTOM LceBconv2d", ["signs", "weights", *beside], ["sums"], custom=options(**numbers)),
        Operator("CUSTOM LceDequantize", ["sums"], ["y"], custom=options()),
    ]
    return Model(tensors, operators[: 2 + (not real)], ["x"], ["sums" if real else "y"]), extra


def computed(model: Model, x: Array) -> Array:
    graph = load_tflite(model.to_bytes())
    return graph.evaluate({"x": x})[graph.outputs[0]]


def drawn(channels: int, outputs: int, taps: int = 3) -> tuple[Array, Array]:
    weights = np.where(random.random((outputs, taps, taps, channels)) < 0.5, -1, 1)
    return random.normal(size=(1, 7, 6, channels)).astype(np.float32), weights


@pytest.mark.parametrize(
    ("channels", "outputs", "stride", "spread", "padding", "fill"),
    [
        (40, 7, 1, 1, SAME, 0),
        (40, 7, 1, 1, SAME, 1),
        (32, 33, 2, 1, SAME, 1),
        (64, 5, 1, 2, VALID, 0),
        (3, 4, 2, 1, VALID, 0),
    ],
)
@pytest.mark.parametrize("kind", ["float32", "int8", "int32"])
def test_convolutions(
    channels: int, outputs: int, stride: int, spread: int, padding: int, fill: int, kind: str
) -> None:
    x, weights = drawn(channels, outputs)
    sums = convolution(x, weights, stride, spread, padding, fill)
    steps = {f"{name}_{axis}": n for axis in ("height", "width") for name, n in (("stride", stride),)}
    steps |= {f"dilation_{axis}_factor": spread for axis in ("height", "width")}
    model, beside = network(x, weights, sums, kind, padding=padding, pad_values=fill, **steps)
    y = computed(model, x)
    expected = sums * beside["factor"] + beside["bias"]
    if kind == "float32":
        assert np.abs(y - expected).max() < 1e-4
    elif kind == "int8":
        assert np.abs(y - np.clip(expected / 0.5 + 3, -128, 127)).max() < 0.5001
    else:
        unlike = (weights[0].size - sums) / 2
        assert np.array_equal(y, np.where(unlike > beside["threshold"], -1, 1))


@pytest.mark.parametrize(("number", "low", "high"), [(1, 0, np.inf), (2, -1, 1), (3, 0, 6)])
def test_activations_are_before_the_factor(number: int, low: float, high: float) -> None:
    x, weights = drawn(32, 4, 1)
    sums = convolution(x, weights, 1, 1, VALID, 0)
    steps: dict[str, Any] = {"stride_height": 1, "stride_width": 1, "padding": VALID}
    model, beside = network(x, weights, sums, "float32", fused_activation_function=number, **steps)
    expected = np.clip(sums, low, high) * beside["factor"] + beside["bias"]
    assert np.abs(computed(model, x) - expected).max() < 1e-5


def test_signs_of_bytes_and_what_they_become() -> None:
    x = np.arange(-128, 128).astype(np.int8).reshape(1, 256)
    tensors = [
        Tensor("x", x.shape, "int8", [0.1], [-5]),
        Tensor("signs", (1, 8), "int32"),
        Tensor("y", x.shape, "int8", [0.02], [90]),
    ]
    operators = [
        Operator("CUSTOM LceQuantize", ["x"], ["signs"], custom=options()),
        Operator("CUSTOM LceDequantize", ["signs"], ["y"], custom=options()),
    ]
    assert np.array_equal(computed(Model(tensors, operators, ["x"], ["y"]), x), np.where(x < -5, 40, 127))


def test_max_pools_do_not_see_the_padding() -> None:
    x = random.normal(size=(1, 5, 7, 70)).astype(np.float32)
    tensors = [
        Tensor("x", x.shape, "float32"),
        Tensor("signs", (1, 5, 7, 3), "int32"),
        Tensor("pooled", (1, 3, 4, 3), "int32"),
        Tensor("y", (1, 3, 4, 70), "float32"),
    ]
    numbers = {f"{name}_{axis}": 2 for name in ("stride", "filter") for axis in ("height", "width")}
    operators = [
        Operator("CUSTOM LceQuantize", ["x"], ["signs"], custom=options()),
        Operator("CUSTOM LceBMaxPool2d", ["signs"], ["pooled"], custom=options(padding=SAME, **numbers)),
        Operator("CUSTOM LceDequantize", ["pooled"], ["y"], custom=options()),
    ]
    y = computed(Model(tensors, operators, ["x"], ["y"]), x)
    signs = np.pad(np.where(x < 0, -1, 1), ((0, 0), (0, 1), (0, 1), (0, 0)), constant_values=-1)
    assert np.array_equal(y, signs.reshape(1, 3, 2, 4, 2, 70).max(axis=(2, 4)))


def test_what_is_not_known_is_refused() -> None:
    x, weights = drawn(64, 4)
    sums = convolution(x, weights, 1, 1, VALID, 0)
    steps: dict[str, Any] = {"stride_height": 1, "stride_width": 1, "padding": VALID}
    with pytest.raises(UnsupportedError, match="groups of channels"):
        computed(network(x, weights[..., :32], sums, "float32", **steps)[0], x)
    with pytest.raises(UnsupportedError, match="activation number 4"):
        computed(network(x, weights, sums, "float32", fused_activation_function=4, **steps)[0], x)
    with pytest.raises(CorruptModelError, match="65 signs in 2 words"):
        computed(network(x, weights, sums, "float32", **{**steps, "channels_in": 65})[0], x)
