"""Operators of features against their formulas in float64, and against numpy's transforms."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtgen.network.ops import (
    Bands,
    Before,
    Case,
    Frame,
    Irfft,
    Power,
    RemoveMean,
    Rfft,
    RoundedRatio,
    ScaledExp,
    ScaledLog,
    all_cases,
)
from crtgen.network.ops.spectral import LogFloor

Doubles = npt.NDArray[Any]
_OWN = (Bands, Frame, Power, RemoveMean, RoundedRatio, ScaledExp, ScaledLog)
_CASES = [c for c in all_cases() if isinstance(c.op, _OWN)]
_FLOATS = [c for c in all_cases() if isinstance(c.op, Rfft | Irfft) and "float32" in c.name]


def _expected(case: Case, x: Doubles) -> Doubles:
    match case.op:
        case Frame():
            weights = case.sig.inputs[1].array().astype(float)
            first = case.op.start
            outside = {
                Before.LAST: x[-1],
                Before.ITSELF: x[first],
                Before.EARLIER: x[first - 1] if first else 0,
            }
            before = np.concatenate([[outside[case.op.before]], x[first : first + len(weights) - 1]])
            products: Doubles = weights * (x[first : first + len(weights)] - case.op.preemphasis * before)
            return products
        case RemoveMean():
            part = x[case.op.start : case.op.start + case.op.size]
            without: Doubles = part - part.mean()
            return without
        case Power():
            power = np.abs(x[..., ::2] + 1j * x[..., 1::2]) ** 2
            magnitude: Doubles = np.sqrt(power) if case.op.root else power
            return magnitude
        case Bands():
            weights, starts, widths = (v.array() for v in case.sig.inputs[1:])
            matrix, at = np.zeros((x.shape[-1], len(starts))), 0
            for band, (start, width) in enumerate(zip(starts.tolist(), widths.tolist(), strict=True)):
                matrix[start : start + width, band] = weights[at : at + width]
                at += width
            sums: Doubles = x @ matrix
            return sums
        case ScaledExp(scale, offset):
            return np.asarray(scale * np.exp(np.clip(x, -87, 88)) + offset)
        case ScaledLog(floor, kind, scale, offset):
            safe = {
                LogFloor.MAX: np.maximum(x, floor),
                LogFloor.ADD: x + floor,
                LogFloor.ZERO: x + (x == 0) * floor,
            }
            logs: Doubles = scale * np.log(safe[kind]) + offset
            return logs
    raise AssertionError(case.name)


@pytest.mark.parametrize(
    "case", [c for c in _CASES if not isinstance(c.op, RoundedRatio)], ids=lambda c: c.name
)
@pytest.mark.parametrize("seed", range(3))
def test_formula(case: Case, seed: int) -> None:
    inputs = case.inputs(seed)
    (made,) = case.op.reference(
        case.sig, [v.array() if v.is_constant else inputs[v.name] for v in case.sig.inputs]
    )
    expected = _expected(case, inputs["x"].astype(float))
    assert made.dtype == np.float32
    np.testing.assert_allclose(
        made.astype(float), expected, rtol=1e-6, atol=1e-6 * max(np.abs(expected).max(), 1)
    )


def test_ratio_is_rounded_as_in_micro_speech() -> None:
    (case,) = (c for c in _CASES if isinstance(c.op, RoundedRatio))
    x = np.arange(1400, dtype=np.int16)
    expected = np.clip((x.astype(int) * 256 + 333) // 666 - 128, -128, 127)
    np.testing.assert_array_equal(case.op.reference(case.sig, [x])[0], expected)


@pytest.mark.parametrize("case", _FLOATS, ids=lambda c: c.name)
def test_float_transforms(case: Case) -> None:
    x = case.inputs(5)["x"].astype(float).reshape(-1, case.sig.x.shape[-1])
    (made,) = case.op.reference(case.sig, [x.astype(np.float32).reshape(case.sig.x.shape)])
    if isinstance(case.op, Rfft):
        result = np.fft.rfft(x, case.op.length)
        expected: Doubles = np.stack([result.real, result.imag], axis=-1)
    else:
        expected = np.fft.irfft(x[:, ::2] + 1j * x[:, 1::2])
    np.testing.assert_allclose(
        made.ravel().astype(float), expected.ravel(), atol=1e-6 * np.abs(expected).max()
    )
