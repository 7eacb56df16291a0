"""Tables of the integer front end, computed as in TensorFlow Lite Micro's micro speech example."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtgen.network.features.settings import MicroSettings
from crtgen.network.ir import Array

__all__ = ["MicroChannels", "integer_window", "micro_channels", "pcan_gains"]

_ONE = 4096
_INPUT_BITS = 7
_MOST = 32767

Shorts = npt.NDArray[np.int16]


def integer_window(length: int, tables: str) -> Shorts:
    """Return a Hann window sampled between its points, with 4096 for 1.0."""
    turn = np.array(2 * np.pi / length).astype(tables)
    cosines = np.cos((turn * (np.arange(length) + 0.5)).astype(tables))
    window: Shorts = np.floor((0.5 - 0.5 * cosines) * _ONE + 0.5).astype(np.int16)
    return window


@dataclass(frozen=True, slots=True)
class MicroChannels:
    """The bins of one channel, from ``start`` up to ``end`` (exclusive), and the constants of ``FilterBank``
    by name.
    """

    start: int
    end: int
    tables: tuple[tuple[str, Shorts], ...]


def _mel(hertz: Array | float, tables: str) -> npt.NDArray[np.float32]:
    ratio = (np.asarray(hertz, np.float64) / 700.0).astype(tables)
    return np.asarray(1127.0 * np.log1p(ratio)).astype(np.float32)


def micro_channels(s: MicroSettings) -> MicroChannels:
    """Return triangular channels on the mel scale: each bin contributes to the channel below and the one
    above it.
    """
    low, high = _mel(s.low, s.tables), _mel(s.high, s.tables)
    spacing = (high - low) / np.float32(s.channels + 1)
    centres = low + spacing * np.arange(1, s.channels + 2, dtype=np.float32)
    width = 0.5 * s.rate / (s.fft // 2)
    start = int(1.5 + s.low / width)
    bins = _mel(width * np.arange(s.fft // 2 + 1), s.tables)
    ends = np.searchsorted(bins, centres, side="right")
    starts = np.concatenate([[start], ends[:-1]]).clip(max=s.fft // 2 + 1)
    widths = np.maximum(ends - starts, 0)
    edges = np.concatenate([[low], centres])
    weights, unweights = [], []
    rounding = 0.5 if s.weights == "nearest" else 0.0
    for channel in range(s.channels + 1):
        at = slice(starts[channel], starts[channel] + widths[channel])
        part = ((centres[channel] - bins[at]) / (centres[channel] - edges[channel])).astype(np.float64)
        weights.append(np.floor(part * _ONE + rounding))
        unweights.append(np.floor((1 - part) * _ONE + rounding))
    first = np.concatenate([[0], np.cumsum(widths)[:-1]])
    tables = {
        "bank": np.concatenate(weights),
        "bank_next": np.concatenate(unweights),
        "bins": starts,
        "bank_starts": first,
        "widths": widths,
    }
    shorts = tuple((name, table.astype(np.int16)) for name, table in tables.items())
    return MicroChannels(start, int(ends[-1]), shorts)


def pcan_gains(s: MicroSettings) -> Shorts:
    """Return gains by noise estimate: value, slope and curvature of each interval between powers of two."""

    def gain(estimate: int) -> int:
        real = 2.0**s.pcan_gain_bits * (estimate / 2.0**_INPUT_BITS + s.pcan_offset) ** -s.pcan_strength
        return min(int(real + 0.5), _MOST)

    table = np.zeros(125, np.int16)
    table[0], table[1] = gain(0), gain(1)
    for interval in range(2, 33):
        x = 1 << (interval - 1)
        ends = gain(x), gain(x + (x >> 1)), gain(2 * x - (interval == 32))
        slope = 4 * (ends[1] - ends[0]) - (ends[2] - ends[0])
        table[4 * interval - 6 : 4 * interval - 3] = ends[0], slope, ends[2] - ends[0] - slope
    return table
