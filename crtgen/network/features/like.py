"""Finds the settings with which another library's function computes features."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen.base.errors import UsageError
from crtgen.network.features.extractor import Features
from crtgen.network.features.framing import lead, starts_of
from crtgen.network.features.presets import PRESETS
from crtgen.network.features.settings import MelSettings, MicroSettings
from crtgen.network.ir import Array
from crtgen.network.ops.fft import is_fast

__all__ = ["Likeness", "like"]

Rows = npt.NDArray[np.float64]

# Functions count as equal if they differ by less than this fraction of the values' range.
_EQUAL = 1e-4

# Frame and transform, in samples, and distances between frames.
_FRAMES = (
    (256, 256),
    (320, 512),
    (400, 400),
    (400, 512),
    (480, 512),
    (512, 512),
    (640, 1024),
    (1024, 1024),
    (2048, 2048),
)
_OWN_FFT = 2048  # librosa's
_HOPS = (64, 80, 100, 128, 160, 200, 256, 320, 400, 441, 480, 512, 640, 1024)

# Other hops and frames are tried if they are multiples of these: 5 and 8 divide what people choose.
_ROUND = (5, 8)
_OVERLAPS = (1, 2, 4)

# Bands from which cosine transforms are tried, beside the preset's.
_BANDS = (40, 64, 80)

_CHANGES: Mapping[str, tuple[Any, ...]] = {
    "spectrum": ("power", "magnitude"),
    "log": ("ln", "db", "none", "pcen"),
    "scale": ("htk", "slaney"),
    "slope": ("mel", "hz", "bins", "kaldi"),
    "bands": (20, 23, 26, 32, 40, 64, 80, 128),
    "top": (0.0, 80.0),
    "relative": (False, True),
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
    "floor": (1e-30, 1e-12, 1e-10, 1e-9, 1e-8, 1e-6, 1.1920928955078125e-07, 2.220446049250313e-16),
    "floor_kind": ("max", "add", "zero"),
    "dct": ("ortho", "even"),
    "lifter": (0.0, 22.0),
    "energy": (False, True),
    "divide": (1.0, 256.0, 512.0, 1024.0, 2048.0),
    "pcen_time": (0.06, 0.1, 0.2, 0.4),
    "pcen_gain": (0.8, 0.9, 0.98),
    "pcen_bias": (1.0, 2.0, 10.0),
    "pcen_power": (0.25, 0.5),
    "delta_ends": ("nearest", "interp"),
    "delta_kind": ("slopes", "orders"),
    "deltas": ((1,), (2,), (4,), (1, 1), (2, 2), (4, 4)),
    "row_norm": ("none", "max"),
    "tuning": tuple(n / 100 for n in range(-50, 50)),
}
# Pitch classes in a row of chroma.
_CLASSES = (12, 24, 36)

# Rows with deltas, and with those and their own.
_WITH_SLOPES = (2, 3)


@dataclass(frozen=True, slots=True)
class Likeness:
    """The closest match: ``settings``, and the largest difference relative to the range of the values.

    ``steps`` are the changes to a preset that led there, each with the remaining difference.
    """

    features: Features
    difference: float
    steps: tuple[tuple[str, Any, float], ...]

    @property
    def is_equal(self) -> bool:
        return self.difference <= _EQUAL

    def __str__(self) -> str:
        verdict = "equal" if self.is_equal else "not equal"
        lines = [f"{verdict}: {self.features!r}, largest difference {self.difference:.2g} of the range"]
        lines += [f"  {name} = {value!r}: {left:.2g} left" for name, value, left in self.steps]
        return "\n".join(lines)


def like(
    function: Callable[[npt.NDArray[np.int16]], Any], signal: npt.NDArray[np.int16], rate: int = 16000
) -> Likeness:
    """Return the settings with which ``function`` computes features of int16 samples, in rows or columns.

    All presets are tried, also with the hop and frame length that would give the same number of rows.
    Starting from the closest preset of each kind of logarithm, the other values of each setting are tried in
    turn, as long as the difference decreases. The signal should contain speech, some noise and some silence.
    Raises ``UsageError`` if no preset gives that many features per row.
    """
    wanted = np.asarray(function(signal), np.float64)
    wanted = wanted[0] if wanted.ndim == 3 and wanted.shape[0] == 1 else wanted
    if wanted.ndim != 2:
        raise UsageError(
            f"the function gives an array of shape {wanted.shape}",
            hint="return [rows, features] or its transpose, not a mean of rows",
        )
    starts = list(_starts(wanted, len(signal), rate))
    found = [(_difference(features, signal, wanted), features) for features in starts]
    if not found or min(d for d, _ in found) == np.inf:
        raise UsageError(
            f"no preset gives features of shape {wanted.shape} of {len(signal)} samples",
            hint=_unknown(wanted.shape, len(signal)),
        )
    kinds: dict[str, tuple[float, Features]] = {}
    for difference, features in sorted(found, key=lambda pair: pair[0]):
        kinds.setdefault(str(getattr(features.settings, "log", "")), (difference, features))
    best: Likeness | None = None
    for start in kinds.values():
        descended = _descended(*start, signal, wanted)
        if best is None or descended.difference < best.difference:
            best = descended
        if best.is_equal:
            break
    assert best is not None
    return best


def _descended(
    difference: float, features: Features, signal: npt.NDArray[np.int16], wanted: Rows
) -> Likeness:
    # Changes one setting after the other, as long as that helps.
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
    # Changes that only helped before others were made are taken back.
    for name in [name for name, _, _ in steps]:
        own = _own(features)
        other = Features(features.preset)
        try:
            other.set_params(**{key: value for key, value in own.items() if key != name})
        except UsageError:
            continue
        left = _difference(other, signal, wanted)
        if name in own and left <= difference:
            difference, features = left, other
            steps = [step for step in steps if step[0] != name]
    return Likeness(features, difference, tuple(steps))


def _unknown(shape: Sequence[int], samples: int) -> str:
    # What a shape tells, for a table of features that has to be written by hand.
    either = " or ".join(
        f"{rows} rows are a hop of about {samples // rows}" for rows in sorted(set(shape)) if rows <= samples
    )
    return f"write a [features] table by hand (docs/features.md): {either}; fft and frame are not known"


def _starts(wanted: Array, samples: int, rate: int) -> Iterator[Features]:
    # Presets with as many features in a row, and with frames of which there are as many as rows.
    for preset, changes in _candidates(wanted, samples):
        try:
            yield Features(preset, **changes if rate == PRESETS[preset].rate else {**changes, "rate": rate})
        except UsageError:
            continue


def _candidates(wanted: Array, samples: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, settings in PRESETS.items():
        if isinstance(settings, MicroSettings) and settings.channels in wanted.shape:
            yield from ((name, {"int8": False}), (name, {}))
        if not isinstance(settings, MelSettings):
            continue
        for width, rows in {wanted.shape, wanted.shape[::-1]}:
            yield from _of_width(name, settings, width, list(_framed(samples, rows)))


def _framed(samples: int, rows: int) -> Iterator[tuple[int, int, int]]:
    # Frames, hops and transforms that give this number of rows, with padding or without.
    found = [
        (frame, hop, fft)
        for (frame, fft), hop in product(_FRAMES, _HOPS)
        if hop <= frame and _gives(samples, rows, frame, hop)
    ]
    yield from found
    hops = {hop for _, hop, _ in found}
    least, most = samples // (rows + 1), min(samples // max(rows - 2, 1), 2048)
    for hop, overlap in product(range(max(least, 16), most + 1), _OVERLAPS):
        frame = hop * overlap
        is_round = hop not in hops and any(hop % step == 0 for step in _ROUND)
        if is_round and is_fast(frame) and _gives(samples, rows, frame, hop):
            yield frame, hop, frame


def _gives(samples: int, rows: int, frame: int, hop: int) -> bool:
    counts = {(last // hop, -(-last // hop)) for last in (samples, samples - frame) if last >= 0}
    return any(rows - 1 in pair for pair in counts)


def _of_width(
    name: str, settings: MelSettings, width: int, frames: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    if settings.slope == "chroma" and width not in _CLASSES:
        return
    of_dct = settings.coefficients > 0
    own, size = settings.coefficients or settings.bands, dict[str, Any]()
    for parts in _WITH_SLOPES:
        slopes: dict[str, Any] = {"deltas": (2,) * (parts - 1), "per": "window"}
        if width == own * parts:
            yield name, {"stack": 1, **slopes}
        elif of_dct and width % parts == 0 and width // parts <= settings.bands:
            for frame, hop, fft in frames:
                size = {"coefficients": width // parts, "frame": frame, "hop": hop, "fft": fft}
                yield name, {"stack": 1, **size, **slopes}
    if name == "librosa-mel":
        yield from _of_a_clip(name, width, frames)
    if width > (settings.bands if of_dct else settings.fft // 2):
        return
    size = {"coefficients" if of_dct else "bands": width}
    yield name, {**size, "stack": 1}
    pads = (settings.pad, "none") if name == "librosa-mfcc" else (settings.pad,)
    for (frame, hop, fft), bands, pad in product(frames, (settings.bands, *_BANDS) if of_dct else (0,), pads):
        if width < fft // 2 and bands >= width * of_dct:
            own_size = {**size, "bands": bands} if of_dct else size
            yield name, {**own_size, "stack": 1, "frame": frame, "hop": hop, "fft": fft, "pad": pad}


def _of_a_clip(
    name: str, width: int, frames: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    # librosa's spectra, in decibels or not, with bands or without, less the greatest value or not.
    for frame, hop, fft in frames:
        size: dict[str, Any] = {"bands": width, "frame": frame, "hop": hop, "fft": fft}
        if width == fft // 2 + 1:
            size |= {"slope": "none", "norm": "none"}
        elif width > fft // 2:
            continue
        for pad, spectrum in product(("none", "zero"), ("magnitude", "power")):
            yield name, {**size, "pad": pad, "spectrum": spectrum}
        for top, relative in product((0.0, 80.0), (False, True)):
            clip: dict[str, Any] = {"top": top, "relative": relative, "log": "db", "floor": 1e-10}
            yield name, {**size, **clip, "per": "window"}
        for floor in (1e-10, 1e-6):
            yield name, {**size, "log": "ln", "floor": floor, "floor_kind": "add"}
    if width <= _OWN_FFT // 2:
        for unit in (1.0, 32768.0):
            yield name, {"bands": width, "log": "pcen", "floor": 1e-6, "unit": unit}


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
    if name == "bands":
        return bool(0 < settings["coefficients"] <= value)
    if name == "slope" and settings[name] in ("none", "chroma"):
        return False
    if name in ("row_norm", "tuning") and settings["slope"] != "chroma":
        return False
    if name in ("delta_ends", "delta_kind") and not settings["deltas"]:
        return False
    if name == "deltas":
        return len(settings[name]) == len(value)
    return settings.get("log") == "pcen" or not name.startswith("pcen_")


def _own(features: Features) -> dict[str, Any]:
    before = asdict(PRESETS[features.preset])
    return {name: value for name, value in asdict(features.settings).items() if value != before[name]}


def _difference(features: Features, signal: npt.NDArray[np.int16], wanted: Rows) -> float:
    # Infinite where the shapes differ; columns count as rows.
    settings = features.settings
    if isinstance(settings, MelSettings):
        rows = len(starts_of(settings, len(signal) + 2 * lead(settings))) - settings.stack + 1
        if sorted(wanted.shape) != sorted((rows, settings.width)):
            return float(np.inf)
    try:
        made = features.transform(signal).astype(np.float64)
    except UsageError:
        return float(np.inf)
    span = float(np.ptp(wanted)) or 1.0
    turned = (w for w in (wanted, wanted.T) if w.shape == made.shape)
    return min((float(np.abs(made - w).max()) / span for w in turned), default=float(np.inf))
