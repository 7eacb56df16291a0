"""Features of signals on this computer, equal to those that the generated C computes."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from io import BytesIO
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.network.features.at_once import ArraySteps
from crtgen.network.features.framing import framed, lead, rows_in_stream, stretches_of, window_length
from crtgen.network.features.picture import frame_value, picture
from crtgen.network.features.presets import settings_of
from crtgen.network.features.rows import features_of
from crtgen.network.features.scaler import Scaler, require_scalable, scaled
from crtgen.network.features.settings import (
    FeatureSettings,
    ImageSettings,
    MelSettings,
    SoundSettings,
    VibrationSettings,
)
from crtgen.network.features.steps import GraphSteps
from crtgen.network.features.vibration import vibration
from crtgen.network.ir import Array, DType, Value

__all__ = ["Features", "changed"]


def changed(settings: FeatureSettings, changes: Mapping[str, Any]) -> FeatureSettings:
    """Return a copy of the settings with these changes.

    Raises ``UsageError`` for an unknown setting, and for a value of another type.
    """
    known = [field.name for field in fields(settings)]
    for name, value in changes.items():
        if name not in known:
            raise UsageError(f"[features] has no {name}", hint=f"known: {', '.join(known)}")
        now = getattr(settings, name)
        listed = isinstance(now, tuple) and isinstance(value, list)
        alike = listed or isinstance(value, type(now)) or (isinstance(now, float) and type(value) is int)
        if now is not None and (not alike or isinstance(value, bool) is not isinstance(now, bool)):
            raise UsageError(f"[features] {name} is {value!r}", hint=f"give a value such as {now!r}")
        words = isinstance(now, str) or (isinstance(now, tuple) and isinstance(next(iter(now), 0), str))
        if value is None and now is None:
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            if not (isinstance(each, str) if words else isinstance(each, int | float) and isfinite(each)):
                hint = "give texts" if words else "give finite numbers"
                raise UsageError(f"[features] {name} is {value!r}", hint=hint)
    changes = {name: tuple(value) if isinstance(value, list) else value for name, value in changes.items()}
    made: FeatureSettings = replace(settings, **changes)
    return made


class Features:
    """Feature extraction from int16 signals, as a transformer of scikit-learn.

    ``Features("mlperf-sww")`` has the settings of a preset, ``Features("kaldi-fbank", bands=80)`` changes
    some. ``transform`` gives the same bits as the generated C, for float32 too: every product and sum is
    rounded separately, on this computer and on the device; with ``arithmetic="int32"``, it gives those of a
    core without an FPU. With ``standardize``, ``fit`` learns the mean and the deviation of each feature of a
    row; ``transform`` subtracts the mean and divides by the deviation; ``save`` writes both for the C code.
    """

    def __init__(self, preset: str = "mlperf-sww", standardize: bool = False, **changes: Any) -> None:
        self.preset = preset
        self.standardize = standardize
        self.settings = changed(settings_of(preset), changes)
        self.scaler_: Scaler | None = None
        if standardize:
            require_scalable(self.settings, None)

    def __repr__(self) -> str:
        before = asdict(settings_of(self.preset))
        now = asdict(self.settings)
        changes = "".join(f", {name}={value!r}" for name, value in now.items() if value != before[name])
        changes = f", standardize=True{changes}" if self.standardize else changes
        return f"Features({self.preset!r}{changes})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        settings = {field.name: getattr(self.settings, field.name) for field in fields(self.settings)}
        return {"preset": self.preset, "standardize": self.standardize, **settings}

    def set_params(self, **params: Any) -> "Features":
        preset = params.pop("preset", self.preset)
        standardize = params.pop("standardize", self.standardize)
        base = self.settings if preset == self.preset else settings_of(preset)
        made = changed(base, params)
        if standardize:
            require_scalable(made, None)
        self.settings, self.preset, self.standardize = made, preset, standardize
        return self

    def fit(self, signals: Any = None, labels: Any = None) -> "Features":
        """Learn mean and deviation if ``standardize`` is set; otherwise there is nothing to learn."""
        self.scaler_ = None
        if self.standardize:
            rows = self._each(signals, quantized=False)
            stack = self.settings.stack if isinstance(self.settings, MelSettings) else 1
            self.scaler_ = Scaler.of(rows.reshape(-1, self.settings.width)[:, : self.settings.width // stack])
        return self

    def save(self, path: str | Path) -> None:
        """Write the result of ``fit`` to a ``.npz``, which ``scaler = "..."`` in ``[features]`` names."""
        if self.scaler_ is None:
            raise UsageError(
                "the features are not fitted", hint="Features(..., standardize=True).fit(signals)"
            )
        buffer = BytesIO()
        np.savez(buffer, mean=self.scaler_.mean, scale=self.scaler_.scale)
        files.write(Path(path), buffer.getvalue())

    def fit_transform(self, signals: Any, labels: Any = None) -> Array:
        return self.fit(signals).transform(signals)

    def transform(self, signals: Any) -> Array:
        """Return ``[rows, width]`` for one int16 signal, or ``[signals, rows, width]`` for an array of them.

        The features are float32; those of the integer front end are int8, or int16 with ``int8=False``.
        Vibrations are float32: one window ``[frame, axes]`` gives ``[width]``, several ``[windows, frame,
        axes]`` give ``[windows, width]``, and a longer signal ``[samples, axes]`` is cut as a pipeline cuts
        it, every ``hop`` samples, into ``[rows, width]``. Frames of a camera give pictures ``[height, width,
        channels]`` of float32, or of uint8 if pixels are bytes. Raises ``UsageError`` for signals of another
        type, or shorter than a frame.
        """
        if self.standardize and self.scaler_ is None:
            raise UsageError("the features are not fitted yet", hint="fit it to signals first")
        return self._each(signals, quantized=False)

    def windows(self, signal: Any, rows: int, every: int = 1) -> Array:
        """Return the network's input in each run of a pipeline on one signal: ``[runs, rows, width]``.

        A window has ``rows`` rows of features, as many as the network's input, and advances by ``every`` rows
        per run, but never beyond its end. The first window is the first full one. Raises ``UsageError`` for a
        signal that is too short.
        """
        settings = self.settings
        if isinstance(settings, ImageSettings):
            raise UsageError("pictures have no windows", hint="transform gives the picture of each frame")
        if settings.per == "window" and not isinstance(settings, VibrationSettings):
            return self._whole_windows(np.asarray(signal), settings, rows, every)
        found = self.transform(signal)
        if isinstance(settings, VibrationSettings):
            found = found.reshape(-1, settings.width)
        else:
            found = found[: rows_in_stream(settings, len(signal))]
        first = -(-rows // every) * every - rows
        starts = range(first, len(found) - rows + 1, every)
        if not starts:
            raise UsageError(
                f"{len(found)} rows of features are fewer than the {rows + first} of a window",
                hint="give a longer signal",
            )
        return np.stack([found[start : start + rows] for start in starts])

    def _whole_windows(self, signal: Array, settings: SoundSettings, rows: int, every: int) -> Array:
        # Windows whose features depend on all of their samples.
        length = window_length(settings, rows)
        stretches_of(settings, length)
        starts = range(0, len(signal) - length + 1, min(every * settings.hop, length))
        if not starts:
            raise UsageError(
                f"{len(signal)} samples are fewer than the {length} of a window", hint="give a longer signal"
            )
        return np.stack([self.transform(signal[start : start + length]) for start in starts])

    def quantized(self, signals: Any) -> npt.NDArray[np.int8]:
        """Compute the features and round them to int8. Raises ``UsageError`` if the settings have no
        quantisation.
        """
        if isinstance(self.settings, MelSettings) and self.settings.rounding == "none":
            raise UsageError(
                "these features have no quantisation", hint="quantise them as the network's input is"
            )
        if isinstance(self.settings, ImageSettings):
            if self.settings.pixels != "bytes":
                raise UsageError(
                    "these pixels are floats, which have no quantisation",
                    hint='set pixels="bytes", or quantise them',
                )
            return (self.transform(signals).astype(np.int16) - 128).astype(np.int8)
        return self._each(signals, quantized=True).astype(np.int8)

    def _each(self, signals: Any, *, quantized: bool) -> Array:
        array = np.asarray(signals)
        if isinstance(self.settings, VibrationSettings):
            return self._windows(array, self.settings)
        if isinstance(self.settings, ImageSettings):
            return _pictures(array, self.settings)
        settings = self.settings
        if array.dtype != np.int16:
            hint = "sound is int16: multiply numbers from -1 to 1 with 32768, round, and limit them"
            raise UsageError(f"a signal cannot be {array.dtype}", hint=hint)
        if array.ndim == 1:
            return self._signal(array, settings, quantized)
        if array.ndim != 2:
            raise UsageError(f"signals of shape {array.shape}", hint="[samples], or [signals, samples]")
        return np.stack([self._signal(row, settings, quantized) for row in array])

    def _windows(self, windows: Array, settings: VibrationSettings) -> Array:
        shape = (settings.frame, settings.axes)
        is_signal = windows.ndim == 2 and windows.shape[1] == settings.axes and len(windows) > settings.frame
        if is_signal:
            starts = range(0, len(windows) - settings.frame + 1, settings.hop)
            windows = np.stack([windows[start : start + settings.frame] for start in starts])
        if windows.dtype != np.float32 or windows.shape[-2:] != shape or windows.ndim > 3:
            what = f"windows of {windows.dtype} and shape {windows.shape}"
            raise UsageError(
                what, hint=f"float32, [{shape[0]}, {shape[1]}] or [windows, {shape[0]}, {shape[1]}]"
            )
        steps = GraphSteps(Value("samples", shape, DType.FLOAT32), [0])
        graph = steps.graph("window", scaled(steps, vibration(steps, settings), self.scaler_))
        rows = [y[0][0] for y in graph.run([[window] for window in windows.reshape(-1, *shape)])]
        return np.array(rows).reshape(*windows.shape[:-2], settings.width)

    def _signal(self, signal: npt.NDArray[np.int16], settings: SoundSettings, quantized: bool) -> Array:
        samples, starts, end = framed(settings, signal)
        steps = ArraySteps(samples, starts, end, lead(settings))
        rows = steps.array(scaled(steps, features_of(steps, settings, quantized=quantized), self.scaler_))
        return self._stacked(rows)

    def _stacked(self, rows: Array) -> Array:
        count = self.settings.stack if isinstance(self.settings, MelSettings) else 1
        if count == 1:
            return rows
        if len(rows) < count:
            raise UsageError(
                f"{len(rows)} frames are fewer than a stack of {count}", hint="give a longer signal"
            )
        return np.hstack([rows[i : len(rows) - count + 1 + i] for i in range(count)])


def _pictures(frames: Array, settings: ImageSettings) -> Array:
    # The picture of a frame, or of each of several.
    wanted = frame_value(settings)
    several = frames.shape[1:] == wanted.shape
    if frames.dtype != wanted.dtype.numpy or not (several or frames.shape == wanted.shape):
        what = f"frames of {frames.dtype} and shape {frames.shape}"
        raise UsageError(what, hint=f"{settings.format} is {wanted.dtype.value}, {list(wanted.shape)}")
    steps = GraphSteps(wanted, [0])
    graph = steps.graph("picture", picture(steps, settings))
    made = [y[0] for y in graph.run([[frame] for frame in frames.reshape(-1, *wanted.shape)])]
    return np.stack(made) if several else made[0]
