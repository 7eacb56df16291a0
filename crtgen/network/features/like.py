"""Finds the settings with which another library's function computes features."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen.base.errors import UsageError
from crtgen.network.features.extractor import Features
from crtgen.network.features.presets import PRESETS
from crtgen.network.features.settings import MelSettings, MicroSettings
from crtgen.network.ir import Array

__all__ = ["Likeness", "like"]

Rows = npt.NDArray[np.float64]

# Functions count as equal if they differ by less than this fraction of the values' range.
_EQUAL = 1e-4

# Frame, hop and transform, in samples.
_FRAMES = (
    (400, 160, 512),
    (480, 160, 512),
    (480, 320, 512),
    (512, 256, 512),
    (640, 320, 1024),
    (1024, 512, 1024),
)

_CHANGES: Mapping[str, tuple[Any, ...]] = {
    "spectrum": ("power", "magnitude"),
    "log": ("ln", "db", "none", "pcen"),
    "scale": ("htk", "slaney"),
    "slope": ("mel", "hz", "bins", "kaldi"),
    "norm": ("none", "slaney"),
    "window": ("hann", "hamming", "povey", "none"),
    "periodic": (True, False),
    "window_at": ("start", "middle"),
    "pad": ("none", "zero", "reflect"),
    "tail": ("drop", "zero"),
    "preemphasis": (0.0, 0.95, 0.96875, 0.97, 0.98),
    "preemphasis_over": ("stream", "frame"),
    "remove_mean": (False, True),
    "unit": (1.0, 32768.0),
    "low": (0.0, 20.0, 50.0, 80.0, 125.0),
    "high": (4000.0, 7500.0, 7600.0, 8000.0),
    "floor": (1e-30, 1e-12, 1e-10, 1e-6, 1.1920928955078125e-07, 2.220446049250313e-16),
    "floor_kind": ("max", "add", "zero"),
    "dct": ("ortho", "even"),
    "lifter": (0.0, 22.0),
    "energy": (False, True),
    "divide": (1.0, 256.0, 512.0, 1024.0, 2048.0),
    "pcen_time": (0.06, 0.1, 0.2, 0.4),
    "pcen_gain": (0.8, 0.9, 0.98),
    "pcen_bias": (1.0, 2.0, 10.0),
    "pcen_power": (0.25, 0.5),
    "deltas": ((1,), (2,), (4,), (1, 1), (2, 2), (4, 4)),
}

# Rows with deltas, and with those and their own.
_WITH_SLOPES = (2, 3)


@dataclass(frozen=True, slots=True)
class Likeness:
    """The most similar features: ``settings`` and the largest difference over the range of the values.

    ``steps`` are the changes of a preset that led there, each with the difference that was left after it.
    """

    features: Features
    difference: float
    steps: tuple[tuple[str, Any, float], ...]

    @property
    def is_equal(self) -> bool:
        """True if only rounding errors are left."""
        return self.difference <= _EQUAL

    def __str__(self) -> str:
        verdict = "equal" if self.is_equal else "not equal"
        lines = [f"{verdict}: {self.features!r}, largest difference {self.difference:.2g} of the range"]
        lines += [f"  {name} = {value!r}: {left:.2g} left" for name, value, left in self.steps]
        return "\n".join(lines)


def like(function: Callable[[npt.NDArray[np.int16]], Any], signal: npt.NDArray[np.int16]) -> Likeness:
    """Return the settings with which ``function`` computes features of int16 at 16 kHz, in rows or columns.

    Presets are tried first, then other values of each setting in turn, as long as the difference shrinks. The
    signal should show everything: speech, some noise, some silence. Raises ``UsageError`` if no preset has as
    many features in a row.
    """
    wanted = np.asarray(function(signal), np.float64)
    if wanted.ndim != 2:
        raise UsageError(f"the function gives an array of shape {wanted.shape}", hint="[rows, features]")
    starts = list(_starts(wanted))
    found = [(_difference(features, signal, wanted), features) for features in starts]
    if not found or min(d for d, _ in found) == np.inf:
        raise UsageError(
            f"no preset gives features of shape {wanted.shape} of {len(signal)} samples",
            hint="write a [features] table by hand: docs/features.md",
        )
    difference, features = min(found, key=lambda pair: pair[0])
    steps: list[tuple[str, Any, float]] = []
    while difference > _EQUAL:
        tried = [
            (_difference(other, signal, wanted), name, value, other) for name, value, other in _near(features)
        ]
        best = min(tried, key=lambda row: row[0])
        if best[0] >= difference:
            break
        difference, features = best[0], best[3]
        steps.append((best[1], best[2], difference))
    return Likeness(features, difference, tuple(steps))


def _starts(wanted: Array) -> Iterator[Features]:
    # Presets with as many features in a row, and with other frames.
    for name, settings in PRESETS.items():
        if isinstance(settings, MicroSettings) and settings.channels in wanted.shape:
            yield from (Features(name, int8=False), Features(name))
        if not isinstance(settings, MelSettings):
            continue
        for width in set(wanted.shape):
            yield from _of_width(name, settings, width)


def _of_width(name: str, settings: MelSettings, width: int) -> Iterator[Features]:
    of_dct = settings.coefficients > 0
    own = settings.coefficients or settings.bands
    for parts in _WITH_SLOPES:
        if width == own * parts:
            yield Features(name, stack=1, deltas=(2,) * (parts - 1), per="window")
    if width > (settings.bands if of_dct else settings.fft // 2):
        return
    size: dict[str, Any] = {"coefficients": width} if of_dct else {"bands": width}
    yield Features(name, **size, stack=1)
    if name == "librosa-mel":
        for unit in (1.0, 32768.0):
            yield Features(name, **size, log="pcen", floor=1e-6, unit=unit)
    for frame, hop, fft in _FRAMES:
        if width < fft // 2:
            yield Features(name, **size, stack=1, frame=frame, hop=hop, fft=fft)


def _near(features: Features) -> Iterator[tuple[str, Any, Features]]:
    # Variants that differ in one setting.
    settings = asdict(features.settings)
    for name, values in _CHANGES.items():
        for value in values:
            if _may_be(settings, name, value):
                other = Features(features.preset)
                change = {**_own(features), name: value}
                per = "stream" if {**settings, name: value}.get("log") == "pcen" else "window"
                try:
                    other.set_params(**{**change, "per": per})
                except UsageError:
                    continue
                yield name, value, other


def _may_be(settings: Mapping[str, Any], name: str, value: Any) -> bool:
    # True if the value differs, matters, and does not change the width of a row.
    if name not in settings or settings[name] == value:
        return False
    if name == "deltas":
        return len(settings[name]) == len(value)
    return settings["log"] == "pcen" or not name.startswith("pcen_")


def _own(features: Features) -> dict[str, Any]:
    before = asdict(PRESETS[features.preset])
    return {name: value for name, value in asdict(features.settings).items() if value != before[name]}


def _difference(features: Features, signal: npt.NDArray[np.int16], wanted: Rows) -> float:
    # Infinite where the shapes differ; columns count as rows.
    try:
        made = features.transform(signal).astype(np.float64)
    except UsageError:
        return float(np.inf)
    span = float(np.ptp(wanted)) or 1.0
    turned = (w for w in (wanted, wanted.T) if w.shape == made.shape)
    return min((float(np.abs(made - w).max()) / span for w in turned), default=float(np.inf))
