"""Fourier transforms of TFLite and what follows them, against numpy."""

import numpy as np
import pytest

from crtgen.base.errors import UnsupportedError
from crtgen.network.frontends import load_tflite
from crtgen.network.ir import Array
from tests.tflite_builder import Model, Operator, Tensor


def spectrum(x: Array, *after: tuple[str, tuple[int, ...], str]) -> Array:
    """What becomes of the transform of ``x`` by operators with an output's shape and type each."""
    tensors = [
        Tensor("x", x.shape, "float32"),
        Tensor("lengths", (2,), "int32", data=np.array([1, 16], np.int32)),
        Tensor("y0", (*x.shape[:-1], 9), "COMPLEX64"),
    ]
    operators = [Operator("RFFT2D", ["x", "lengths"], ["y0"])]
    for i, (code, shape, dtype) in enumerate(after):
        tensors.append(Tensor(f"y{i + 1}", shape, dtype))
        operators.append(Operator(code, [f"y{i}"], [f"y{i + 1}"]))
    model = Model(tensors, operators, ["x"], [f"y{len(after)}"])
    graph = load_tflite(model.to_bytes())
    return graph.evaluate({"x": x})[graph.outputs[0]]


X = np.random.default_rng(3).normal(size=(2, 3, 1, 13)).astype(np.float32)
EXPECTED = np.fft.rfft(X.astype(np.float64), 16)


@pytest.mark.parametrize(
    ("code", "expected"), [("COMPLEX_ABS", abs(EXPECTED)), ("REAL", EXPECTED.real), ("IMAG", EXPECTED.imag)]
)
def test_parts_of_a_spectrum(code: str, expected: Array) -> None:
    y = spectrum(X, ("RESHAPE", (6, 9), "COMPLEX64"), (code, (6, 9), "float32"))
    assert y.flatten().tolist() == pytest.approx(expected.flatten().tolist(), abs=1e-5)


def test_what_is_not_known_of_complex_numbers_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="a transform of 3 rows"):
        spectrum(X.reshape(2, 3, 13), ("COMPLEX_ABS", (2, 3, 9), "float32"))
    with pytest.raises(UnsupportedError, match="COMPLEX64"):
        spectrum(X, ("NEG", (2, 3, 1, 9), "COMPLEX64"))
    with pytest.raises(UnsupportedError, match="COMPLEX64"):
        spectrum(X)
