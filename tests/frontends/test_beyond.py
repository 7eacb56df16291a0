"""Operators of TFLite that TFLite Micro has not, against their definitions in TensorFlow's documentation."""

import numpy as np
import pytest
from numpy.typing import ArrayLike

from crtgen.frontends import load_tflite
from crtgen.ir import Array
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
