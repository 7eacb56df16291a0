"""Distance of features from rounding borders."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from crtgen.network.features import MelSettings
from crtgen.network.features.at_once import ArraySteps
from crtgen.network.features.exact import ExactSteps
from crtgen.network.features.framing import framed, lead
from crtgen.network.features.rows import features_of
from crtgen.network.features.scaler import scaled
from crtgen.network.ir import Array, DType, Signature, Value
from crtgen.network.ops import Quantize
from crtgen.network.pipeline.join import JoinedPipeline
from crtgen.network.pipeline.rounding import IntegerRounding

__all__ = ["NEAR", "Borders", "count_borders", "signals_of"]

Doubles = npt.NDArray[np.float64]

NEAR = 2e-3
"""Distance, in steps, from a rounding border within which features may be rounded to either side."""


@dataclass(frozen=True, slots=True)
class Borders:
    """Counts of integer features: those ``near`` a rounding border in float64, and those that differ.

    Features that differ ``elsewhere`` are not near a border, which would be a bug.
    """

    features: int
    near: int
    differ: int
    elsewhere: int

    @property
    def text(self) -> str:
        return (
            f"{self.features} integer features: {self.near} within {NEAR:g} steps of a border in float64, "
            f"{self.differ} differ from float64, {self.elsewhere} of them elsewhere"
        )


def signals_of(pipeline: JoinedPipeline, runs: Sequence[Array]) -> list[Array]:
    """Join consecutive runs into the signal that they cover; runs that are separate windows stay apart."""
    if not isinstance(pipeline.settings, MelSettings) or pipeline.settings.per == "window" or not runs:
        return list(runs)
    return [np.concatenate([runs[0], *(run[-pipeline.hop :] for run in runs[1:])])]


def count_borders(pipeline: JoinedPipeline, signals: Iterable[Array]) -> Borders | None:
    """Compare the features of signals, each of one run or of several consecutive runs.

    Returns None for a pipeline whose features are not rounded from floats, or are rounded earlier.
    """
    settings, rounded = pipeline.settings, pipeline.rounded
    if rounded is None or not isinstance(settings, MelSettings) or settings.steps:
        return None
    counts = np.zeros(4, np.int64)
    for signal in signals:
        counts += _counts(settings, rounded, signal)
    return Borders(*map(int, counts))


def _counts(settings: MelSettings, rounded: IntegerRounding, signal: Array) -> tuple[int, int, int, int]:
    samples = signal.astype(np.int16)
    if settings.per == "window":
        given = (*framed(settings, samples), lead(settings))
    else:
        rows = (len(signal) - rounded.history - settings.used) // settings.hop + 1
        starts = rounded.history + np.arange(rows, dtype=np.int64) * settings.hop
        given = samples, starts, len(samples), 0
    made, exact = ArraySteps(*given), ExactSteps(*given)
    whole = features_of(exact, replace(settings, arithmetic="float32"))
    real = exact.doubles(scaled(exact, whole, rounded.scaler))
    features = features_of(made, settings, quantized=rounded.truncates)
    codes = made.array(scaled(made, features, rounded.scaler))
    if not rounded.truncates:
        codes = _quantized(codes, rounded)
    near = _distance(real, rounded) < NEAR
    if settings.clip is not None:
        near &= ~np.isin(real, settings.clip)
    differ = codes.astype(np.int64) != _rounded(real, rounded)
    return real.size, int(near.sum()), int(differ.sum()), int((differ & ~near).sum())


def _quantized(rows: Array, rounded: IntegerRounding) -> Array:
    x = Value("x", rows.shape, DType.FLOAT32)
    sig = Signature((x,), (Value("y", rows.shape, rounded.dtype, rounded.quant),))
    return Quantize(rounded.dtype).reference(sig, [rows])[0]


def _distance(real: Doubles, rounded: IntegerRounding) -> Doubles:
    # Steps from a border: an integer but 0 where numbers are cut, else the middle between two.
    steps = real / rounded.quant.scale
    if rounded.truncates:
        steps = steps + rounded.quant.zero_point
        near = np.rint(steps)
        return np.where(near == 0, 1.0, np.abs(steps - near))
    size = np.abs(steps)
    return np.abs(size - np.floor(size) - 0.5)


def _rounded(real: Doubles, rounded: IntegerRounding) -> npt.NDArray[np.int64]:
    # Wraps where features are truncated, otherwise saturates.
    steps, zero = real / rounded.quant.scale, rounded.quant.zero_point
    least = -128 if rounded.dtype is DType.INT8 else 0
    if rounded.truncates:
        cut: npt.NDArray[np.int64] = (np.trunc(steps + zero).astype(np.int64) - least) % 256 + least
        return cut
    nearest = np.copysign(np.floor(np.abs(steps) + 0.5), steps) + zero
    limited: npt.NDArray[np.int64] = np.clip(nearest, least, least + 255).astype(np.int64)
    return limited
