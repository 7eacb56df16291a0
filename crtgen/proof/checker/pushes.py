"""Calls of a pipeline's functions, on samples that are symbols, and what is known of memory between them."""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from crtgen.proof.checker.algebra.value import (
    M32,
    STACK_TOP,
    Byte,
    LinearSum,
    Symbol,
    Word,
    WordByte,
    place_of,
    unknown,
)
from crtgen.proof.checker.algebra.words import add, bytes_of, is_same
from crtgen.proof.checker.binary.image import DecodedImage, image_bytes
from crtgen.proof.checker.core.copies import LibraryCopies
from crtgen.proof.checker.core.layout import allow, variables
from crtgen.proof.checker.core.machine import Machine
from crtgen.proof.checker.core.memory import Content
from crtgen.proof.checker.core.ranged import RangedMachine
from crtgen.proof.checker.network.file import ElementType, ModelFile
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.surroundings.places import BOTH, InlinedNetwork, places

__all__ = ["EVENT", "NOTHING", "Known", "PipelineCalls", "SampleStream", "State", "known_of", "times"]

Known: TypeAlias = tuple[int | Symbol | None, ...]
"""Bytes of a word: numbers, bytes of samples, and None if nothing is known."""
State: TypeAlias = dict[int, Known]
"""Contents of memory, by address / 4."""

EVENT, _SAMPLES, _PROGRESS = 0xC0000000, 0xC1000000, 0xC2000000
"""Addresses of an application's memory, and of what stand-ins note, which no image uses."""
NOTHING: Known = (None,) * 4
_CHANGED = (1, 2, 3, 12, 14)
"""Registers that a callee may change."""
_LONGEST = 5_000_000
_SAMPLE = -2
"""Tensor of the symbols that are bytes of samples."""


class SampleStream(NamedTuple):
    """Windows of a signal: ``span`` samples each, ``hop`` samples apart, after ``before`` zeros; the first
    ``skip`` samples are dropped.

    ``size`` is the bytes of a sample, ``event`` those of the struct for events. ``reports``: nothing decides,
    so each run is an event. ``outputs`` are the elements of each output, and their bits.
    """

    name: str
    span: int
    hop: int
    before: int
    skip: int
    size: int
    event: int
    reports: bool
    outputs: tuple[tuple[int, int], ...]


class _StreamEnds(ModelFile):
    # The input and the outputs of what is not followed, as elements of a size.

    def __init__(self, stream: SampleStream) -> None:
        element = next(n for n in (4, 2, 1) if stream.size % n == 0)
        given = stream.span * stream.size // element, 8 * element
        self.inputs, self.outputs = [0], [*range(1, 1 + len(stream.outputs))]
        self.elements = [given, *stream.outputs]

    def size(self, tensor: int) -> int:
        return self.elements[tensor][0]

    def kind(self, tensor: int) -> ElementType:
        bits = self.elements[tensor][1]
        return ElementType(bits, -1 << bits - 1, (1 << bits - 1) - 1)


class StreamNetwork(Network):
    # The inputs and outputs of a pipeline's run; nothing is known of what it computes.

    def __init__(self, stream: SampleStream) -> None:
        self.file = _StreamEnds(stream)
        kind = self.file.kind(0)
        self.fed = {0: [Symbol(0, i, kind.low, kind.high, kind.bits) for i in range(self.file.size(0))]}


class PipelineCalls:
    """Calls on a signal of which ``count`` samples have names, by their positions in the first window.

    While a window is being filled, ``fill`` is its number of samples, which may be a symbol. The places of
    new samples are unknown then, and nothing else may be written there. They get their names when it is full.
    """

    def __init__(self, image: DecodedImage, stream: SampleStream, count: int) -> None:
        self.image, self.stream, self.name = image, stream, stream.name
        self.machine = RangedMachine(image, _LONGEST)
        self.memory = self.machine.memory
        self.memory.sizes = frozenset()
        allow(self.machine, self.name)
        self.memory.allow(EVENT, EVENT + stream.event)
        self.memory.allow(_PROGRESS, _PROGRESS + 16)
        own = [symbol for symbol in ("pipeline", "samples_beside") if symbol in image.symbols]
        for symbol in own:
            self.memory.allow(*image.span(symbol))
        arena = image.arenas(self.name).values()
        self.own = _words(image.span(symbol) for symbol in own)
        self.networks = _words((*arena, *variables(image, self.name))) - self.own
        """Words that the network may write."""
        shared = "crt_shared_arena" in image.symbols
        self.lasting = self.own | (self.networks - _words(arena) if shared else self.networks)
        """Words that calls leave for each other: another model may use a shared arena between them."""
        self.input, self.output = self._ends()
        self.samples = [Symbol(_SAMPLE, i, -128, 127) for i in range(count * stream.size)]
        self.copies = LibraryCopies(self.machine, self._take)
        self.place: int | None = None
        """Address of a window's first sample, once a sample was taken."""
        self.kept = self.silent = 0
        """Samples of the first window of a call that are there at its start, and how many of these are 0."""
        self._unknown = dict[int, list[Byte]]()
        self._stand_in()

    def _ends(self) -> tuple[int | None, int]:
        # The addresses of the input and of the first output; None if a compiler put the network into the
        # function that gets the application's.
        network = StreamNetwork(self.stream)
        try:
            if f"{self.name}_compute" not in self.image.symbols:
                raise InlinedNetwork(f"the image has no {self.name}_compute")
            given, made = (places(self.image, network, self.name, which)[0] for which in BOTH)
        except InlinedNetwork:
            first, _ = self.image.span(f"{self.name}_output_places")
            return None, int.from_bytes(image_bytes(self.image, first, 4), "little")
        return given, made

    # ---- what stand-ins note: in memory, so it is unknown if it differs on two ways of a branch

    def note(self, *words: Word) -> None:
        for n, word in enumerate(words):
            self.memory.store(_PROGRESS + 4 * n, word)

    @property
    def fill(self) -> Word:
        # Samples in the window.
        return self.memory.load(_PROGRESS)

    @property
    def used(self) -> Word:
        # Samples of the call that were taken.
        return self.memory.load(_PROGRESS + 4)

    @property
    def runs(self) -> int:
        # Runs of the network in the call.
        return self._noted(2)

    def _noted(self, n: int) -> int:
        found = self.memory.load(_PROGRESS + 4 * n)
        if not isinstance(found, int):
            raise Refusal("what is done with samples depends on an output")
        return found

    # ---- samples

    def cells(self) -> range:
        # Return the addresses of the new samples in the window.
        size, place = self.stream.size, self.place or 0
        kept = self.stream.span - self.stream.hop if self.runs else self.kept
        return range(place + kept * size, place + self.stream.span * size)

    def empty(self) -> None:
        # Make the places of new samples unknown, each time something else.
        self.memory.store(_PROGRESS + 12, self._noted(3) + 1)
        for at, byte in zip(self.cells(), self._free(), strict=True):
            self.memory.store_byte(at, byte)

    def check_free(self) -> None:
        # Check that only the application's samples were written to their places since they were unknown.
        if any(self.memory.byte(at) is not b for at, b in zip(self.cells(), self._free(), strict=True)):
            raise Refusal("something else is written among the samples of the window")

    def _free(self) -> list[Byte]:
        # What is at the places of new samples, the same for the same number of times.
        found = self._unknown.setdefault(self._noted(3), [])
        found += [WordByte(unknown(), 0) for _ in range(len(self.cells()) - len(found))]
        return found[: len(self.cells())]

    def _take(self, to: Word, source: Word, size: Word) -> bool:
        # A copy of the application's next samples to the end of those in the window.
        if not is_same(source, add(_SAMPLES, times(self.stream.size, self.used))):
            return False
        count = _quotient(size, self.stream.size)
        if self.place is None:
            self.place = place_of(add(to, times(self.stream.size, self.fill), -1))
        if self.place is None or not is_same(to, add(self.place, times(self.stream.size, self.fill))):
            raise Refusal("samples are not copied to the end of those in the window")
        fill = add(self.fill, count)
        if least(count) < 1 or most(fill) > self.stream.span:
            raise Refusal("samples are copied beyond the window")
        if not _is_at(self.cells().start, self.place, self.stream.size, self.fill):
            self.check_free()
        self.empty()
        self.note(fill, add(self.used, count))
        if least(fill) == self.stream.span:
            self.check_free()
            first = self.runs * self.stream.hop * self.stream.size + self.cells().start - self.place
            names = self.samples[first:]
            for at, symbol in zip(self.cells(), names, strict=False):
                self.memory.store_byte(at, symbol)
        return True

    # ---- the network

    def _stand_in(self) -> None:
        symbols, instead, at = self.image.symbols, self.machine.instead, self.input
        if at is not None:
            instead[symbols[f"{self.name}_compute"]] = lambda machine: self._computed(at)
        else:
            instead[symbols[f"{self.name}_run"]] = self._ran

    def _ran(self, machine: Machine) -> None:
        inputs, outputs = (machine.memory.load(machine.r[n]) for n in (0, 1))
        if not isinstance(inputs, int) or not is_same(outputs, self.output):
            raise Refusal(f"{self.name}_run is called with other places than the model's")
        self._computed(inputs)

    def _computed(self, at: int) -> None:
        # Replaces the call of the network: its input must be the window; afterwards its memory is unknown.
        stream = self.stream
        size, first = stream.span * stream.size, self.runs * stream.hop * stream.size
        silent = max(self.silent - self.runs * stream.hop, 0) * stream.size
        wanted = [0] * silent + self.samples[first + silent : first + size]
        for i, (byte, symbol) in enumerate(
            zip((self.memory.byte(at + i) for i in range(size)), wanted, strict=True)
        ):
            if byte is not symbol and not (byte == 0 and symbol == 0):
                which = f"sample {i // stream.size + 1} of {stream.span}"
                raise Refusal(f"{which} in the network's window is not the signal's")
        self.note(stream.span - stream.hop, self.used, self.runs + 1)
        for i in self.networks.intersection(self.memory.words):
            self.memory.drop(i)
        self.machine.spoil(_CHANGED, 0)
        for q in self.machine.q[:4]:
            q[:] = [unknown() for _ in q]
        self.machine.r[0] = 0

    # ---- calls

    def call(self, function: str, *arguments: Word) -> None:
        # Call ``<model>_<function>``, with registers unknown.
        machine = self.machine
        machine.count = 0
        machine.r[:13] = [*arguments, *(unknown() for _ in range(13 - len(arguments)))]
        machine.forget_flags()
        for q in machine.q:
            q[:] = [unknown() for _ in q]
        machine.run(self.image.symbols[f"{self.name}_{function}"], STACK_TOP)

    def push(self, kept: int, k: Word, count: Word) -> None:
        # Push samples to a window that has ``kept`` from before, and ``k`` new ones.
        for i in _words([(EVENT, EVENT + self.stream.event)]):
            self.memory.words.pop(i, None)
        self.kept = kept
        self.note(add(kept, k), 0, 0, 0)
        if k != 0:
            self.empty()
        self.call("push", _SAMPLES, count, EVENT)
        if not is_same(self.used, count):
            raise Refusal("not all samples of the call are taken")
        if not _is_at(self.cells().start, self.place or 0, self.stream.size, self.fill):
            self.check_free()

    # ---- memory

    def set(self, state: State) -> None:
        for i in self.own | self.networks:
            self.memory.words.pop(i, None)
        for i, known in state.items():
            self.memory.words[i] = _content(known)

    def state(self) -> State:
        known = {i: self.known(i) for i in self.lasting}
        return {i: k for i, k in known.items() if k != NOTHING}

    def known(self, i: int) -> Known:
        return known_of(self.memory.words.get(i))


def known_of(word: Content | None) -> Known:
    if word is None:
        return NOTHING
    parts = word if isinstance(word, list) else bytes_of(word)
    return tuple(map(_known, parts))


def _known(byte: Byte) -> int | Symbol | None:
    if isinstance(byte, Symbol):
        return byte if byte.tensor == _SAMPLE else None
    return byte if isinstance(byte, int) else None


def times(factor: int, word: Word) -> Word:
    # Return the product of a small integer and a word that is a number or a sum.
    if isinstance(word, int):
        return factor * word & M32
    if not isinstance(word, LinearSum):
        raise Refusal("a number of samples that depends on an output")
    return LinearSum(factor * word.constant, {symbol: factor * k for symbol, k in word.terms().items()})


def _quotient(size: Word, by: int) -> Word:
    # A number of samples, from that of their bytes.
    if isinstance(size, int) and size % by == 0:
        return size // by
    terms = size.terms() if isinstance(size, LinearSum) else {}
    if not terms or any(k % by for k in (size.constant, *terms.values())):  # type: ignore[union-attr]
        raise Refusal("a copy of no whole samples")
    return LinearSum(size.constant // by, {symbol: k // by for symbol, k in terms.items()})  # type: ignore[union-attr]


def _is_at(address: int, place: int, size: int, fill: Word) -> bool:
    return is_same(add(place, times(size, fill)), address)


def least(word: Word) -> int:
    return word if isinstance(word, int) else word.bounds()[0]  # type: ignore[union-attr]


def most(word: Word) -> int:
    return word if isinstance(word, int) else word.bounds()[1]  # type: ignore[union-attr]


def _content(known: Known) -> Content:
    numbers = [b for b in known if isinstance(b, int)]
    if len(numbers) == 4:
        return int.from_bytes(bytes(numbers), "little")
    return [WordByte(unknown(), 0) if b is None else b for b in known]


def _words(spans: Iterable[tuple[int, int]]) -> set[int]:
    return {i for first, end in spans for i in range(first >> 2, end + 3 >> 2)}
