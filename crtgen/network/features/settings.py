"""Settings of features, one class per kind, and their checks."""

from dataclasses import dataclass, fields, replace

from crtgen.base.errors import UsageError
from crtgen.network.features.tables import SCALES, SLOPES, WINDOWS
from crtgen.network.ops.block_power import STEEPEST, has_block
from crtgen.network.ops.fft import is_fast
from crtgen.network.ops.statistics import MOMENTS

__all__ = [
    "FORMATS",
    "STATISTICS",
    "FeatureSettings",
    "ImageSettings",
    "MelSettings",
    "MicroSettings",
    "SoundSettings",
    "VibrationSettings",
]

FORMATS = (
    "rgb888",
    "rgb565",
    "yuyv",
    "grey",
    "bayer_rggb",
    "bayer_grbg",
    "bayer_gbrg",
    "bayer_bggr",
)
"""Pixel formats of cameras."""

STATISTICS = (*MOMENTS, "peak_to_peak", "crest", "zero_crossings")
"""Statistics that may describe a window along an axis."""

_RESIZES = (
    "pillow-bilinear",
    "pillow-box",
    "pillow-nearest",
    "opencv-linear",
    "opencv-area",
    "tensorflow-bilinear",
)

_CHOICES = {
    "arithmetic": ("auto", "float32", "int32"),
    "window": WINDOWS,
    "spectrum": ("power", "magnitude"),
    "scale": SCALES,
    "slope": SLOPES,
    "norm": ("none", "slaney"),
    "log": ("ln", "db", "pcen", "none"),
    "floor_kind": ("max", "add", "zero"),
    "dct": ("ortho", "even"),
    "delta_ends": ("nearest", "interp"),
    "delta_kind": ("slopes", "orders"),
    "row_norm": ("none", "max"),
    "preemphasis_over": ("stream", "frame", "window"),
    "pad": ("none", "zero", "reflect"),
    "tail": ("drop", "zero"),
    "window_at": ("start", "middle"),
    "rounding": ("none", "truncate"),
    "per": ("stream", "window"),
    "weights": ("nearest", "truncate"),
    "tables": ("float32", "float64"),
    "filter": ("none", "low", "high"),
    "format": FORMATS,
    "crop": ("none", "square"),
    "grey": ("none", "pillow", "opencv"),
    "resize": _RESIZES,
    "pixels": ("real", "bytes"),
}


def _check(settings: object) -> None:
    # Raise ``UsageError`` for a setting that is none of those that it may be, or out of its range.
    for field in fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, field.name)
        known = _CHOICES.get(field.name)
        if known is not None and value not in known:
            raise UsageError(f"[features] {field.name} is {value!r}", hint=f"known: {', '.join(known)}")


def _require(condition: bool, reason: str, hint: str = "") -> None:
    if not condition:
        raise UsageError(f"[features] {reason}", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class MelSettings:
    """Bands of a spectrum in float32, optionally with a logarithm and a cosine transform.

    Lengths are in samples, frequencies in hertz; ``docs/features.md`` explains each setting.
    """

    rate: int = 16000
    unit: float = 32768.0
    frame: int = 480
    hop: int = 320
    fft: int = 512
    window: str = "hann"
    periodic: bool = True
    window_at: str = "start"
    pad: str = "none"
    tail: str = "drop"
    remove_mean: bool = False
    preemphasis: float = 0.0
    preemphasis_over: str = "stream"
    normalize: bool = False
    spectrum: str = "power"
    divide: float = 1.0
    bands: int = 40
    low: float = 20.0
    high: float = 0.0
    scale: str = "htk"
    slope: str = "mel"
    norm: str = "none"
    tuning: float = 0.0
    row_norm: str = "none"
    log: str = "ln"
    floor: float = 1e-6
    floor_kind: str = "max"
    pcen_time: float = 0.4
    pcen_gain: float = 0.98
    pcen_bias: float = 2.0
    pcen_power: float = 0.5
    top: float = 0.0
    relative: bool = False
    gain: float = 1.0
    offset: float = 0.0
    clip: tuple[float, float] | None = None
    steps: int = 0
    coefficients: int = 0
    dct: str = "ortho"
    lifter: float = 0.0
    energy: bool = False
    cmvn: int = 0
    deltas: tuple[int, ...] = ()
    delta_ends: str = "nearest"
    delta_kind: str = "slopes"
    stack: int = 1
    quantum: float = 0.0
    zero_point: int = 0
    rounding: str = "none"
    arithmetic: str = "auto"
    per: str = "stream"
    length: int = 0

    def __post_init__(self) -> None:
        _check(self)
        _require(
            0 < self.hop <= self.frame <= 8192, f"a hop of {self.hop} and a frame of {self.frame} samples"
        )
        _require(is_fast(self.fft), f"an fft of {self.fft}, not 4 times twos, threes and fives, up to 8192")
        bins = self.fft // 2 + 1
        fits = self.bands == bins if self.slope == "none" else 1 <= self.bands < bins
        _require(
            fits, f"{self.bands} bands of {bins} bins", 'slope = "none" has as many as bins, others fewer'
        )
        _require(
            0 <= self.low < self.top_frequency <= self.rate / 2, f"bands from {self.low} to {self.high} Hz"
        )
        _require(
            0 <= self.coefficients <= self.bands, f"{self.coefficients} coefficients of {self.bands} bands"
        )
        _require(abs(self.tuning) <= 1, f"a tuning of {self.tuning} bands; supported: -1 to 1")
        _require(self.cmvn % 2 == 1 or not self.cmvn, f"a cmvn of {self.cmvn} rows, not an odd number")
        good = all(type(reach) is int and 1 <= reach <= 50 for reach in self.deltas) and len(self.deltas) <= 3
        _require(good, f"deltas over {list(self.deltas)} rows", "up to three numbers from 1 to 50")
        known = self.delta_kind == "slopes" or all(2 * n > k for k, n in enumerate(self.deltas, 1))
        _require(
            known, f"deltas of orders over {list(self.deltas)} rows", "an order needs as many rows around"
        )
        _require(1 <= self.stack <= 64, f"a stack of {self.stack} frames; supported: 1 to 64")
        _require(self.floor > 1.2e-38, f"a floor of {self.floor}; supported: above 1.2e-38")
        if self.log == "pcen":
            _require(self.pcen_time > 0, f"a pcen_time of {self.pcen_time}, not above 0")
            _require(self.pcen_bias > 0, f"a pcen_bias of {self.pcen_bias}, not above 0")
            _require(0 < self.pcen_power <= 1, f"a pcen_power of {self.pcen_power}; supported: above 0, to 1")
            _require(0 <= self.pcen_gain <= 1, f"a pcen_gain of {self.pcen_gain}; supported: 0 to 1")
            hint = "a window begins anew in each run: leave per out"
            _require(self.per == "stream", "pcen follows the energy of a stream", hint)
        _require(self.rounding == "none" or self.quantum > 0, "rounding without a quantum above 0")
        hint = "its fft is a power of two from 16 on, its preemphasis at most 0.999"
        _require(self.arithmetic != "int32" or self.has_blocks, "an arithmetic of int32", hint)
        _require(0 <= self.length <= 1 << 20, f"a length of {self.length} samples; supported: up to 1048576")
        hint = 'set per = "window", or leave length out'
        _require(not self.length or self.per == "window", "a length is that of a window", hint)
        _require(not self.length or self.stack == 1, "length gives all rows of a window", "leave stack out")
        for reason, whole in self._of_the_whole_window():
            hint = 'set per = "window": the features of a whole window are computed at once'
            _require(not whole or self.per == "window", f"{reason}: a stream does not know it", hint)

    @property
    def has_blocks(self) -> bool:
        return has_block(self.fft) and abs(self.preemphasis) <= STEEPEST

    def on(self, *, fpu: bool) -> "MelSettings":
        if self.arithmetic != "auto":
            return self
        return replace(self, arithmetic="float32" if fpu or not self.has_blocks else "int32")

    def _of_the_whole_window(self) -> list[tuple[str, bool]]:
        return [
            ("normalize divides by the greatest sample of the window", self.normalize),
            ("top counts from the greatest value of the window", self.top > 0),
            ("relative values are less the greatest one of the window", self.relative),
            ("the first sample is compared with the last of the window", self.preemphasis_over == "window"),
            ("pad reflects what comes later", self.pad == "reflect"),
            ("cmvn looks at rows that come later", self.cmvn > 0),
            ("deltas look at rows that come later", bool(self.deltas)),
        ]

    @property
    def top_frequency(self) -> float:
        """Upper limit of the bands, by default half the rate."""
        return self.high or self.rate / 2

    @property
    def width(self) -> int:
        return (self.coefficients or self.bands) * (1 + len(self.deltas)) * self.stack

    @property
    def used(self) -> int:
        return min(self.frame, self.fft)

    @property
    def span(self) -> int:
        """Samples of the signal that a frame needs, including its padding."""
        return self.fft if self.window_at == "middle" else self.frame


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroSettings:
    """The integer front end of micro speech models.

    An int16 FFT, bands, noise reduction, gain control, a logarithm. ``tables`` and ``weights`` select the
    precision in which tables were computed and the rounding of weights when the network was trained.
    """

    rate: int = 16000
    frame: int = 480
    hop: int = 160
    fft: int = 512
    channels: int = 40
    low: float = 125.0
    high: float = 7500.0
    weights: str = "nearest"
    tables: str = "float32"
    smoothing_bits: int = 10
    even_smoothing: float = 0.025
    odd_smoothing: float = 0.06
    min_signal_remaining: float = 0.05
    pcan_strength: float = 0.95
    pcan_offset: float = 80.0
    pcan_gain_bits: int = 21
    log_shift: int = 6
    int8: bool = True
    per: str = "stream"

    def __post_init__(self) -> None:
        _check(self)
        _require(
            0 < self.hop <= self.frame <= self.fft, f"a hop of {self.hop}, a frame of {self.frame} samples"
        )
        good = 4 <= self.fft <= 8192 and self.fft & (self.fft - 1) == 0
        _require(good, f"an fft of {self.fft}, not a power of two from 4 to 8192")
        _require(1 <= self.channels <= 256, f"{self.channels} channels; supported: 1 to 256")
        _require(0 < self.low < self.high <= self.rate / 2, f"channels from {self.low} to {self.high} Hz")

    @property
    def width(self) -> int:
        return self.channels

    @property
    def span(self) -> int:
        return self.frame


@dataclass(frozen=True, slots=True, kw_only=True)
class VibrationSettings:
    """Features of a window of samples along several axes, axis by axis, in float32.

    ``statistics`` are names of ``STATISTICS``. Without ``bins`` these are the only features. With ``bins``
    the mean is subtracted after an optional Butterworth ``filter``; then follow skew and kurtosis of the
    powers, and the base-10 logarithms of the largest powers over frames of ``fft`` samples that overlap by
    half. A low-pass filter keeps the bins up to its ``cutoff``, in hertz.
    """

    rate: int = 100
    axes: int = 3
    frame: int = 200
    hop: int = 100
    statistics: tuple[str, ...] = MOMENTS
    bins: bool = False
    fft: int = 16
    filter: str = "none"
    cutoff: float = 0.0
    order: int = 6
    floor: float = 1e-10
    per: str = "window"

    def __post_init__(self) -> None:
        _check(self)
        _require(self.per == "window", "these features are of a whole window")
        _require(1 <= self.axes <= 64, f"{self.axes} axes; supported: 1 to 64")
        _require(2 <= self.frame <= 8192 and self.hop > 0, f"a hop of {self.hop} and windows of {self.frame}")
        unknown = [name for name in self.statistics if name not in STATISTICS]
        _require(not unknown, f"unknown statistics {', '.join(unknown)}", f"known: {', '.join(STATISTICS)}")
        _require(bool(self.statistics) or self.bins, "neither statistics nor bins")
        good = 4 <= self.fft <= 8192 and self.fft & (self.fft - 1) == 0
        _require(good or not self.bins, f"an fft of {self.fft}, not a power of two from 4 to 8192")
        _require(self.order in (2, 4, 6, 8), f"a filter of order {self.order}; supported: 2, 4, 6, 8")
        fits = self.filter == "none" or 0 < self.cutoff < self.rate / 2
        _require(fits, f"a cutoff of {self.cutoff} Hz at {self.rate} samples a second")

    @property
    def kept(self) -> tuple[int, int]:
        edge = int(self.cutoff * self.fft / self.rate + 0.5)
        if self.filter == "low":
            return 1, edge + 1
        return (edge if self.filter == "high" else 1), self.fft // 2 + 1

    @property
    def width(self) -> int:
        bins = self.kept[1] - self.kept[0] + 2 if self.bins else 0
        return self.axes * (len(self.statistics) + bins)

    @property
    def span(self) -> int:
        return self.frame


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    """A camera's frame of ``frame_width`` x ``frame_height`` pixels as a picture of ``width`` x ``height``.

    ``crop`` is ``square`` (the middle square) or none. With ``grey``, the picture is converted to grey before
    it is resized. ``pixels`` are ``real``, which is ``(pixel - mean) / std`` with one mean and std or one for
    each channel, or ``bytes``, which are stored minus 128 for int8 networks. ``frames`` arrive per second.
    ``pillow`` is the version of Pillow to follow: up to version 12 it always resizes along rows first.
    """

    frame_width: int = 96
    frame_height: int = 96
    format: str = "rgb888"
    frames: int = 1
    crop: str = "none"
    width: int = 96
    height: int = 96
    grey: str = "none"
    resize: str = "pillow-bilinear"
    pillow: int = 13
    pixels: str = "real"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (255.0,)
    per: str = "window"

    def __post_init__(self) -> None:
        _check(self)
        _require(self.per == "window", "a picture is a whole frame")
        for name in ("frame_width", "frame_height", "width", "height"):
            size = getattr(self, name)
            _require(1 <= size <= 4096, f"{name} is {size}; supported: 1 to 4096 pixels")
        _require(self.frames >= 1, f"{self.frames} frames a second")
        paired = self.format != "yuyv" or self.frame_width % 2 == 0
        _require(paired, f"a frame_width of {self.frame_width}: two pixels of yuyv share a colour")
        large = not self.format.startswith("bayer") or min(self.frame_width, self.frame_height) >= 3
        _require(large, f"a frame of {self.frame_width}x{self.frame_height}; a Bayer pattern takes 3x3")
        _require(self.format != "grey" or self.grey == "none", "grey: the frame is grey already")
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            _require(
                len(numbers) in (1, self.channels), f"{len(numbers)} of {name}, {self.channels} channels"
            )
        _require(all(number != 0 for number in self.std), "a std of 0")
        real = self.pixels == "real" or not self.resize.startswith("tensorflow")
        _require(real, f"bytes of {self.resize}, which makes real numbers", 'set pixels = "real"')

    @property
    def channels(self) -> int:
        return 1 if self.format == "grey" or self.grey != "none" else 3

    @property
    def part(self) -> tuple[int, int, int, int]:
        """The used part of the frame: first row, first column, height, width."""
        if self.crop == "none":
            return 0, 0, self.frame_height, self.frame_width
        side = min(self.frame_height, self.frame_width)
        return (self.frame_height - side) // 2, (self.frame_width - side) // 2, side, side

    @property
    def rate(self) -> int:
        return self.frames * self.frame_height


SoundSettings = MelSettings | MicroSettings
FeatureSettings = SoundSettings | VibrationSettings | ImageSettings
