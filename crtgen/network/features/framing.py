"""Positions of frames in a signal, and the padding that they require.

librosa and torchaudio centre frames: row i describes the samples around ``i * hop``, so the first and the
last frames reach beyond the ends of a clip, where they find zeros or the mirrored clip. On this computer the
whole signal is padded (``framed``). On a device only what those few frames read is padded
(``stretches_of``): of a window of 16,000 samples with a hop of 160 and an fft of 400, frames 0 and 1 read one
array of 560 samples, of which 360 are the window's; 97 frames read the window itself; the last two read
another short array. Both ways give each frame the same samples.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtgen.base.errors import UsageError
from crtgen.network.features.settings import MelSettings, SoundSettings

__all__ = [
    "Stretch",
    "framed",
    "lead",
    "offset",
    "rows_in_stream",
    "starts_of",
    "stretches_of",
    "window_length",
]

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


@dataclass(frozen=True, slots=True)
class Stretch:
    """Samples ``first`` up to ``end`` of a window with padding around them: ``before`` and ``after`` samples,
    mirrored or zeros, and ``zeros`` further zeros at the end.
    """

    first: int
    end: int
    before: int
    after: int
    zeros: int
    mirrored: bool


def window_length(settings: SoundSettings, rows: int) -> int:
    """Return the number of samples of a window with this many rows.

    Raises ``UsageError`` if the settings give another number of rows, or if padding leaves it open.
    """
    length = settings.length if isinstance(settings, MelSettings) else 0
    if not length and lead(settings):
        least = (rows - 1) * settings.hop + settings.span - 2 * lead(settings)
        most = least + settings.hop - 1
        if isinstance(settings, MelSettings) and settings.tail == "zero":
            least, most = least - settings.hop + 1, least
        raise UsageError(
            "[features] pad: frames at the ends of a window depend on its number of samples",
            hint=f"set length: for {rows} rows, from {max(least, 1)} to {most} samples",
        )
    if not length:
        return settings.span + (rows - 1) * settings.hop
    count = len(starts_of(settings, length + 2 * lead(settings)))
    if count != rows:
        raise UsageError(
            f"[features] length: {length} samples make {count} rows, but the network takes {rows}",
            hint="set the length of the clips that it was trained on",
        )
    return length


def stretches_of(settings: SoundSettings, length: int) -> list[tuple[Stretch | None, int]]:
    """Return for each frame of a window the padded stretch that it reads, and the frame's first sample there;
    no stretch for a frame that is inside the window.

    Raises ``UsageError`` for a window that is shorter than a frame, and if pre-emphasis would look beyond its
    ends.
    """
    _, places, end = framed(settings, np.zeros(length, np.int16))
    ahead = lead(settings)
    used = settings.used if isinstance(settings, MelSettings) else settings.frame
    starts = [int(place) for place in places]
    left = [start for start in starts if start < ahead]
    right = [start for start in starts if start + used > end]
    if not left and not right:
        return [(None, start - ahead) for start in starts]
    assert isinstance(settings, MelSettings)
    if settings.preemphasis and settings.preemphasis_over != "frame":
        raise UsageError(
            "[features] preemphasis: padding at the ends of a window is not known to the sample before it",
            hint='set preemphasis_over = "frame", or pad = "none" and tail = "drop"',
        )
    if set(left) & set(right):
        left = right = sorted({*left, *right})
    found = dict[int, tuple[Stretch | None, int]]()
    for group in (left, right):
        if group:
            stretch = _stretch(settings, length, group[0], group[-1] + used)
            origin = stretch.first + ahead - stretch.before
            found |= {start: (stretch, start - origin) for start in group}
    return [found.get(start, (None, start - ahead)) for start in starts]


def _stretch(settings: MelSettings, length: int, first: int, last: int) -> Stretch:
    # From ``first`` up to ``last`` of the padded signal. Mirroring n samples takes n + 1 of the window.
    ahead = lead(settings)
    mirrored = settings.pad == "reflect"
    before, after = max(ahead - first, 0), max(last - ahead - length, 0)
    zeros = max(after - ahead, 0)
    begin, end = max(first - ahead, 0), min(last - ahead, length)
    if mirrored:
        end = max(end, before + 1)
        begin = min(begin, length - (after - zeros) - 1)
    return Stretch(begin, end, before, after - zeros, zeros, mirrored)
