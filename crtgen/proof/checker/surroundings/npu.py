"""Calls of an NPU: identifies the tensors that they compute, by crtgen's model of the NPU.

The problem. An NPU may compute a part of the network. Its command stream is not code of the core, so it
cannot be run on symbols, and the image does not say which layers it replaces.

The idea. The NPU's model (``crtgen.npu``) runs the stream on integers: the values that the symbols in its
regions have for a few random inputs of the network. The bytes that it writes are compared with all tensors of
the network for the same inputs. The last tensor that is equal in every byte, and that depends only on data
the NPU was given, is its result: the symbols of that tensor are stored at the output's address. From there on
the code of the core is followed as usual.

Example: the NPU is called with the 8 bytes of the input, and has 10 bytes for its output. For the first input
the model gives -3, 17, ...; layer 5 gives the same, also for the second input. The 10 bytes become the
symbols of layer 5, and layers 0 to 5 are trusted.

This proves nothing about the layers in between: a stream that is wrong for one input in a thousand passes. So
they are listed as trusted, and the verdict names them. It does detect a stream that belongs to another
network or is truncated, exchanged regions, and any fault in the code that the core runs before and after. The
driver (``crt_npu_run`` and the functions that it calls) is trusted, too, and so is the assumption that the
NPU reports no error; the driver's stack is the sum of what its functions reserve.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crtgen.base.errors import CrtgenError
from crtgen.npu.config import config_of_word
from crtgen.npu.model import Npu
from crtgen.proof.checker.algebra.value import M32, Byte, LinearSum, Symbol, WordByte, unknown
from crtgen.proof.checker.algebra.words import add
from crtgen.proof.checker.binary.image import DecodedImage, DecodedInstruction
from crtgen.proof.checker.core.machine import Machine
from crtgen.proof.checker.core.memory import WordMemory
from crtgen.proof.checker.network.layer import Value
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.network.numbers import Samples
from crtgen.proof.checker.refusal import Refusal

__all__ = ["DRIVER", "NpuCalls", "TrustedCall", "driver_stack"]

DRIVER = "crt_npu_run"

_SAMPLES = 2
_REGIONS, _SCRATCH = 8, 1
_ALIGN = 16
_MOST_BYTES = 1 << 26
# r1 to r3, r12 and LR, which a callee may change; r0 is the status.
_CHANGED = (1, 2, 3, 12, 14)


@dataclass(frozen=True, slots=True)
class TrustedCall:
    """A call of the NPU: ``layers`` are the indices of the layers that it was found to compute.

    ``samples`` is the number of random inputs for which crtgen's model gave the network's values.
    """

    npu: str
    layers: tuple[int, ...]
    operators: tuple[str, ...]
    samples: int
    stream_sha256: str


@dataclass(frozen=True, slots=True)
class _JobRegion:
    number: int
    first: int
    size: int
    is_written: bool
    is_scratch: bool

    @property
    def end(self) -> int:
        return self.first + self.size


class NpuCalls:
    def __init__(self, network: Network, apart: tuple[int, int]) -> None:
        """Prepare to follow calls; ``apart`` is the start and end of scratch memory outside the arena."""
        self.network = network
        self.apart = apart
        self.made: list[TrustedCall] = []

    def call(self, m: Machine) -> None:
        """Execute ``crt_npu_run`` for the job at r0: its outputs become symbols, its scratch becomes
        unknown.
        """
        if m.memory.undo:
            raise Refusal("a call of the NPU in a branch that depends on an input")
        stream, config, regions = _job(m, self.apart)
        read = {r.number: _contents(m.memory, r) for r in regions if not r.is_written}
        given = frozenset(s for part in read.values() for byte in part if (s := _symbol(byte)))
        tensors: dict[int, int] = {}
        try:
            npu = config_of_word(config).name
            if not self.network.uncompared:
                tensors = dict(self._outputs(stream, config, regions, read, given))
        except CrtgenError as error:
            raise Refusal(f"crtgen's model of the NPU refuses the call: {error}") from None
        layers = self._store(m.memory, regions, tensors, given)
        names = {layer.number: layer.name for layer in self.network.layers}
        self.made.append(
            TrustedCall(
                npu,
                tuple(layers),
                tuple(names[n] for n in layers),
                0 if self.network.uncompared else _SAMPLES,
                hashlib.sha256(stream).hexdigest(),
            )
        )
        m.r[0] = 0
        m.q[:4] = [[unknown() for _ in range(4)] for _ in range(4)]
        m.spoil(_CHANGED, driver_stack(m.image) // 4)

    # ---- which tensors the model gives

    def _outputs(
        self,
        stream: bytes,
        config: int,
        regions: Sequence[_JobRegion],
        read: Mapping[int, Sequence[Byte]],
        given: frozenset[Symbol],
    ) -> Iterator[tuple[int, int]]:
        # The tensor in each region that the NPU writes, but for its scratch.
        results = [
            _executed(stream, config, regions, self._numbers(read, sample)) for sample in range(_SAMPLES)
        ]
        for region in regions:
            if region.is_written and not region.is_scratch:
                wanted = tuple(result[region.number].tobytes() for result in results)
                yield region.number, self._tensor(region, wanted, given, _unknown(read))

    def _numbers(self, contents: Mapping[int, Sequence[Byte]], sample: int) -> dict[int, NDArray[np.uint8]]:
        # The bytes of regions for a sample. Those of which nothing is known are different each time.
        known, places = self._samples.numbers[sample], self._samples.places
        found = {}
        for number, part in contents.items():
            data = np.random.default_rng(sample).integers(0, 256, len(part)).astype(np.uint8)
            for i, byte in enumerate(part):
                if isinstance(byte, int):
                    data[i] = byte
                elif symbol := _symbol(byte):
                    at = byte.index if isinstance(byte, WordByte) else 0
                    data[i] = int(known[places[symbol]]) >> 8 * at & 255
            found[number] = data
        return found

    def _tensor(
        self, region: _JobRegion, wanted: Sequence[bytes], given: frozenset[Symbol], unknown_bytes: int
    ) -> int:
        for tensor, data in reversed(self._tensors.items()):
            if data == wanted and self.network.made_from(self.network.values(tensor), given) is not None:
                return tensor
        reads = f"; of the bytes that it reads, {unknown_bytes:,} are no output of a layer" * bool(
            unknown_bytes
        )
        raise Refusal(
            f"crtgen's model of the NPU gives {region.size:,} bytes at {region.first:#x} that are no tensor "
            f"of the network, on {_SAMPLES} inputs{reads}"
        )

    @cached_property
    def _samples(self) -> Samples:
        return Samples(self.network, _SAMPLES)

    @cached_property
    def _tensors(self) -> dict[int, tuple[bytes, ...]]:
        # The bytes of each tensor that a layer makes, for each sample.
        found = {}
        for layer in self.network.layers:
            for tensor in layer.operator.outputs:
                kind = self.network.file.kind(tensor)
                form = np.dtype(f"<i{kind.bits // 8}")
                numbers = self._samples.of(self.network.values(tensor))
                found[tensor] = tuple(of.astype(form).tobytes() for of in numbers)
        return found

    # ---- what it leaves in memory

    def _store(
        self,
        memory: WordMemory,
        regions: Sequence[_JobRegion],
        tensors: Mapping[int, int],
        given: frozenset[Symbol],
    ) -> list[int]:
        # Store what the NPU made, and return the layers that did.
        layers: set[int] = set()
        for region in regions:
            if not region.is_written:
                continue
            memory.forget(region.first, region.end)
            if region.number in tensors:
                values = self.network.values(tensors[region.number])
                _put(memory, region.first, values, self.network.file.kind(tensors[region.number]).bits)
                made = self.network.made_from(values, given) or {}
                self.network.trust(made)
                layers |= made.keys()
        return sorted(layers)


def _contents(memory: WordMemory, region: _JobRegion) -> list[Byte]:
    # The NPU reads multiples of 16 bytes: the last ones may be behind the arena, where anything may be.
    found: list[Byte] = []
    for i in range(region.size):
        try:
            found.append(memory.byte(region.first + i))
        except Refusal:
            if i <= region.size - _ALIGN:
                raise
            found.append(WordByte(unknown(), 0))
    return found


def _unknown(read: Mapping[int, Sequence[Byte]]) -> int:
    return sum(not isinstance(byte, int) and _symbol(byte) is None for part in read.values() for byte in part)


def _symbol(byte: Byte) -> Symbol | None:
    # The symbol of a tensor that a byte belongs to; None if it is a number, or nothing that is known.
    if isinstance(byte, Symbol):
        return byte
    if isinstance(byte, int) or not isinstance(byte.word, LinearSum) or byte.word.constant:
        return None
    terms = byte.word.terms()
    symbol = next(iter(terms), None)
    return symbol if list(terms.values()) == [1] else None


def _put(memory: WordMemory, first: int, values: Sequence[Value], bits: int) -> None:
    store = {8: memory.store_low_byte, 16: memory.store_half, 32: memory.store}[bits]
    for i, value in enumerate(values):
        store(first + i * bits // 8, value & M32 if isinstance(value, int) else value.word)


def _executed(
    stream: bytes, config: int, regions: Sequence[_JobRegion], given: Mapping[int, NDArray[np.uint8]]
) -> dict[int, NDArray[np.uint8]]:
    # All regions after the stream, by the model.
    memory = {r.number: np.zeros(r.size, np.uint8) if r.is_written else given[r.number] for r in regions}
    constant = frozenset(r.number for r in regions if not r.is_written)
    Npu(config_of_word(config), memory, constant).run(stream)
    return memory


def _job(m: Machine, apart: tuple[int, int]) -> tuple[bytes, int, list[_JobRegion]]:
    # Stream, configuration and regions of a ``struct crt_npu_job``.
    words = []
    for i in range(4 + 2 * _REGIONS):
        word = m.memory.load(add(m.r[0], 4 * i))
        if not isinstance(word, int):
            raise Refusal("a job of the NPU that depends on an input, or that nothing wrote")
        words.append(word)
    start, size, config, written = words[:4]
    regions = [
        _JobRegion(
            i,
            base,
            size,
            bool(written >> i & 1),
            i == _SCRATCH or (apart[0] <= base and base + size <= apart[1]),
        )
        for i, (base, size) in enumerate(zip(words[4::2], words[5::2], strict=True))
        if size
    ]
    if size + sum(region.size for region in regions) > _MOST_BYTES:
        raise Refusal("a job of the NPU that is larger than the memory of any board")
    for one in regions:
        for other in regions:
            if one is not other and one.is_written and one.first < other.end and other.first < one.end:
                raise Refusal(
                    f"regions {one.number} and {other.number} of the NPU overlap, and one is written"
                )
    stream = [m.memory.byte(start + i) for i in range(size)]
    if not all(isinstance(byte, int) for byte in stream):
        raise Refusal("the NPU's command stream is not constant")
    return bytes(byte for byte in stream if isinstance(byte, int)), config, regions


# ---- the driver's stack


def driver_stack(image: DecodedImage) -> int:
    """Return an upper bound of the bytes of stack that the NPU's driver and the functions it calls reserve.

    Calls by pointer are left out: the driver has one, for simulators without an NPU.
    """
    first = image.symbols[DRIVER]
    spans = {start: end for start, end, _ in image.functions}
    return _deepest(image, spans, first, ())


def _deepest(image: DecodedImage, spans: Mapping[int, int], first: int, above: tuple[int, ...]) -> int:
    if first in above:
        raise Refusal("the NPU's driver calls itself")
    body = [image.instructions[at] for at in range(first, spans[first], 2) if at in image.instructions]
    called = {to for i in body if (to := _target(i)) in spans and to != first}
    return sum(map(_reserved, body)) + max(
        (_deepest(image, spans, to, (*above, first)) for to in called), default=0
    )


def _target(instruction: DecodedInstruction) -> int:
    # The address that an instruction branches to, or -1.
    last = instruction.operands[-1] if instruction.operands else ""
    return int(last, 16) if instruction.name[0] in "bc" and re.fullmatch("[0-9a-f]+", last) else -1


def _reserved(instruction: DecodedInstruction) -> int:
    # Bytes by which an instruction lowers SP.
    name, operands = instruction.name, instruction.operands
    if name in ("push", "vpush"):
        return _registers(operands[-1])
    if name in ("stmdb", "vstmdb") and operands[0] == "sp!":
        return _registers(operands[-1])
    if operands[:1] == ("sp",) and name in ("sub", "subw"):
        return int(operands[-1].removeprefix("#"))
    found = re.fullmatch(r"\[sp, #-(\d+)\]!", operands[-1]) if operands and name.startswith("str") else None
    if found:
        return int(found[1])
    if operands[:1] == ("sp",) and name not in ("add", "adds", "addw", "cmp", "ldm", "ldmia"):
        raise Refusal(f"the stack of the NPU's driver is not known: {instruction.text}")
    return 0


def _registers(text: str) -> int:
    # Bytes of a list of registers as ``{r4, r6-r8, lr}``.
    total = 0
    for part in text.strip("{} ").split(","):
        first, _, last = (word.strip() for word in part.partition("-"))
        count = int(last[1:]) - int(first[1:]) + 1 if last else 1
        total += count * (8 if first[0] == "d" else 4)
    return total
