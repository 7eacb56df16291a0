"""Gathered windows: in scratch, the inputs of each pixel of a row are contiguous."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle

from crtgen.compiler.kernels.asm import LISTED, Function, Routine, listed
from crtgen.compiler.kernels.mve.stream import LANES

__all__ = ["GatheredWindows"]

_MOST_BYTES = 1024  # of the windows that are gathered at once, for speed
_ROWS = 10  # pointers that there are registers for
_WORD = 4
_VECTORS = 4  # on their way at once


@dataclass(frozen=True, slots=True)
class GatheredWindows:
    """Gathered windows of ``width`` pixels: from each of ``rows`` rows the segments of ``length`` bytes at
    ``offsets``.

    Pixels of the image are ``step`` bytes apart, their windows ``pitch`` bytes. ``most`` windows are gathered
    at a time, or one more. If a row has fewer, and an odd number, two rows (``lines``) are gathered together,
    so that pixels form pairs.
    """

    rows: int
    offsets: tuple[int, ...]
    length: int
    step: int
    pitch: int
    width: int
    most: int

    @classmethod
    def of(
        cls, rows: int, offsets: tuple[int, ...], length: int, step: int, width: int, fast: bool
    ) -> "GatheredWindows":
        """Choose the number of windows: with ``fast``, as many at a time as fit into memory, otherwise
        two.
        """
        pitch = -(-rows * len(offsets) * length // LANES) * LANES
        most = max(_MOST_BYTES // pitch // 2 * 2, 2) if fast else 2
        return cls(rows, offsets, length, step, pitch, width, most)

    @property
    def lines(self) -> int:
        return 2 if self.width % 2 and 2 * self.width <= self.most else 1

    @property
    def whole(self) -> int:
        """Number of times that ``most`` windows of a row are gathered, before the remainder."""
        return (self.width - 2) // self.most

    @property
    def rest(self) -> int:
        """Remaining windows of a row: never one, which would not be a pair."""
        return self.width - self.whole * self.most

    @property
    def windows(self) -> int:
        return max(self.lines * self.rest, self.most * (self.whole > 0))

    @property
    def bytes(self) -> int:
        """Bytes of scratch; the last vector may extend beyond the last window."""
        return self.windows * self.pitch + LANES

    @property
    def calls(self) -> int:
        return self.whole + 1

    def counts(self, height: int) -> tuple[tuple[int, int], ...]:
        """Return, for ``height`` rows of outputs, the numbers of windows gathered at a time and how often
        each occurs.
        """
        if self.lines == 2:
            counts = (2 * self.width, height // 2), (self.width, height % 2)
        else:
            counts = (self.most, self.whole * height), (self.rest, height)
        return tuple((count, times) for count, times in counts if times)

    @property
    def copies(self) -> tuple[tuple[int, int], ...]:
        """Source and destination offsets in a row at which a vector, or a word, is copied; each copy may
        overwrite the start of the next.
        """
        parts = range(0, self.length, LANES)
        return tuple((at + p, n * self.length + p) for n, at in enumerate(self.offsets) for p in parts)

    @property
    def word(self) -> bool:
        # True if a segment is copied as a word, without a vector.
        return self.length <= _WORD

    @property
    def depth(self) -> int:
        return self.rows * self.row_bytes

    @property
    def row_bytes(self) -> int:
        return len(self.offsets) * self.length

    @property
    def routine(self) -> Routine:
        return windows_of_pixels(self.rows, self.copies, self.row_bytes, self.word, self.step, self.pitch)


@lru_cache(maxsize=256)
def windows_of_pixels(
    rows: int, copies: tuple[tuple[int, int], ...], row_bytes: int, word: bool, step: int, pitch: int
) -> Routine:
    """Write ``windows(to, rows, pixels)``, which copies windows and advances the pointers in ``rows`` past
    the last one.

    Bytes after a window are multiplied by zero weights. Up to ten pointers stay in registers; with more rows,
    ten at a time are loaded and stored for each pixel.
    """
    f = Function(
        "windows",
        "void *to",
        "const int8_t **rows",
        "uint32_t pixels",
        purpose="Gathers the windows of pixels; `rows` move on.",
        no_alias=True,
    )
    to, places, count = f.arguments
    at_once = min(rows, _ROWS)
    pointers = f.cores("rows", at_once, LISTED)
    if rows == at_once:
        _load(f, pointers, places)
    with f.low_overhead_loop("pixels", "pixels", count):
        f.free(count)
        held = cycle((f.core("a word", (count,)),) if word else f.vectors("bytes", _VECTORS))
        for first in range(0, rows, _ROWS):
            some = pointers[: rows - first]
            if rows > at_once:
                _load(f, some, places)
            for number, pointer in enumerate(some, first):
                behind = pitch - (rows - 1) * row_bytes if number == rows - 1 else row_bytes
                for (at, place), (far, farther) in zip(copies, [*copies[1:], (step, behind)], strict=True):
                    _copy(f, next(held), (pointer, far - at), (to, farther - place))
            if rows > at_once:
                _store(f, some, places, 4 * len(some))
        if rows > at_once:
            f.advance(places, -4 * rows)
    if rows == at_once:
        _store(f, pointers, places)
    return f.done()


def _copy(f: Function, held: str, source: tuple[str, int], to: tuple[str, int]) -> None:
    # A word or a vector, by two pointers that move on by so many bytes.
    operations, most = (("ldr", "str"), 255) if held in LISTED else (("vldrb.8", "vstrb.8"), 127)
    for operation, (pointer, by) in zip(operations, (source, to), strict=True):
        near = 0 < abs(by) <= most
        f(operation, held, f"[{pointer}], #{by}" if near else f"[{pointer}]")
        if not near:
            f.advance(pointer, by)


def _load(f: Function, pointers: Sequence[str], places: str) -> None:
    if len(pointers) > 1:
        f("ldm", places, listed(pointers))
    else:
        f("ldr", pointers[0], f"[{places}]")


def _store(f: Function, pointers: Sequence[str], places: str, by: int = 0) -> None:
    # ``places`` moves on by so many bytes.
    if len(pointers) > 1:
        f("stm", f"{places}!" if by else places, listed(pointers))
    else:
        f("str", pointers[0], f"[{places}], #{by}" if by else f"[{places}]")
