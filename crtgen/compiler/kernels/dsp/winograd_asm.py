"""Assembly of Winograd's convolution F(2x2, 3x3): the input transform, and the products with the output
transform.

A tile is 2 x 2 pixels of the output, and 4 x 4 of the input. With ``B``, ``G`` and ``A`` of

    B^T = 1  0 -1  0     2 G = 2  0  0     A^T = 1  1  1  0
          0  1  1  0           1  1  1           0  1 -1 -1
          0 -1  1  0           1 -1  1
          0  1  0 -1           0  0  2

four times a tile's outputs are ``A^T (sum over inputs (2 G w 2 G^T) * (B^T x B)) A`` (Winograd 1980, Lavin
and Gray 2016): 16 products per input channel instead of 36, all of them integers. ``B^T x B`` is within -512
to 510, the weights are within 9 * 128. All sums wrap modulo 2**32, so the result is right if it fits, even if
intermediate sums overflowed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from crtgen.compiler.kernels.asm import FAR, LISTED, Function, Writer, listed
from crtgen.compiler.kernels.dsp.epilogue import DspEpilogue

__all__ = ["GAIN", "POSITIONS", "TileInputs", "Tiles", "Transform", "WinogradWriter"]

GAIN = 2
"""Sums are 4 times too large."""
POSITIONS = 16
_START_AT = 5  # the position that all four outputs add


@dataclass(frozen=True, slots=True)
class TileInputs:
    """Tiles with ``pixel`` bytes per pixel in rows of ``pitch`` bytes, for groups of ``tiles``."""

    tiles: int
    pixel: int
    pitch: int

    @property
    def step_bytes(self) -> int:
        return 4 * self.tiles

    @property
    def position_bytes(self) -> int:
        return self.pixel // 2 * self.step_bytes

    @property
    def nbytes(self) -> int:
        return POSITIONS * self.position_bytes

    @property
    def near(self) -> bool:
        return 3 * (self.pitch + self.pixel) <= FAR and 4 * self.position_bytes <= FAR


class Transform(Writer):
    """Writes ``transform(to, window, end)``: ``B^T x B`` of a tile, as ``[position][pair of
    channels][tile]``.

    ``window`` is the address of its first pixel, and ``end`` the end of that pixel. Sums and differences of
    columns are kept in registers, then those of each row are computed.
    """

    def __init__(self, t: TileInputs) -> None:
        self.t = t
        self.f = f = Function(
            "transform",
            "uint32_t *to",
            "const int8_t *window",
            "const int8_t *end",
            purpose="Sums and differences of a tile's inputs, channels 0 and 2 of each word, then 1 and 3.",
            keep=(2,),
            no_alias=True,
        )
        self.to, self.window, end = f.arguments
        f.free(end)
        self.upper = f.cores("row 1", 4)
        self.lower = f.cores("row 2", 4)
        self.row = f.cores("a row of sums", 4)
        self.by_rows = 15 * t.position_bytes > FAR

    def write(self) -> None:
        f, t = self.f, self.t
        with f.loop("words", t.pixel // 4) as again:
            for rotated in ((), ("ror #8",)):
                self._channels(rotated)
                if self.by_rows:
                    for back in (8 * t.position_bytes, 4 * t.position_bytes - t.step_bytes):
                        self._back(back)
                else:
                    f.advance(self.to, t.step_bytes)
            f("add", self.window, self.window, "#4")
            f("ldr", self.row[0], f.kept[2])
            f("cmp", self.window, self.row[0])
            f("bne", again)

    def _back(self, by: int) -> None:
        self.f.advance(self.to, -by, self.row[0])

    def _channels(self, rotated: tuple[str, ...]) -> None:
        # Two channels: each row of ``B^T x``, times ``B``.
        f, row, upper, lower = self.f, self.row, self.upper, self.lower
        self._load(upper, 1, rotated)
        self._load(lower, 2, rotated)
        self._load(row, 0, rotated)
        for total, low in zip(row, lower, strict=True):
            f("ssub16", total, total, low)
        self._store(0)
        for total, high, low in zip(row, upper, lower, strict=True):
            f("sadd16", total, high, low)
        self._store(1)
        for total, high, low in zip(row, upper, lower, strict=True):
            f("ssub16", total, low, high)
        self._store(2)
        self._load(row, 3, rotated)
        for total, high in zip(row, upper, strict=True):
            f("ssub16", total, high, total)
        self._store(3)

    def _load(self, registers: Sequence[str], number: int, rotated: tuple[str, ...]) -> None:
        # A row of the tile's inputs.
        for column, register in enumerate(registers):
            self.f("ldr", register, f"[{self.window}, #{number * self.t.pitch + column * self.t.pixel}]")
            self.f("sxtb16", register, register, *rotated)

    def _store(self, number: int) -> None:
        f, (a, b, c, d), step = self.f, self.row, self.t.position_bytes
        at = 0 if self.by_rows else 4 * number * step
        f("ssub16", a, a, c)
        f("ssub16", d, b, d)
        f("str", a, f"[{self.to}, #{at}]")
        f("sadd16", a, b, c)
        f("str", a, f"[{self.to}, #{at + step}]")
        f("ssub16", c, c, b)
        f("str", c, f"[{self.to}, #{at + 2 * step}]")
        f("str", d, f"[{self.to}, #{at + 3 * step}]")
        if self.by_rows and number < 3:
            f.advance(self.to, 4 * step)


@dataclass(frozen=True, slots=True)
class Tiles:
    """Products of ``tiles`` tiles with ``steps`` pairs of input channels, and the outputs.

    An output pixel takes ``stride`` bytes, a row of outputs ``pitch`` bytes.
    """

    tiles: int
    steps: int
    stride: int
    pitch: int
    epilogue: DspEpilogue

    @property
    def near(self) -> bool:
        return self.pitch + self.stride + 1 <= FAR


class WinogradWriter(Writer):
    """Writes ``products(weights, outputs, columns, end)``: the pairs of channels from ``weights`` to ``end``.

    ``outputs`` are the addresses of the outputs of each tile, which advance. The products of all positions
    are stored on the stack, then outputs are computed by channel and tile.
    """

    def __init__(self, t: Tiles) -> None:
        self.t = t
        self.f = f = Function(
            "products",
            "const uint32_t *weights",
            "int8_t **outputs",
            "const uint32_t *columns",
            "const uint32_t *end",
            purpose=f"{t.tiles} tiles times the pairs of channels from `weights` to `end`.",
            keep=(1, 2, 3),
            local=POSITIONS * 2 * t.tiles,
        )
        self.weights, outputs, self.columns, end = f.arguments
        f.free(outputs, end)
        self.sums = f.cores("sums, then outputs", 2 * t.tiles, LISTED)
        self.inputs = f.cores("inputs", t.tiles, LISTED)
        self.taps = f.cores("weights of both channels", 2, LISTED)
        self.sp = f.core("where sums go on the stack", ("lr",))

    def write(self) -> None:
        f = self.f
        with f.loop("pairs of channels", "pairs") as again:
            f("ldr", self.columns, f.kept[2])
            f("add", self.sp, "sp", f"#{self._at(POSITIONS, 0)}")
            with f.loop("positions", POSITIONS) as next_position:
                self._position()
                f("cmp", "sp", self.sp)
                f("bne", next_position)
            self._outputs()
            f("ldr", self.columns, f.kept[3])
            f("cmp", self.weights, self.columns)
            f("bne", again)

    def _at(self, rows: int, number: int) -> int:
        # Offset of a sum behind ``rows`` rows of sums.
        return 4 * (2 * self.t.tiles * rows + number)

    def _position(self) -> None:
        f, tiles = self.f, self.t.tiles
        for step in range(self.t.steps):
            if tiles > 1:
                f("ldm", f"{self.columns}!", listed(self.inputs))
            else:
                f("ldr", self.inputs[0], f"[{self.columns}], #4")
            f("ldrd", *self.taps, f"[{self.weights}], #8")
            for number, total in enumerate(self.sums):
                pair = self.inputs[number % tiles], self.taps[number // tiles]
                f(*(("smlad", total, *pair, total) if step else ("smuad", total, *pair)))
        f("stmdb", f"{self.sp}!", listed(self.sums))

    def _outputs(self) -> None:
        # ``A^T m A`` of each channel and tile, column by column, then what is made of it.
        f, t, epilogue = self.f, self.t, self.t.epilogue
        free = [r for r in LISTED if r not in (self.weights, self.columns)]
        y, m, constants = free[:4], free[4:8], [*free[8:], self.sp]
        own = [r for r in (*free, self.sp) if r not in (*self.sums, *self.inputs, *self.taps, self.sp)]
        f.cores("outputs", len(own), own)
        f("ldr", self.columns, f.kept[1], note="where outputs go")
        for channel in (0, 1):
            start, *own_constants = constants[: 1 + epilogue.constants]
            f("ldm", f"{self.weights}!", listed((start, *own_constants)))
            for tile in range(t.tiles):
                self._sums(channel * t.tiles + tile, y, m, start)
                epilogue.append_all(f, y, own_constants, (m[0],), GAIN, channel)
                self._store(channel, tile, y, m[0])
        f.free(*own)

    def _sums(self, number: int, y: Sequence[str], m: Sequence[str], start: str) -> None:
        # ``y`` becomes what two rows of two outputs are, from the sums of that number.
        f = self.f
        left, right = (y[0], y[2]), (y[1], y[3])
        for column in range(4):
            first, second = left if column == 0 else right if column == 1 else (m[0], m[1])
            for row, register in enumerate((first, second, m[2], m[3])):
                place = 4 * row + column
                f("ldr", register, f"[sp, #{self._at(POSITIONS - 1 - place, number)}]")
                if place == _START_AT:
                    f("add", register, register, start)
            f("add", first, first, second)
            f("sub", second, second, m[2])
            f("add", first, first, m[2])
            f("sub", second, second, m[3])
            if column in (1, 2):
                f("add", left[0], left[0], first)
                f("add", left[1], left[1], second)
            if column in (2, 3):
                f("sub", right[0], right[0], first)
                f("sub", right[1], right[1], second)

    def _store(self, channel: int, tile: int, y: Sequence[str], pointer: str) -> None:
        f, t = self.f, self.t
        f("ldr", pointer, f"[{self.columns}, #{4 * tile}]")
        for total, at in zip(y, (0, t.stride, t.pitch, t.pitch + t.stride), strict=True):
            f("strb", total, f"[{pointer}, #{at + channel}]")
        if channel:
            f("add", pointer, pointer, "#2")
            f("str", pointer, f"[{self.columns}, #{4 * tile}]")
