"""Statistics of windows of samples along several axes."""

from math import log

import numpy as np
import numpy.typing as npt

from crtgen.network.features.settings import VibrationSettings
from crtgen.network.features.steps import GraphSteps, Handle
from crtgen.network.ir import DType
from crtgen.network.ops import (
    Biquads,
    Cast,
    Concat,
    Div,
    Gather,
    Less,
    LogFloor,
    Maximum,
    Moments,
    Mul,
    NotEqual,
    Pad,
    Power,
    ReduceMax,
    Reshape,
    Rfft,
    ScaledLog,
    StridedSlice,
    Sub,
    Sum,
    Transpose,
)
from crtgen.network.ops.statistics import MOMENTS

__all__ = ["butterworth", "vibration"]

# A root of 0 is replaced by this, so that a quotient with it is 0.
_LEAST_RMS = 1e-30


def butterworth(kind: str, order: int, cutoff: float, rate: float) -> npt.NDArray[np.float32]:
    """Return a Butterworth filter as sections ``b0, b1, b2, a1, a2``, by the bilinear transform: ``[order /
    2, 5]``.

    ``kind`` is ``low`` or ``high``; the gain is -3 dB at ``cutoff``, for samples at ``rate``, both in hertz.
    """
    edge = np.tan(np.pi * cutoff / rate)
    sections = []
    for k in range(order // 2):
        damping = 2 * np.sin(np.pi * (2 * k + 1) / (2 * order)) * edge
        whole = 1 + damping + edge**2
        gain = edge**2 if kind == "low" else 1.0
        middle = 2.0 if kind == "low" else -2.0
        numerators = [gain / whole, middle * gain / whole, gain / whole]
        sections.append([*numerators, 2 * (edge**2 - 1) / whole, (1 - damping + edge**2) / whole])
    return np.array(sections[::-1], np.float32)


def vibration(steps: GraphSteps, s: VibrationSettings) -> Handle:
    """Return the features of a window ``[frame, axes]`` of float32: ``[1, width]``."""
    rows = steps.one(Transpose((1, 0)), steps.samples)
    if s.filter != "none":
        sections = steps.constant("sections", butterworth(s.filter, s.order, s.cutoff, s.rate))
        rows = steps.one(Biquads(), rows, sections)
    moments = steps.one(Moments(), rows)
    parts = [_statistic(steps, name, rows, moments) for name in s.statistics]
    if s.bins:
        centred = steps.one(Sub(), rows, _column(steps, moments, MOMENTS.index("mean")))
        parts += _spectrum(steps, s, centred)
    whole = parts[0] if len(parts) == 1 else steps.one(Concat(1), *parts)
    return steps.one(Reshape((1, s.width)), whole)


def _statistic(steps: GraphSteps, name: str, rows: Handle, moments: Handle) -> Handle:
    # A number of each row: ``[rows, 1]``. ``peak_to_peak`` is the greatest less the least, ``crest`` the
    # greatest absolute value over the root of the mean square, 0 where all is 0, ``zero_crossings`` how often
    # a number below 0 follows one that is not, or the other way round.
    if name in MOMENTS:
        return _column(steps, moments, MOMENTS.index(name))
    if name == "zero_crossings":
        return _zero_crossings(steps, rows)
    least, most = (_column(steps, moments, MOMENTS.index(each)) for each in ("min", "max"))
    if name == "peak_to_peak":
        return steps.one(Sub(), most, least)
    greatest = steps.one(Maximum(), most, steps.one(Sub(), steps.number(0.0), least))
    rms = _column(steps, moments, MOMENTS.index("rms"))
    return steps.one(Div(), greatest, steps.one(Maximum(), rms, steps.number(_LEAST_RMS)))


def _zero_crossings(steps: GraphSteps, rows: Handle) -> Handle:
    is_below = steps.one(Less(), rows, steps.number(0.0))
    count, length = rows.shape
    before, after = (
        steps.one(StridedSlice((0, start), (count, start + length - 1), (1, 1)), is_below) for start in (0, 1)
    )
    crosses = steps.one(Cast(DType.FLOAT32), steps.one(NotEqual(), before, after))
    return steps.one(Sum((1,), keep_dims=True), crosses)


def _column(steps: GraphSteps, table: Handle, first: int, after: int | None = None) -> Handle:
    end = (table.shape[0], first + 1 if after is None else after)
    return steps.one(StridedSlice((0, first), end, (1, 1)), table)


def _spectrum(steps: GraphSteps, s: VibrationSettings, centred: Handle) -> list[Handle]:
    # Skew and kurtosis of the powers, and the logarithms of those that are kept.
    step = s.fft // 2
    starts = np.arange(0, s.frame + 1, step)
    padding = (0, max(int(starts[-1]) + s.fft - s.frame, 0))
    padded = steps.one(Pad((0, 0), padding), centred)
    places = (starts[:, None] + np.arange(s.fft)).astype(np.int32)
    frames = steps.one(Gather(1), padded, steps.constant("places", places))
    powers = steps.one(Power(), steps.one(Rfft(s.fft), frames))
    greatest = steps.one(Mul(), steps.one(ReduceMax((1,)), powers), steps.number(1 / s.fft))
    moments = steps.one(Moments(), greatest)
    logs = steps.one(ScaledLog(s.floor, LogFloor.ZERO, 1 / log(10), 0.0), greatest)
    shape = [_column(steps, moments, MOMENTS.index(name)) for name in ("skew", "kurtosis")]
    return [*shape, _column(steps, logs, *s.kept)]
