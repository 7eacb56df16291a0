"""The tables of features: windows, mel filter banks, cosine transforms.

Formulas are those of the libraries that presets are named after; tests compare the tables with data from
these libraries.
"""

from math import factorial

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array

__all__ = ["chroma_bank", "cosines", "mel_bank", "slope_weights", "window_of"]

Doubles = npt.NDArray[np.float64]

WINDOWS = ("hann", "hamming", "povey", "none")
SCALES = ("htk", "slaney")
SLOPES = ("mel", "hz", "bins", "kaldi", "chroma", "none")


def window_of(kind: str, length: int, periodic: bool) -> Doubles:
    """Return the window ``kind`` of ``length`` samples; a periodic one is the symmetric window of ``length``
    + 1 samples without the last.
    """
    if kind == "none":
        return np.ones(length)
    phase = 2 * np.pi * np.arange(length) / (length - (not periodic))
    if kind == "hamming":
        return 0.54 - 0.46 * np.cos(phase)
    hann: Doubles = 0.5 - 0.5 * np.cos(phase)
    return hann if kind == "hann" else hann**0.85


def _mel(hertz: Array | float, scale: str) -> Doubles:
    f = np.asarray(hertz, np.float64)
    if scale == "htk":
        return np.asarray(1127.0 * np.log1p(f / 700.0))
    knee = np.maximum(f, 1000.0)
    return np.where(f < 1000.0, f * 3 / 200, 15 + 27 * np.log(knee / 1000.0) / np.log(6.4))


def _hertz(mel: Doubles, scale: str) -> Doubles:
    if scale == "htk":
        return np.asarray(700.0 * np.expm1(mel / 1127.0))
    return np.where(mel < 15, mel * 200 / 3, 1000.0 * np.exp((mel - 15) * np.log(6.4) / 27))


def mel_bank(
    *, rate: int, fft: int, count: int, low: float, high: float, scale: str, slope: str, norm: str
) -> Doubles:
    """Return the weights of ``fft // 2 + 1`` bins for bands between two frequencies in hertz: ``[bins,
    count]``.

    ``slope`` selects the axis on which triangles are linear: the mel scale (``mel``, which omits bin 0;
    ``kaldi``, which omits the last bin), the frequency (``hz``), or bin indices (``bins``). With ``none``,
    each bin is a band. ``norm`` is ``none``, or ``slaney`` for equal areas.
    """
    if slope == "none":
        return np.eye(fft // 2 + 1)
    bins = np.arange(fft // 2 + 1) * (rate / fft)
    edges = np.linspace(_mel(low, scale), _mel(high, scale), count + 2)
    if slope == "bins":
        return _between_bins(_hertz(edges, scale), rate, fft, count)
    at = bins if slope == "hz" else _mel(bins, scale)
    points = _hertz(edges, scale) if slope == "hz" else edges
    left, middle, right = points[:-2], points[1:-1], points[2:]
    rising = (at[:, None] - left) / (middle - left)
    falling = (right - at[:, None]) / (right - middle)
    bank = np.maximum(0.0, np.minimum(rising, falling))
    if slope == "mel":
        bank[0] = 0
    if slope == "kaldi":
        bank[-1] = 0
    if norm == "slaney":
        hertz = _hertz(edges, scale)
        bank *= 2.0 / (hertz[2:] - hertz[:-2])
    return bank


def chroma_bank(*, rate: int, fft: int, count: int, tuning: float) -> Doubles:
    """Return librosa's weights of bins for pitch classes from C on: ``[bins, count]``.

    Each bin goes to the classes near its pitch, and counts most about five octaves above 27.5 Hz. ``tuning``
    says by what part of a class A is above 440 Hz.
    """
    reference = 27.5 * 2.0 ** (tuning / count)
    octaves = np.log2(np.arange(1, fft) * (rate / fft) / reference)
    pitch = count * np.concatenate(([octaves[0] - 1.5], octaves))
    widths = np.concatenate((np.maximum(np.diff(pitch), 1.0), [1.0]))
    half = np.round(count / 2)
    apart = np.remainder(pitch[:, None] - np.arange(count) + half + 10 * count, count) - half
    bank = np.exp(-0.5 * (2 * apart / widths[:, None]) ** 2)
    bank /= np.sqrt(np.square(bank).sum(axis=1, keepdims=True))
    bank *= np.exp(-0.5 * ((pitch / count - 5.0) / 2) ** 2)[:, None]
    return np.asarray(np.roll(bank, -3 * (count // 12), axis=1)[: fft // 2 + 1])


def slope_weights(reach: int, order: int) -> Doubles:
    """Return the weights of rows ``-reach`` to ``reach`` whose sum is the derivative of this order of the
    polynomial of that degree that fits them best.
    """
    places = np.arange(-reach, reach + 1.0)
    fit = np.linalg.pinv(np.vander(places, order + 1, increasing=True))
    return np.asarray(fit[order] * factorial(order))


def _between_bins(hertz: Doubles, rate: int, fft: int, count: int) -> Doubles:
    places = np.floor((fft + 1) * hertz / rate).astype(int)
    bank = np.zeros((fft // 2 + 1, count))
    for band in range(count):
        left, middle, right = places[band : band + 3]
        for i in range(left, middle):
            bank[i, band] = (i - left) / (middle - left)
        for i in range(middle, min(right, len(bank))):
            bank[i, band] = (right - i) / (right - middle)
    return bank


def cosines(bands: int, count: int, kind: str, lifter: float) -> Doubles:
    """Return the first ``count`` rows of a DCT-II of ``bands`` values: ``[bands, count]``.

    ``ortho`` is orthonormal; ``even`` has the factor ``sqrt(2 / bands)`` for all rows. A ``lifter`` L above 0
    multiplies row k by ``1 + L / 2 sin(pi k / L)``.
    """
    rows = np.arange(count)
    matrix: Doubles = np.cos(np.pi * np.outer(np.arange(bands) + 0.5, rows) / bands) * np.sqrt(2 / bands)
    if kind == "ortho":
        matrix[:, 0] /= np.sqrt(2)
    if lifter:
        matrix *= 1 + lifter / 2 * np.sin(np.pi * rows / lifter)
    return matrix
