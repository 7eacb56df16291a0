"""The Helium micro-kernel of convolutions: two pixels times four channels, one vector of inputs at a time.

VMLADAVA multiplies 16 pairs of bytes and adds all products to one core register: eight even registers are the
accumulators, and six loaded vectors serve eight such instructions. For int16 inputs it multiplies 8 pairs,
and weights are widened as they are loaded. A vector of 4-bit weights holds those of two channels: VSHR
extracts the first one's, VSHL leaves 16 times the second one's.

All offsets and lengths of inputs are in bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from crtgen.compiler.kernels.asm import EVEN, ODD, Function, Routine, Runs, Writer
from crtgen.compiler.kernels.mve.epilogue import (
    MveEpilogue,
    Requantisation,
    epilogue_bytes,
    epilogue_halves,
    epilogue_words,
)
from crtgen.compiler.kernels.mve.stream import LANES, StreamCut, sixteenths, unpack

__all__ = [
    "LOADS",
    "PRODUCTS",
    "STORES",
    "WEIGHTS",
    "Load",
    "MicroRow",
    "Run",
    "contiguous",
    "gather_sums",
    "micro",
]

_CHANNELS = 4
_POINTERS = 3  # into a row, at most
_FAR_WORD, _FAR_BYTE = 508, 127  # offsets of VLDRW and VLDRB
_SHORT = 10  # vectors of a window that is written out for two groups of channels


@dataclass(frozen=True, slots=True)
class Run:
    """A contiguous segment of input bytes, for the pointer with this index."""

    pointer: int
    start: int
    length: int

    def cuts(self) -> list[StreamCut]:
        ends = range(self.start, self.start + self.length, LANES)
        return [StreamCut(at, min(LANES, self.start + self.length - at)) for at in ends]


def contiguous(depth: int) -> list[StreamCut]:
    """Return the load order for ``depth`` contiguous bytes of inputs, with the incomplete vector first."""
    first = depth % LANES
    starts = ([(0, first)] if first else []) + [(at, LANES) for at in range(first, depth, LANES)]
    return [StreamCut(*s) for s in starts]


@dataclass(frozen=True, slots=True)
class Load:
    """Load of one vector of both pixels: an instruction, the index of the pointer, an offset.

    If the second pixel has no pointer of its own, it is ``ahead`` bytes after the first one. With ``walk``,
    the pointers advance instead of using an offset.
    """

    operation: str
    pointer: int
    offset: int = 0
    ahead: int = 0
    walk: int = 0


@dataclass(frozen=True, slots=True)
class MicroRow:
    """The micro-kernel over the pixels of a row, two at a time.

    It has ``pointers`` pointers into a row; two pixels are ``step`` bytes apart; with ``second``, an
    additional pointer is for the second pixel. The vectors of ``head`` are unrolled, then a loop of
    ``rounds`` iterations processes ``unroll`` more each. ``tail`` bytes of the first vector are used, if not
    0. ``int4``: weights have four bits. An iteration computes ``at_once`` groups of channels: with two, the
    requantisation of one and the sums of the other overlap, and the channels alternate, so that their outputs
    are adjacent in a vector.
    """

    outputs: int
    step: int
    pointers: int
    second: bool
    head: tuple[Load, ...]
    rounds: int
    unroll: int
    tail: int
    epilogue: MveEpilogue
    int4: bool
    at_once: int = 1

    @property
    def ragged(self) -> bool:
        return self.outputs % _CHANNELS != 0

    @property
    def groups(self) -> int:
        return -(-self.outputs // _CHANNELS)

    @property
    def pairs(self) -> bool:
        """True if an iteration can compute two groups of channels: short ones, all with four channels."""
        short = not self.rounds and len(self.head) <= _SHORT
        return short and not (self.ragged or self.int4 or self.epilogue.is_sum or self.groups % 2)

    @property
    def size(self) -> int:
        return self.epilogue.size

    @property
    def pixel_bytes(self) -> int:
        return self.outputs * self.epilogue.output_size

    @property
    def routine(self) -> Routine:
        return _MatrixWriter.routine(self)

    def runs(self, calls: int, pairs: int) -> Runs:
        return self.routine.runs(pairs=pairs / calls) * calls


# by the bytes of an input: loads of inputs, loads of weights and how far they step, types of products; by
# those of an output: stores
LOADS = {1: "vldrb.u8", 2: "vldrh.u16"}
WEIGHTS = {1: ("vldrw.u32", "#16"), 2: ("vldrb.s16", "#8")}
PRODUCTS = {1: "s8", 2: "s16"}
STORES = {1: "vstrb{}.32", 2: "vstrh{}.32", 4: "vstrw{}.32"}
_STORES_OF_HALVES = {1: "vstrb.16", 2: "vstrh.16"}


class _MatrixWriter(Writer):
    """Writes ``row(weights, y, x, end)``, which computes the pixels of a row until their outputs reach
    ``end``.

    ``x`` is the address of the inputs, or a list of several.
    """

    def __init__(self, m: MicroRow) -> None:
        self.m = m
        walking = m.rounds > 0
        self.f = f = Function(
            "row",
            "const uint32_t *weights",
            "void *y",
            "const void *x",
            "const void *end",
            no_alias=True,
            purpose="Pixels of a row up to `end`, two by two, each with four channels at a time.",
            keep=(0, 3),
            local=2 if walking else 0,
        )
        weights, y, x, end = f.arguments
        f.free(weights, end)
        self.y, self.weights = f.moved(y, "outputs", ODD), f.core("weights", ODD)
        self.pointers = self._pointers(x)
        self.left = f.core("channels left", ODD)
        self.rounds = f.core("rounds left", ODD) if walking else ""
        self.sums = f.cores("sums of the first pixel", 4, EVEN), f.cores("sums of the second pixel", 4, EVEN)
        self.sets = [self._vectors() for _ in range(m.at_once)]
        self.inputs, self.channels = self.sets[0]

    def _vectors(self) -> tuple[tuple[str, str], tuple[str, str]]:
        # Those of inputs, and those of channels.
        f = self.f
        inputs = f.vector("inputs of the first pixel"), f.vector("inputs of the second pixel")
        return inputs, (f.vector("weights, then constants"), f.vector("weights, then constants"))

    def _pointers(self, x: str) -> tuple[str, ...]:
        f, m = self.f, self.m
        if m.pointers == 1:
            first = f.moved(x, "inputs", ODD)
            if not m.second:
                return (first,)
            second = f.core("inputs", ODD)
            f.add(second, first, m.step)
            return first, second
        pointers = f.cores("inputs", m.pointers, ODD)
        f("ldrd", pointers[0], pointers[1], f"[{x}]")
        if m.pointers == 3:
            f("ldr", pointers[2], f"[{x}, #8]")
        f.free(x)
        return pointers

    def write(self) -> None:
        f, m = self.f, self.m
        self._places("strd")
        if not m.ragged:
            self._mask()
        with f.loop("two pixels", "pairs") as next_pixels:
            f("ldr", self.weights, f.kept[0])
            f.number(self.left, m.outputs)
            with f.loop("channels", m.groups // m.at_once) as next_channels:
                if m.ragged:
                    self._mask()
                if m.at_once == 1:
                    self._multiply()
                    self._store()
                else:
                    self._two_groups()
                self._places("ldrd")
                f("subs", self.left, self.left, f"#{_CHANNELS * m.at_once}")
                f("bgt", next_channels)
            for pointer in self.pointers:
                f.advance(pointer, 2 * m.step, spare=self.sums[0][0])
            self._places("strd")
            past = _CHANNELS * m.epilogue.output_size * m.groups
            f.advance(self.y, 2 * m.pixel_bytes - past, spare=self.sums[0][0])
            f("ldr", self.left, f.kept[3])
            f("cmp", self.y, self.left)
            f("bne", next_pixels)

    def _places(self, operation: str) -> None:
        # Pointers that walk over the inputs are kept where the pixels begin.
        if self.m.rounds:
            self.f(operation, *self.pointers, "[sp]")

    def _mask(self) -> None:
        if self.m.tail:
            spare = self.sums[0][0]
            self.f.number(spare, self.m.tail)
            self.f("vctp.8", spare)

    def _multiply(self) -> None:
        m = self.m
        for number, load in enumerate(m.head):
            self._vector(load, not number, m.tail > 0 and not number)
        if m.rounds:
            with self.f.counted_loop("inputs", self.rounds, m.rounds):
                for _ in range(m.unroll):
                    self._vector(_walk(m.size), False, False)

    def _vector(self, load: Load, first: bool, masked: bool) -> None:
        # A vector of inputs of two pixels times those of four channels.
        f, m = self.f, self.m
        here = self.pointers[load.pointer]
        there = self.pointers[1] if m.second else here
        if load.walk:
            places = f"[{here}], #{load.walk}", f"[{there}], #{load.walk}"
        else:
            places = f"[{here}, #{load.offset}]", f"[{there}, #{load.offset + load.ahead}]"
        operation = load.operation.replace(".", "t.") if masked else load.operation
        even, odd = self.channels
        if masked:
            f("vpstt")
        f(operation, self.inputs[0], places[0])
        if masked:
            f(operation, self.inputs[1], places[1])
        weigh, far = WEIGHTS[m.size]
        f(weigh, even, f"[{self.weights}], {far}")
        if not masked:
            f(operation, self.inputs[1], places[1])
        if m.int4:
            unpack(f, even, odd)
            self._channel(0, odd, first)
            self._channel(1, even, first)
            f(weigh, even, f"[{self.weights}], {far}")
            unpack(f, even, odd)
            self._channel(2, odd, first)
            self._channel(3, even, first)
            return
        f(weigh, odd, f"[{self.weights}], {far}")
        self._channel(0, even, first)
        f(weigh, even, f"[{self.weights}], {far}")
        self._channel(1, odd, first)
        f(weigh, odd, f"[{self.weights}], {far}")
        self._channel(2, even, first)
        self._channel(3, odd, first)

    def _channel(self, channel: int, weights: str, first: bool) -> None:
        for sums, inputs in zip(self.sums, self.inputs, strict=True):
            operation = f"{'vmladav' if first else 'vmladava'}.{PRODUCTS[self.m.size]}"
            self.f(operation, sums[channel], inputs, weights)

    def _two_groups(self) -> None:
        # Eight channels of both pixels; the first group has the even ones.
        f, m, spare = self.f, self.m, self.sums[0][0]
        outputs, above = self.inputs, None
        for inputs, channels in self.sets:
            self.inputs, self.channels = inputs, channels
            self._multiply()
            self._gather()
            constants = (*self.channels, spare)
            epilogue_halves(f, m.epilogue, self.inputs, self.weights, constants, above=above)
            above = outputs
        epilogue_bytes(f, m.epilogue, outputs, (*self.channels, spare))
        self._to_memory(_STORES_OF_HALVES[m.size], outputs, 2 * _CHANNELS)

    def _gather(self) -> None:
        # The sums of four channels of both pixels to vectors.
        for q, sums in zip(self.inputs, self.sums, strict=True):
            if self.m.int4:
                sixteenths(self.f, sums)
            gather_sums(self.f, q, sums)

    def _store(self) -> None:
        # Four channels of both pixels from their sums to memory.
        m = self.m
        self._gather()
        epilogue_words(self.f, m.epilogue, self.inputs, self.weights, (*self.channels, self.sums[0][0]))
        store = STORES[m.epilogue.output_size]
        self._to_memory(store.format("t" if m.ragged else ""), self.inputs, _CHANNELS)

    def _to_memory(self, store: str, outputs: tuple[str, str], channels: int) -> None:
        f, m, spare = self.f, self.m, self.sums[0][0]
        far = m.outputs > _FAR_BYTE
        if far:
            f.add(spare, self.y, m.pixel_bytes)
        if m.ragged:
            f("vctp.32", self.left)
            f("vpstt")
        f(store, outputs[1], f"[{spare}]" if far else f"[{self.y}, #{m.pixel_bytes}]")
        f(store, outputs[0], f"[{self.y}], #{channels * m.epilogue.output_size}")


def _walk(size: int) -> Load:
    return Load(LOADS[size], 0, walk=LANES)


def gather_sums(f: Function, vector: str, sums: Sequence[str]) -> None:
    """Append moves of four core registers to the words of a vector."""
    f("vmov", f"{vector}[2]", f"{vector}[0]", sums[0], sums[2])
    f("vmov", f"{vector}[3]", f"{vector}[1]", sums[1], sums[3])


def micro(
    runs: Sequence[Run],
    step: int,
    outputs: int,
    requant: Requantisation,
    aligned: bool,
    most: int,
    masked: bool,
) -> MicroRow | None:
    """Return the micro-kernel for the inputs of ``runs``; None if no addressing mode reaches all of them.

    ``aligned``: the pointers are multiples of 4. At most ``most`` vectors are unrolled. ``masked``: bytes
    after the end of the only run must not be read.
    """
    epilogue, int4 = requant.epilogue, requant.int4
    size = epilogue.size
    tail = runs[0].length % LANES if masked else 0
    vectors = sum(len(r.cuts()) for r in runs)
    if vectors <= most:
        indexed = _indexed(runs, step, outputs, requant, aligned, tail)
        if indexed is not None:
            return indexed
    if len(runs) > 1:
        return None
    unroll = max(1, min(most, vectors) // 2) if vectors > most else 1
    head = vectors % unroll or unroll
    loads = (Load(LOADS[size], 0, walk=tail or LANES), *(_walk(size),) * (head - 1))
    rounds = (vectors - head) // unroll
    return MicroRow(outputs, step, 1, True, loads, rounds, unroll, tail, epilogue, int4)


def _indexed(
    runs: Sequence[Run], step: int, outputs: int, requant: Requantisation, aligned: bool, tail: int
) -> MicroRow | None:
    # All vectors written out, at fixed offsets from the pointers.
    epilogue = requant.epilogue
    count = max(r.pointer for r in runs) + 1
    if count > _POINTERS:
        return None
    cuts = [(0, c) for c in contiguous(runs[0].length)] if tail else _cuts(runs)
    furthest, load, far = max(cut.start for _, cut in cuts), LOADS[epilogue.size], _FAR_BYTE * epilogue.size
    for second in (False, True) if count == 1 else (False,):
        ahead = 0 if second else step
        word = aligned and all((cut.start | ahead) % 4 == 0 for _, cut in cuts)
        if furthest + ahead > (_FAR_WORD if word else far) or (tail and ahead > far):
            continue
        operations = ["vldrw.u32" if word else load] * len(cuts)
        operations[0] = load if tail else operations[0]
        head = tuple(
            Load(operation, pointer, cut.start, ahead)
            for operation, (pointer, cut) in zip(operations, cuts, strict=True)
        )
        return MicroRow(outputs, step, count, second, head, 0, 0, tail, epilogue, requant.int4)
    return None


def _cuts(runs: Sequence[Run]) -> list[tuple[int, StreamCut]]:
    return [(r.pointer, cut) for r in runs for cut in r.cuts()]
