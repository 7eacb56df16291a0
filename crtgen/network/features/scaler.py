"""Features minus their mean, divided by their deviation, as learned by a scaler in training."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crtgen.base.errors import UsageError
from crtgen.base.formats.arrays import read_arrays
from crtgen.network.features.settings import FeatureSettings, ImageSettings, MelSettings, MicroSettings
from crtgen.network.features.steps import Handle, Steps
from crtgen.network.ir import Array
from crtgen.network.ops import Mul, Sub

__all__ = ["Scaler", "check_numbers", "read_scaler", "require_scalable", "scaled"]

_HINT = "numpy.savez with mean and scale, a number for each feature of a row, as Features.save writes them"


@dataclass(frozen=True, slots=True, eq=False)
class Scaler:
    """``(x - mean) / scale``, with a float32 mean and scale for each feature of a row."""

    mean: npt.NDArray[np.float32]
    scale: npt.NDArray[np.float32]

    @classmethod
    def of(cls, rows: Array) -> "Scaler":
        """Compute mean and deviation of rows ``[rows, width]``; a deviation of 0 becomes 1."""
        real = rows.astype(np.float64)
        deviation = real.std(axis=0)
        scale = np.where(deviation > 0, deviation, 1.0)
        return cls(real.mean(axis=0).astype(np.float32), scale.astype(np.float32))

    @property
    def factors(self) -> npt.NDArray[np.float32]:
        return (1 / self.scale.astype(np.float64)).astype(np.float32)


def check_numbers(name: str, array: Array, shape: tuple[int, ...], path: Path, hint: str) -> None:
    """Raise ``UsageError`` unless an array from a file has only finite values and this shape."""
    if array.shape != shape or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        what = f"{name} are {array.dtype} of shape {array.shape}, not finite numbers of shape {shape}"
        raise UsageError(what, where=str(path), hint=hint)


def read_scaler(path: Path) -> Scaler:
    """Read a scaler from a ``.npz``. Raises ``UsageError`` if arrays are missing or do not fit."""
    held = read_arrays(path, "the scaler", _HINT, needed=("mean", "scale"))
    mean, scale = held["mean"], held["scale"]
    width = mean.size
    check_numbers("mean", mean, (width,), path, _HINT)
    check_numbers("scale", scale, (width,), path, _HINT)
    if not (scale > 0).all():
        raise UsageError(
            "a scale is not above 0",
            where=str(path),
            hint="fit the scaler again on data that vary in each column",
        )
    return Scaler(mean.astype(np.float32), scale.astype(np.float32))


def require_scalable(settings: FeatureSettings, scaler: Scaler | None) -> None:
    """Raise ``UsageError`` for features that are not floats, or whose number differs from the scaler's."""
    if isinstance(settings, ImageSettings | MicroSettings):
        raise UsageError("[features] scaler: a scaler needs float32 features", hint="leave it out")
    if isinstance(settings, MelSettings) and settings.rounding != "none":
        raise UsageError(
            "[features] scaler: these features have a quantisation of their own", hint='set rounding = "none"'
        )
    stack = settings.stack if isinstance(settings, MelSettings) else 1
    if scaler is not None and scaler.mean.size != settings.width // stack:
        what = f"it has {scaler.mean.size} numbers, a row {settings.width // stack}"
        raise UsageError(what, where="[features] scaler", hint="fit the scaler on features of this width")


def scaled(steps: Steps, rows: Handle, scaler: Scaler | None) -> Handle:
    if scaler is None:
        return rows
    moved = steps.one(Sub(), rows, steps.constant("mean", scaler.mean))
    return steps.one(Mul(), moved, steps.constant("factors", scaler.factors))
