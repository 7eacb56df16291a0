"""Operators of TFLite that TFLite Micro has not, against their definitions in TensorFlow's documentation."""

import struct
from zlib import crc32

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.network.frontends import load_tflite
from crtgen.network.ir import Array
from tests.tflite_builder import Model, Operator, Options, Tensor

Reals = NDArray[np.float32]


def _run(
    code: str,
    inputs: list[Array],
    outputs: list[tuple[tuple[int, ...], str]],
    *rest: Array,
    options: Options | None = None,
) -> list[Array]:
    given = [Tensor(f"x{n}", x.shape, x.dtype.name) for n, x in enumerate(inputs)]
    constants = [Tensor(f"c{n}", x.shape, x.dtype.name, data=x) for n, x in enumerate(rest)]
    made = [Tensor(f"y{n}", *kind) for n, kind in enumerate(outputs)]
    names = [tensor.name for tensor in (*given, *constants)]
    results = [tensor.name for tensor in made]
    model = Model(
        [*given, *constants, *made], [Operator(code, names, results, options)], names[: len(given)], results
    )
    graph = load_tflite(model.to_bytes())
    found = graph.evaluate({f"x{n}": x for n, x in enumerate(inputs)})
    return [found[name] for name in graph.outputs]


def _whole(*numbers: ArrayLike) -> Array:
    return np.array(numbers, np.int32)


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_tile(dtype: str) -> None:
    x = np.random.default_rng(1).integers(0, 2, (2, 3, 1)).astype(dtype)
    (y,) = _run("TILE", [x], [((4, 3, 5), dtype)], _whole(2, 1, 5))
    np.testing.assert_array_equal(y, np.tile(x, (2, 1, 5)))


def test_sign() -> None:
    x = np.array([-3.5, -0.0, 0.0, 1e-30, np.inf, -np.inf], np.float32)
    (y,) = _run("SIGN", [x], [((6,), "float32")])
    assert y.tolist() == [-1, 0, 0, 1, 1, -1]


def test_sign_of_integers() -> None:
    x = np.array([-(2**31), -1, 0, 1, 2**31 - 1], np.int32)
    (y,) = _run("SIGN", [x], [((5,), "int32")])
    assert y.tolist() == [-1, -1, 0, 1, 1]


def test_pow() -> None:
    x, e = np.array([2, 0.5, 9, 3], np.float32), np.array([3, -1, 0.5, 0], np.float32)
    (y,) = _run("POW", [x, e], [((4,), "float32")])
    assert y.tolist() == pytest.approx([8, 2, 3, 1], rel=1e-6)


def test_the_remainder_has_the_sign_of_the_divisor() -> None:
    a, b = (x.reshape(-1).astype(np.int32) for x in np.meshgrid(range(-9, 10), [-4, -3, -1, 1, 2, 5]))
    (y,) = _run("FLOOR_MOD", [a, b], [(a.shape, "int32")])
    assert y.tolist() == [p % q for p, q in zip(a.tolist(), b.tolist(), strict=True)]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_positions_in_an_image(dtype: str) -> None:
    """Rows, columns and channels of flat positions, as decoders of key points compute them."""
    at = np.array([0, 1, 5, 23, 47, 59], dtype)
    size = np.array(12, dtype)
    (rows,) = _run("FLOOR_DIV", [at], [((6,), dtype)], size)
    (columns,) = _run("FLOOR_MOD", [at], [((6,), dtype)], size)
    (begins,) = _run("MUL", [rows], [((6,), dtype)], size)
    (again,) = _run("ADD", [begins, columns], [((6,), dtype)])
    (zeros,) = _run("SUB", [again, at], [((6,), dtype)])
    (same,) = _run("ABS", [zeros], [((6,), dtype)])
    assert rows.tolist() == [0, 0, 0, 1, 3, 4]
    assert columns.tolist() == [0, 1, 5, 11, 11, 11]
    assert not same.any()
    image = np.random.default_rng(1).normal(size=(5, 12)).astype(np.float32)
    (found,) = _run("GATHER_ND", [image, np.stack([rows, columns], -1)], [((6,), "float32")])
    np.testing.assert_array_equal(found, image.reshape(-1)[at])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int) -> None:
    x = _whole([0, 3, -1], [2, 4, 1])
    shape = [(4, 2, 3), (2, 4, 3), (2, 3, 4)][axis]
    constants = np.array(4, np.int32), np.array(2.5, np.float32), np.array(-1, np.float32)
    (y,) = _run("ONE_HOT", [x], [(shape, "float32")], *constants, options=Options("OneHotOptions", Axis=axis))
    hot = np.stack([np.where(x == n, 2.5, -1) for n in range(4)], axis=axis if axis >= 0 else 2)
    np.testing.assert_array_equal(y, hot)


def test_bucketize() -> None:
    """TensorFlow's example, and values at a bound."""
    x = np.array([[-5, 10000], [150, 10], [5, 100], [0, 9.5]], np.float32)
    options = Options("BucketizeOptions", Boundaries=[0.0, 10.0, 100.0])
    (y,) = _run("BUCKETIZE", [x], [((4, 2), "int32")], options=options)
    assert y.tolist() == [[0, 3], [3, 2], [1, 3], [1, 1]]


def test_integers_of_64_bits() -> None:
    a, b = np.array([2**40 + 7, -(2**33) - 5, 17, -17], np.int64), np.array([3, 4, -5, -5], np.int64)
    for code, wanted in (("ADD", a + b), ("SUB", a - b), ("MUL", a * b), ("FLOOR_DIV", a // b)):
        (y,) = _run(code, [a, b], [((4,), "int64")])
        np.testing.assert_array_equal(y, wanted)
    (y,) = _run("FLOOR_MOD", [a, b], [((4,), "int64")])
    np.testing.assert_array_equal(y, a % b)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_the_first_of_equal_numbers_comes_first(dtype: str) -> None:
    x = np.array([[3, 7, 7, -2, 7], [0, -1, 5, 5, 4]], dtype)
    y, places = _run("TOPK_V2", [x], [((2, 3), dtype), ((2, 3), "int32")], np.array(3, np.int32))
    assert y.tolist() == [[7, 7, 7], [5, 5, 4]]
    assert places.tolist() == [[1, 2, 4], [2, 3, 4]]
    assert places.dtype == np.int32


def test_what_is_scattered_to_one_place_is_added() -> None:
    places, updates = _whole([4], [1], [4]), np.array([[1.5, 2], [3, 4], [0.25, 1]], np.float32)
    (y,) = _run("SCATTER_ND", [places, updates], [((6, 2), "float32")], _whole(6, 2))
    assert y.tolist() == [[0, 0], [3, 4], [0, 0], [0, 0], [1.75, 3], [0, 0]]


@pytest.mark.parametrize(
    ("code", "dtype", "least", "x", "y", "crc"),
    [
        ("LOG", "int16", -(1 << 15), (0.001, 0), (0.0003, 0), 0xE4EFEBF3),
        ("LOG", "int16", -(1 << 15), (0.00002, 0), (0.0009, 0), 0x7CD0D57A),
        ("LOG", "int8", -(1 << 7), (0.05, -30), (0.03, 5), 0x7C4F55FB),
        ("LOG", "int8", -(1 << 7), (0.01, -(1 << 7)), (0.02, 50), 0x06CA53E0),
        ("EXP", "int16", -(1 << 15), (0.0001, 0), (0.001, 0), 0x2D685CAC),
        ("EXP", "int16", -(1 << 15), (0.0003, 0), (0.01, 0), 0xB87DB5C8),
        ("EXP", "int8", -(1 << 7), (0.03, 4), (0.1, -100), 0x740E2942),
        ("EXP", "int8", -(1 << 7), (0.01, -(1 << 7)), (0.06, -(1 << 7)), 0xF3C1F5FC),
        ("SQRT", "int8", -30, (0.05, -30), (0.03, 5), 0xD8AD9B75),
        ("SQRT", "int8", -(1 << 7), (0.01, -(1 << 7)), (0.0061, -(1 << 7)), 0x6732F790),
    ],
)
def test_functions_by_a_table_are_those_of_litert(
    code: str, dtype: str, least: int, x: tuple[float, int], y: tuple[float, int], crc: int
) -> None:
    """Every number at once; the checksums are those of ai-edge-litert 2.3 and, for SQRT, TensorFlow 2.21."""
    numbers = np.arange(least, np.iinfo(dtype).max + 1).astype(dtype)
    ends = [Tensor(n, numbers.shape, dtype, [q[0]], [q[1]]) for n, q in (("x", x), ("y", y))]
    model = Model(ends, [Operator(code, ["x"], ["y"])], ["x"], ["y"])
    graph = load_tflite(model.to_bytes())
    assert crc32(graph.evaluate({"x": numbers})[graph.outputs[0]].tobytes()) == crc


@pytest.mark.parametrize(
    ("code", "zero_point"), [("TANH", 2), ("TANH", 0), ("LOGISTIC", -128), ("LOGISTIC", -3)]
)
def test_sigmoids_have_the_scale_of_their_output(code: str, zero_point: int) -> None:
    """Files of litert-torch have scales for which TFLite Micro would take 1/128 or 1/256."""
    numbers, scale = np.arange(-128, 128).astype(np.int8), 0.0068
    ends = [Tensor("x", (256,), "int8", [0.03], [7]), Tensor("y", (256,), "int8", [scale], [zero_point])]
    graph = load_tflite(Model(ends, [Operator(code, ["x"], ["y"])], ["x"], ["y"]).to_bytes())
    x = 0.03 * (numbers.astype(np.float64) - 7)
    real = np.tanh(x) if code == "TANH" else 1 / (1 + np.exp(-x))
    wanted = np.clip(real / scale + zero_point, -128, 127)
    found = graph.evaluate({"x": numbers})[graph.outputs[0]]
    assert np.abs(found.astype(np.float64) - wanted).max() <= 0.5001


def test_roots_of_negative_numbers_are_zero() -> None:
    ends = [Tensor("x", (40,), "int8", [0.05], [-30]), Tensor("y", (40,), "int8", [0.03], [5])]
    graph = load_tflite(Model(ends, [Operator("SQRT", ["x"], ["y"])], ["x"], ["y"]).to_bytes())
    found = graph.evaluate({"x": np.arange(-69, -29).astype(np.int8)})[graph.outputs[0]]
    assert set(found.tolist()) == {5}


@pytest.mark.parametrize("scale", [0.02, 7.8e-9])
def test_a_difference_of_a_tensor_to_itself(scale: float) -> None:
    """Keras' logsumexp asks so if a value is finite; TFLite's sum would shift by too much."""
    tensors = [
        Tensor("x", (5,), "int8", [0.015], [-110]),
        Tensor("zero", (5,), "int8", [scale], [3]),
        Tensor("y", (5,), "int8", [0.03], [-20]),
    ]
    difference, total = Operator("SUB", ["x", "x"], ["zero"]), Operator("ADD", ["zero", "x"], ["y"])
    graph = load_tflite(Model(tensors, [difference, total], ["x"], ["y"]).to_bytes())
    found = graph.evaluate({"x": np.array([-128, -110, 0, 10, 127], np.int8)})[graph.outputs[0]]
    assert found.tolist() == [-29, -20, 35, 40, 99]


def test_functions_by_a_table_need_scales() -> None:
    x = np.zeros((4,), np.int16)
    with pytest.raises(CorruptModelError, match="not quantised"):
        _run("LOG", [x], [((4,), "int16")])


def _spread(x: Reals, w: Reals, bias: Reals, stride: tuple[int, int], same: bool) -> Reals:
    """MediaPipe's definition: each input pixel is added to the outputs that its window covers."""
    sizes, before = [], []
    for length, taps, step in zip(x.shape[1:3], w.shape[1:3], stride, strict=True):
        cut = max(0, taps - (length - 1) % step - 1) if same else 0
        sizes.append(step * (length - 1) + taps - cut)
        before.append(cut // 2)
    made: Reals = np.zeros((x.shape[0], *sizes, w.shape[0]), np.float32) + bias
    for i, j, a, b in np.ndindex(*x.shape[1:3], *w.shape[1:3]):
        row, column = i * stride[0] - before[0] + a, j * stride[1] - before[1] + b
        if 0 <= row < sizes[0] and 0 <= column < sizes[1]:
            made[:, row, column] += x[:, i, j] @ w[:, a, b].T
    return made


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(
    ("image", "window", "stride"),
    [((4, 5), (2, 2), (2, 2)), ((3, 4), (3, 4), (2, 1)), ((2, 3), (5, 2), (3, 3)), ((1, 2), (1, 2), (2, 3))],
)
def test_transposed_convolution_with_bias_of_mediapipe(
    image: tuple[int, int], window: tuple[int, int], stride: tuple[int, int], same: bool
) -> None:
    random = np.random.default_rng(3)
    x, w, bias = (
        random.normal(size=shape).astype(np.float32) for shape in ((2, *image, 3), (4, *window, 3), (4,))
    )
    expected = _spread(x, w, bias, stride, same)
    tensors = [
        Tensor("x", x.shape, "float32"),
        Tensor("w", w.shape, "float32", data=w),
        Tensor("bias", bias.shape, "float32", data=bias),
        Tensor("y", expected.shape, "float32"),
    ]
    custom = struct.pack("<3i", 1 if same else 2, stride[1], stride[0])
    code = "CUSTOM Convolution2DTransposeBias"
    model = Model(tensors, [Operator(code, ["x", "w", "bias"], ["y"], custom=custom)], ["x"], ["y"])
    ((y,),) = load_tflite(model.to_bytes()).run([(x,)])
    np.testing.assert_allclose(y.astype(np.float32), expected, atol=1e-5)


@pytest.mark.parametrize("custom", [b"", b"\1\0\0\0\2\0\0\0", struct.pack("<3i", 3, 2, 2)])
def test_options_of_mediapipe_that_are_wrong(custom: bytes) -> None:
    w = np.ones((1, 2, 2, 1), np.float32)
    tensors = [
        Tensor("x", (1, 2, 2, 1), "float32"),
        Tensor("w", w.shape, "float32", data=w),
        Tensor("y", (1, 4, 4, 1), "float32"),
    ]
    code = "CUSTOM Convolution2DTransposeBias"
    model = Model(tensors, [Operator(code, ["x", "w"], ["y"], custom=custom)], ["x"], ["y"])
    with pytest.raises(CorruptModelError, match="Convolution2DTransposeBias"):
        load_tflite(model.to_bytes())


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_of_an_embedding_with_scales_of_their_own(axis: int) -> None:
    """ai-edge-quantizer writes such tables; a row is its int8 values times its scale, in float32."""
    random, places = np.random.default_rng(4), np.array([3, 0, 2, 3], np.int32)
    numbers = random.integers(-128, 128, (4, 6)).astype(np.int8)
    scales = np.array(random.uniform(0.001, 0.1, numbers.shape[axis]), np.float32)
    tensors = [
        Tensor("i", (4,), "int32"),
        Tensor("t", numbers.shape, "int8", scales.tolist(), [0] * scales.size, axis, numbers),
        Tensor("y", (4, 6), "float32"),
    ]
    model = Model(tensors, [Operator("EMBEDDING_LOOKUP", ["i", "t"], ["y"])], ["i"], ["y"]).to_bytes()
    if axis:
        with pytest.raises(UnsupportedError, match="scales along another axis"):
            load_tflite(model)
        return
    graph = load_tflite(model)
    found = graph.evaluate({"i": places})[graph.outputs[0]]
    np.testing.assert_array_equal(found, (numbers.astype(np.float32) * scales[:, None])[places])
