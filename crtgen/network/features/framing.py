"""Positions of frames in a signal, and the padding that they require."""

import numpy as np
import numpy.typing as npt

from crtgen.base.errors import UsageError
from crtgen.network.features.settings import MelSettings, SoundSettings

__all__ = ["framed", "lead", "offset", "rows_in_stream", "starts_of"]

Shorts = npt.NDArray[np.int16]
Places = npt.NDArray[np.int64]


def lead(settings: SoundSettings) -> int:
    padded = isinstance(settings, MelSettings) and settings.pad != "none"
    return settings.fft // 2 if padded else 0


def offset(settings: SoundSettings) -> int:
    """Return the number of samples at the start of a frame that are not transformed."""
    middle = isinstance(settings, MelSettings) and settings.window_at == "middle"
    return (settings.fft - settings.frame) // 2 if middle else 0


def starts_of(settings: SoundSettings, length: int) -> Places:
    """Return the first sample of each frame in a signal of ``length`` samples, padding included."""
    whole = max(length - settings.span, 0)
    steps = whole // settings.hop
    if isinstance(settings, MelSettings) and settings.tail == "zero":
        steps = -(-whole // settings.hop)
    count = steps + 1 if length >= settings.span or steps else 0
    return np.arange(count, dtype=np.int64) * settings.hop + offset(settings)


def rows_in_stream(settings: SoundSettings, length: int) -> int:
    """Count the rows of a stream of ``length`` samples, without frames that need padding at the end."""
    used = settings.used if isinstance(settings, MelSettings) else settings.frame
    ahead = lead(settings) - offset(settings)
    return max((length + ahead - used) // settings.hop + 1, 0)


def framed(settings: SoundSettings, signal: Shorts) -> tuple[Shorts, Places, int]:
    """Return the padded signal, the first sample of each frame, and the end of the samples before the
    padding.

    Raises ``UsageError`` if the signal is shorter than a frame.
    """
    end = len(signal) + lead(settings)
    around = lead(settings)
    if around:
        assert isinstance(settings, MelSettings)
        reflects = settings.pad == "reflect"
        if reflects and len(signal) <= around:
            raise UsageError(
                f"{len(signal)} samples cannot be reflected over {around}",
                hint="give a longer signal, or another kind of padding",
            )
        signal = np.pad(signal, around, mode="reflect" if reflects else "constant")
    starts = starts_of(settings, len(signal))
    if not len(starts):
        raise UsageError(
            f"a signal of {len(signal)} samples has no frame of {settings.span}",
            hint="give a longer signal, or a shorter frame",
        )
    missing = int(starts[-1]) - offset(settings) + settings.span - len(signal)
    return np.pad(signal, (0, max(missing, 0))), starts, end
