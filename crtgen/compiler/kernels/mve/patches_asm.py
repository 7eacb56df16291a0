"""Assembly of depthwise convolutions with Helium: the outputs of a strip of rows from 4x4 patches.

VMLADAV adds up 16 products of bytes in one instruction, and a depthwise window is small. So the rows of the
image are interleaved in scratch, four at a time (a strip): the four bytes of a column of one channel are a
word. A gather load of four such words, from four neighbouring columns, is a patch of 4x4 inputs of a channel
in one vector. Its weights are a vector, too, with zeros where the window has fewer than 4x4 taps, so one
VMLADAV is an output of a window up to 4x4; larger windows add up several patches.

A window that is smaller than a patch leaves room in it: then the patch holds the inputs of several
neighbouring outputs. It is loaded once and multiplied by weights that are moved by a column or a row
(``moves``).

The sums of four outputs, in core registers, move to one vector, which is requantised and stored, so that the
epilogue is paid once for four. The addresses of a gather are a vector that advances (``stepping``), or a core
register and a fixed vector.
"""

from dataclasses import dataclass

from crtgen.compiler.kernels.asm import EVEN, ODD, Function, Writer
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.window import WindowShape
from crtgen.compiler.kernels.mve.bytes import fill
from crtgen.compiler.kernels.mve.epilogue import MveEpilogue, rounded_products
from crtgen.compiler.kernels.mve.matrix import gather_sums
from crtgen.compiler.kernels.mve.patches import FAR_ADD, SIDE, Batch, Patch, Strip, StripRows, plane_bytes
from crtgen.compiler.kernels.mve.stream import LANES

__all__ = ["PatchDepthwiseView", "PatchesWriter"]


@dataclass(frozen=True, slots=True)
class PatchDepthwiseView:
    """A depthwise convolution, strip by strip, with all channels of a strip at a time.

    In scratch there are ``columns`` columns of ``channels`` words for each of the ``planes``, with the image
    from column ``window.left`` on; an output takes ``groups`` patches. The words of a patch are ``apart``
    bytes apart. Parts of a row, which begin at the columns of ``parts``, have ``batches`` of outputs. If a
    patch serves several outputs, ``moves`` are the bytes by which their weights are moved. ``stepping``: the
    address of a patch is a vector that advances, otherwise a core register and a vector. ``int4``: weights
    have four bits.
    """

    window: WindowShape
    fill: int
    strips: tuple[Strip, ...]
    parts: tuple[int, ...]
    batches: tuple[Batch, ...]
    planes: int
    columns: int
    seen: int
    apart: int
    moves: tuple[int, ...]
    groups: int
    stepping: bool
    multiplier: int
    epilogue: MveEpilogue
    int4: bool

    @property
    def far(self) -> bool:
        """True if a core register must hold steps that do not fit into an instruction."""
        steps = (abs(patch.advance) for batch in self.batches for patch in batch.patches)
        return not self.stepping and max(steps) > FAR_ADD

    @property
    def outputs(self) -> int:
        return self.channels * self.multiplier

    @property
    def plane(self) -> int:
        return plane_bytes(self.window, self.columns)

    @property
    def channel_words(self) -> int:
        return self.groups * LANES // (8 if self.int4 else 4)

    @property
    def channels(self) -> int:
        return self.window.channels

    @property
    def whole(self) -> int:
        return self.seen * self.channels // LANES

    @property
    def rest(self) -> int:
        return self.seen * self.channels % LANES

    @property
    def fills(self) -> bool:
        return self.seen < self.columns

    @property
    def column_bytes(self) -> int:
        return self.window.stride_x * self.channels * SIDE

    @property
    def image(self) -> int:
        return self.window.left * self.channels * SIDE

    @property
    def scratch(self) -> int:
        """Bytes of scratch; the last block of a row may extend beyond its end."""
        return self.plane * self.planes + 4 * LANES

    @property
    def lanes(self) -> tuple[int, ...]:
        """Vector of addresses before the first step, which the first load adds."""
        start = self.batches[0].patches[0].advance if self.stepping else 0
        return tuple((i * self.apart - start) % (1 << 32) for i in range(SIDE))

    @property
    def kinds(self) -> tuple[StripRows, ...]:
        return tuple(dict.fromkeys(rows for strip in self.strips for rows in strip.planes))

    @property
    def work(self) -> Work:
        batch = self.window.batch
        strips = batch * sum(s.count for s in self.strips)
        calls = strips * self.multiplier * len(self.parts)
        work = Work(calls * PatchesWriter.routine(self).runs())
        work.assembly += self.fills * fill().runs(vectors=-(-self.scratch // LANES))
        work.block("strip", strips, len(self.strips))
        work.block("part", calls, len(self.strips) * self.multiplier * len(self.parts))
        for strip in self.strips:
            for rows in strip.planes:
                self._interleaved(work, rows, batch * strip.count)
        return work

    def _interleaved(self, work: Work, rows: StripRows, runs: int) -> None:
        # Adds what it takes to interleave rows so many times.
        read = sum(1 for _, there in rows.fresh if there)
        work.block("plane", runs, 0)
        for name, times in (("block", self.whole), ("last block", 1 if self.rest else 0)):
            copies = bool(times) / sum(len(s.planes) for s in self.strips) * len(self.kinds)
            work.block(name, runs * times, copies).block(
                f"{name} kept", runs * times * (rows.kept > 0), copies
            )
            work.block(f"{name} read", runs * times * read, copies * read)
            work.block(f"{name} filled", runs * times * (len(rows.fresh) - read), 0)


class PatchesWriter(Writer):
    """Writes ``channels(patches, y, weights, requant)``, which computes the outputs of a strip."""

    def __init__(self, k: PatchDepthwiseView) -> None:
        self.k = k
        self.f = f = Function(
            "channels",
            "const int8_t *patches",
            "int8_t *y",
            "const uint32_t *weights",
            "const uint32_t *requant",
            no_alias=True,
            purpose="All channels of a strip, eight outputs of a channel at a time.",
            keep=(0, 3),
            local=3 if k.far else 2,
        )
        patches, y, weights, requant = f.arguments
        f.free(patches, requant)
        self.weights = f.core("weights", ("r11",))
        f("add", self.weights, weights, f"#{0 if k.int4 else LANES}")
        self.y = f.moved(y, "outputs", ODD)
        f.free(weights)
        self.patch = f.core("address of the patch", ODD)
        self.start, self.last = f.core("start", ODD), f.core("last constant", ODD)
        self.offsets = f.core("places of the outputs", ODD)
        self.sums = f.cores("sums", 8, EVEN)
        self.vectors = f.vectors("weights", SIDE)
        self.multiplier = f.vector("multiplier")
        self.inputs = f.vector("patch, then sums"), f.vector("patch, then sums, then places")
        self.lanes = f.vector("addresses of a patch" if k.stepping else "distances within a patch")

    def write(self) -> None:
        f, k = self.f, self.k
        words = [*k.lanes, *(word for batch in k.batches for word in batch.words)]
        table, end = self.sums[2], self.start
        f.table("places", words)(table)
        if not k.stepping:
            f("vldrw.u32", self.lanes, f"[{table}], #16")
        f("add", end, self.y, f"#{k.outputs}")
        f("strd", table, end, "[sp]")
        if k.far:
            f("str", self.weights, "[sp, #8]")
        with f.loop("channels", k.channels) as again:
            self._channel()
            for batch in k.batches:
                self._batch(batch)
            f("ldr", self.sums[0], "[sp, #4]")
            f("add", self.y, self.y, f"#{k.multiplier}")
            f("cmp", self.y, self.sums[0])
            f("bne", again)

    def _channel(self) -> None:
        # Constants, weights and the place of the channel's first patch.
        f, k = self.f, self.k
        requant, factor, following = self.sums[0], self.sums[1], self.sums[2]
        f("ldrd", self.patch, requant, f.kept[0])
        f("ldr", self.offsets, "[sp]")
        f("ldm", f"{requant}!", f"{{{factor}, {self.start}, {self.last}}}")
        f("add", following, self.patch, "#4")
        f("strd", following, requant, f.kept[0])
        f("vdup.32", self.multiplier, factor)
        if k.far:
            f("ldr", self.weights, "[sp, #8]")
        if k.int4:
            self._unpack()
        elif k.moves:
            for vector, move in zip(self.vectors[1:], k.moves[1:], strict=False):
                f("vldrb.u8", vector, f"[{self.weights}, #-{move}]")
            f("vldrb.u8", self.vectors[0], f"[{self.weights}], #{LANES}")
        else:
            for vector in self.vectors[: k.groups]:
                f("vldrb.u8", vector, f"[{self.weights}], #{LANES}")
        if k.far:
            f("str", self.weights, "[sp, #8]")
        if k.stepping:
            f("vldrw.u32", self.lanes, f"[{self.offsets}], #16")
            f("vadd.i32", self.lanes, self.lanes, self.patch)
            if k.epilogue.is_shifted:
                f.number(self.patch, k.epilogue.zero_point)

    def _unpack(self) -> None:
        # Weights of four bits to bytes, and the same moved.
        f, k, halves, low = self.f, self.k, self.inputs[0], self.sums[0]
        f("mov", low, self.weights)
        for vector in self.vectors[: k.groups]:
            f("vldrb.u16", halves, f"[{low}], #{LANES // 2}")
            f("vshl.i16", vector, halves, "#4")
            f("vsli.16", vector, halves, "#8")
            f("vshr.s8", vector, vector, "#4")
        f("mov", self.weights, low)
        if k.moves:
            f.number(low, 0)
        for number, move in enumerate(k.moves[1:], 1):
            source = next(i for i, other in enumerate(k.moves) if 0 < move - other <= SIDE)
            f("vmov", self.vectors[number], self.vectors[source])
            f("vshlc", self.vectors[number], low, f"#{8 * (move - k.moves[source])}")

    def _load(self, patch: Patch) -> str:
        f, vector = self.f, self.inputs[patch.second]
        if self.k.stepping:
            f("vldrw.u32", vector, f"[{self.lanes}, #{patch.advance}]!")
        else:
            f.advance(self.patch, patch.advance, spare=self.weights)
            f("vldrw.u32", vector, f"[{self.patch}, {self.lanes}]")
        return vector

    def _batch(self, batch: Batch) -> None:
        f = self.f
        for patch in batch.patches:
            inputs = self._load(patch)
            for total, number in patch.sums:
                multiply = "vmladav.s8" if patch.first else "vmladava.s8"
                f(multiply, self.sums[total], inputs, self.vectors[number])
        sums, places = self.inputs
        gather_sums(f, sums, self.sums[:4])
        if batch.full:
            gather_sums(f, places, self.sums[4:])
        self._requantise(batch.full)
        f("vldrh.u16" if batch.full else "vldrw.u32", places, f"[{self.offsets}], #16")
        f("vstrb.16" if batch.full else "vstrb.32", sums, f"[{self.y}, {places}]")

    def _requantise(self, full: bool) -> None:
        # Sums to int8 in the lowest bytes of a vector's halves, or of its words if there is one vector.
        f, epilogue = self.f, self.k.epilogue
        vectors = self.inputs if full else self.inputs[:1]
        low, high = self.inputs
        for q in vectors:
            f("vadd.i32", q, q, self.start)
        if epilogue.shift is not None:
            for q in vectors:
                f("vmulh.s32", q, q, self.multiplier)
            for q in vectors:
                f("vadd.i32", q, q, self.last)
            f("vqrshrnb.s32", low, low, f"#{epilogue.shift}")
            if full:
                f("vqrshrnt.s32", low, high, f"#{epilogue.shift}")
        elif epilogue.single:
            rounded_products(f, vectors, self.multiplier)
            for q in vectors:
                f("vadd.i32", q, q, self.last)
            _narrowed(f, vectors)
        else:
            self._shift_right(vectors)
        f("vqmovnb.s16", low, low)
        for limit, operation in ((epilogue.low, "vmax.s8"), (epilogue.high, "vmin.s8")):
            if limit is not None:
                f.number(self.sums[0], limit)
                f("vdup.8", high, self.sums[0])
                f(operation, low, low, high)

    def _shift_right(self, vectors: tuple[str, ...]) -> None:
        f, zero = self.f, self.patch
        minus_one = self.sums[0]
        f.number(minus_one, -1)
        if not self.k.stepping:
            zero = self.sums[1]
            f.number(zero, self.k.epilogue.zero_point)
        for q in vectors:
            f("vqrdmulh.s32", q, q, self.multiplier)
        for q in vectors:
            f("vpt.s32", "lt", q, "zr")
            f("vaddt.i32", q, q, minus_one, note="halves go away from zero")
            f("vrshl.s32", q, self.last)
        _narrowed(f, vectors)
        f("vqadd.s16", vectors[0], vectors[0], zero)


def _narrowed(f: Function, vectors: tuple[str, ...]) -> None:
    # Words of one or two vectors to halves of the first one.
    f("vqmovnb.s32", vectors[0], vectors[0])
    if len(vectors) > 1:
        f("vqmovnt.s32", *vectors)
