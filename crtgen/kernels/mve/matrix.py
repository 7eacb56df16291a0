"""The Helium micro-kernel of convolutions: two pixels times four channels, sixteen inputs at a time.

VMLADAVA multiplies 16 pairs of bytes and adds them all to one core register: eight even registers are the
accumulators, six vectors loaded serve eight of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtgen.kernels.kernel import Const
from crtgen.kernels.mve.finish import Finish, Requantisation
from crtgen.ops.fixedpoint import Int64

__all__ = ["Cut", "Load", "Micro", "Run", "contiguous", "micro", "stream_const"]

LANES = 16
_CHANNELS = 4
_POINTERS = ("r1", "r3", "r11")
_FAR_WORD, _FAR_BYTE = 508, 127  # offsets of VLDRW and VLDRB
_FAR_ADD = 4095

Words = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Cut:
    """``length`` inputs from ``start`` on, which fill a vector or less."""

    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of inputs that lie in a row, for the pointer of this number."""

    pointer: int
    start: int
    length: int

    def cuts(self) -> list[Cut]:
        """Whole vectors, and the rest last."""
        ends = range(self.start, self.start + self.length, LANES)
        return [Cut(at, min(LANES, self.start + self.length - at)) for at in ends]


def contiguous(depth: int) -> list[Cut]:
    """``depth`` inputs with the odd vector first."""
    first = depth % LANES
    starts = ([(0, first)] if first else []) + [(at, LANES) for at in range(first, depth, LANES)]
    return [Cut(*s) for s in starts]


@dataclass(frozen=True, slots=True)
class Load:
    """How one vector of both pixels is loaded: an instruction and two addresses."""

    operation: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Micro:
    """The micro-kernel over the pixels of a row, two at a time.

    ``pointers`` are the registers that the row's pointers are in; ``step`` bytes lie between two pixels;
    ``second``: r3 points to the second one. The vectors of ``head`` are written out, then a loop runs
    ``rounds`` times over ``unroll`` more. ``tail`` bytes of the first vector count, if not 0.
    """

    outputs: int
    step: int
    pointers: tuple[str, ...]
    second: bool
    head: tuple[Load, ...]
    rounds: int
    unroll: int
    tail: int
    finish: Finish

    @property
    def walking(self) -> bool:
        return self.rounds > 0

    @property
    def body(self) -> tuple[Load, ...]:
        return (_WALK,) * self.unroll if self.walking else ()

    @property
    def ragged(self) -> bool:
        """Whether the last group has less than four channels."""
        return self.outputs % _CHANNELS != 0

    @property
    def groups(self) -> int:
        return -(-self.outputs // _CHANNELS)

    @property
    def advance(self) -> str:
        """From behind the first pixel's outputs, rounded up to whole groups, to the next two."""
        by = 2 * self.outputs - _CHANNELS * self.groups
        return f"sub r7, r7, #{-by}" if by < 0 else f"add r7, r7, #{by}"

    @property
    def frame(self) -> int:
        """Bytes of stack."""
        return 36 + 16

    @property
    def moving(self) -> tuple[str, ...]:
        """The registers that move on with the pixels."""
        return (*self.pointers, "r3") if self.second else self.pointers

    @property
    def far(self) -> bool:
        """Whether the second pixel's outputs need a pointer of their own."""
        return self.outputs > _FAR_BYTE

    @property
    def group_instructions(self) -> float:
        """For eight outputs."""
        vectors = len(self.head) + self.rounds * self.unroll
        loads = 14 * vectors + 2 * self.rounds + 3 * self.walking
        ragged = (3 if self.tail else 2) * self.ragged
        return loads + 4 + self.finish.instructions(2) + 4 + 3 * bool(self.tail) + ragged + self.far

    @property
    def instructions(self) -> float:
        """For two pixels."""
        return self.groups * self.group_instructions + 6 + len(self.pointers) * (3 if self.walking else 1)


_WALK = Load("vldrb.u8", "[r1], #16", "[r3], #16")


def micro(
    runs: Sequence[Run], step: int, outputs: int, finish: Finish, aligned: bool, most: int, masked: bool
) -> Micro | None:
    """The micro-kernel for the inputs of ``runs``; None if no addressing reaches them.

    ``aligned``: the pointers are multiples of 4. At most ``most`` vectors are written out. ``masked``: bytes
    behind the end of the only run must not be read.
    """
    if 2 * max(step, outputs) > _FAR_ADD:
        return None
    tail = runs[0].length % LANES if masked else 0
    vectors = sum(len(r.cuts()) for r in runs)
    if vectors <= most:
        indexed = _indexed(runs, step, outputs, finish, aligned, tail)
        if indexed is not None:
            return indexed
    if len(runs) > 1:
        return None
    unroll = max(1, min(most, vectors) // 2) if vectors > most else 1
    head = vectors % unroll or unroll
    first = Load("vldrb.u8", f"[r1], #{tail or LANES}", f"[r3], #{tail or LANES}")
    loads = (first, *(_WALK,) * (head - 1))
    rounds = (vectors - head) // unroll
    return Micro(outputs, step, ("r1",), True, loads, rounds, unroll, tail, finish)


def _indexed(
    runs: Sequence[Run], step: int, outputs: int, finish: Finish, aligned: bool, tail: int
) -> Micro | None:
    """All vectors written out, at fixed offsets from the pointers."""
    count = max(r.pointer for r in runs) + 1
    if count > len(_POINTERS):
        return None
    pointers = _POINTERS[:count]
    cuts = [(0, c) for c in contiguous(runs[0].length)] if tail else _cuts(runs)
    furthest = max(cut.start for _, cut in cuts)
    for second in (False, True) if count == 1 else (False,):
        ahead = 0 if second else step
        word = aligned and all((cut.start | ahead) % 4 == 0 for _, cut in cuts)
        if furthest + ahead > (_FAR_WORD if word else _FAR_BYTE) or (tail and ahead > _FAR_BYTE):
            continue
        operations = ["vldrw.u32" if word else "vldrb.u8"] * len(cuts)
        operations[0] = "vldrb.u8" if tail else operations[0]
        others = ("r3",) if second else pointers
        head = tuple(
            Load(o, f"[{pointers[p]}, #{c.start}]", f"[{others[p]}, #{c.start + ahead}]")
            for o, (p, c) in zip(operations, cuts, strict=True)
        )
        return Micro(outputs, step, pointers, second, head, 0, 0, tail, finish)
    return None


def _cuts(runs: Sequence[Run]) -> list[tuple[int, Cut]]:
    return [(r.pointer, cut) for r in runs for cut in r.cuts()]


_NO_HEADER = np.zeros(0, np.uint32)


def stream_const(
    weights: Int64,
    cuts: Sequence[Cut],
    requant: Requantisation,
    channels: int,
    note: str,
    header: Words = _NO_HEADER,
) -> Const:
    """``weights[O, K]`` as groups of so many channels: vectors of weights by cut, then constants by fours."""
    groups = -(-len(weights) // channels)
    words = groups * channels * (len(cuts) * LANES // 4 + len(requant.constants))

    def pack() -> Words:
        return np.concatenate([header, _pack_stream(weights, cuts, requant, channels)])

    return Const("weights", "uint32", (len(header) + words,), pack, 8, note)


def _pack_stream(weights: Int64, cuts: Sequence[Cut], requant: Requantisation, channels: int) -> Words:
    groups = -(-len(weights) // channels)
    padded = np.zeros((groups * channels, len(cuts), LANES), np.int8)
    for number, cut in enumerate(cuts):
        padded[: len(weights), number, : cut.length] = weights[:, cut.start : cut.start + cut.length]
    vectors = padded.reshape(groups, channels, len(cuts), LANES).transpose(0, 2, 1, 3)
    constants = np.zeros((len(requant.constants), groups * channels), np.int32)
    constants[:, : len(weights)] = requant.constants.astype(np.int32)
    fours = constants.reshape(len(constants), groups, channels // _CHANNELS, _CHANNELS).transpose(1, 2, 0, 3)
    bytes_ = [np.ascontiguousarray(a).reshape(groups, -1).view(np.uint8) for a in (vectors, fours)]
    return np.concatenate(bytes_, axis=1).reshape(-1).view(np.uint32)
