"""Operators of TFLite that TFLite Micro has not, against their definitions in TensorFlow's documentation."""

from zlib import crc32

import numpy as np
import pytest
from numpy.typing import ArrayLike

from crtgen.base.errors import CorruptModelError
from crtgen.network.frontends import load_tflite
from crtgen.network.ir import Array
from tests.tflite_builder import Model, Operator, Tensor


def _run(
    code: str, inputs: list[Array], outputs: list[tuple[tuple[int, ...], str]], *rest: Array
) -> list[Array]:
    given = [Tensor(f"x{n}", x.shape, x.dtype.name) for n, x in enumerate(inputs)]
    constants = [Tensor(f"c{n}", x.shape, x.dtype.name, data=x) for n, x in enumerate(rest)]
    made = [Tensor(f"y{n}", *kind) for n, kind in enumerate(outputs)]
    names = [tensor.name for tensor in (*given, *constants)]
    results = [tensor.name for tensor in made]
    model = Model([*given, *constants, *made], [Operator(code, names, results)], names[: len(given)], results)
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


def test_pow() -> None:
    x, e = np.array([2, 0.5, 9, 3], np.float32), np.array([3, -1, 0.5, 0], np.float32)
    (y,) = _run("POW", [x, e], [((4,), "float32")])
    assert y.tolist() == pytest.approx([8, 2, 3, 1], rel=1e-6)


def test_the_remainder_has_the_sign_of_the_divisor() -> None:
    a, b = (x.reshape(-1).astype(np.int32) for x in np.meshgrid(range(-9, 10), [-4, -3, -1, 1, 2, 5]))
    (y,) = _run("FLOOR_MOD", [a, b], [(a.shape, "int32")])
    assert y.tolist() == [p % q for p, q in zip(a.tolist(), b.tolist(), strict=True)]


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
    ],
)
def test_functions_by_a_table_are_those_of_litert(
    code: str, dtype: str, least: int, x: tuple[float, int], y: tuple[float, int], crc: int
) -> None:
    """Every number at once; the checksums are those of what ai-edge-litert 2.3 computes."""
    numbers = np.arange(least, np.iinfo(dtype).max + 1).astype(dtype)
    ends = [Tensor(n, numbers.shape, dtype, [q[0]], [q[1]]) for n, q in (("x", x), ("y", y))]
    model = Model(ends, [Operator(code, ["x"], ["y"])], ["x"], ["y"])
    graph = load_tflite(model.to_bytes())
    assert crc32(graph.evaluate({"x": numbers})[graph.outputs[0]].tobytes()) == crc


def test_functions_by_a_table_need_scales() -> None:
    x = np.zeros((4,), np.int16)
    with pytest.raises(CorruptModelError, match="not quantised"):
        _run("LOG", [x], [((4,), "int16")])
