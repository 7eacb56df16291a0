"""A run of the network's function on symbols, with what its memory holds before and must hold after.

The inputs are symbols at their places. Each value that is stored is looked at by the ``Recogniser``, or, of
float32, by its error. At the end the symbols of the outputs must be at their places, and those of the next
states. ``SteppedRun`` does the same by one call for each layer.
"""

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from types import MappingProxyType

from crtgen.proof.checker.algebra.value import M32, LinearSum, Word, unknown
from crtgen.proof.checker.binary.image import DecodedImage
from crtgen.proof.checker.core.cycles import CoreTiming
from crtgen.proof.checker.core.layout import STACK_TOP, allow, kept_variables
from crtgen.proof.checker.core.machine import Machine
from crtgen.proof.checker.core.memory import Content
from crtgen.proof.checker.network.layer import Layer, Value
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.network.real_layers import RealNetwork
from crtgen.proof.checker.recognition.error import Bounds
from crtgen.proof.checker.recognition.recognise import Recogniser, source_of
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.surroundings.calls import Afterwards, ApplicationCall
from crtgen.proof.checker.surroundings.interrupts import Interrupts
from crtgen.proof.checker.surroundings.npu import DRIVER, NpuCalls
from crtgen.proof.checker.surroundings.places import outer_places, pass_structs, places
from crtgen.proof.checker.surroundings.reset import Reset
from crtgen.proof.checker.tools import checker_digest
from crtgen.proof.checker.verdict import LayerProof, Proof

__all__ = ["InlinedRun", "ProofRun", "SteppedRun"]

_MOST_INSTRUCTIONS = 400_000_000
_MOST_FORGOTTEN = 2000
# Limit for windows: layers span the seam between kept and new data.
_MOST_AT_SEAMS = 50_000


def _forgotten(word: Word, bits: int) -> Word:
    # A stored value that is not compared: anything.
    return unknown()


class ProofRun:
    """A run of the function; ``before`` holds the variables of a network with states, which are 0 after a
    start.

    Variables of a network without states may hold anything before each of its runs.
    """

    function = "compute"

    def __init__(
        self,
        image: DecodedImage,
        network: Network,
        name: str,
        timing: CoreTiming,
        before: Mapping[int, Content] = MappingProxyType({}),
        reach: float = 1.0,
    ) -> None:
        self.image, self.network, self.name, self.before = image, network, name, before
        self.machine = Machine(image, _MOST_INSTRUCTIONS, timing)
        self.machine.products = network.products
        self.npu = NpuCalls(network, image.arenas(name).get("npu", (0, 0)))
        if DRIVER in image.symbols:
            self.machine.instead[image.symbols[DRIVER]] = self.npu.call
        limit = _MOST_AT_SEAMS if network.slides else _MOST_FORGOTTEN
        self.recogniser = Recogniser(network, limit, self.machine.rename)
        self.stores: list[tuple[int, int, int]] = []
        self.found = self.bounded = 0
        self._found_places: dict[str, list[int]] = {}
        self.bounds = Bounds(network, reach) if isinstance(network, RealNetwork) else None

    def proof(self, start: float) -> Proof:
        stopped = ""
        try:
            allow(self.machine, self.name)
            self._run()
            self._check_output()
            self._count_bounded()
        except Refusal as refusal:
            stopped, self.found = str(refusal), 0
        m = self.machine
        return Proof(
            model=self.name,
            architecture=self.image.architecture,
            layers=tuple(self._layers()),
            outputs=sum(self.network.file.size(t) for t in self.network.results),
            outputs_proven=self.found,
            stopped=stopped,
            forgotten=self.recogniser.forgotten,
            first_reason=self.network.uncompared or self.recogniser.first_reason,
            instructions=(m.count - m.slack, m.count),
            varying=tuple(
                f"{cause} at {at:#x} in {self.image.function_of(at)}" for cause, at in m.varying.items()
            ),
            cycles=m.cycles,
            timing=m.timing,
            calls=tuple(self._calls()),
            stack=self._depth(),
            reset=Reset(stopped="the network was not followed"),
            interrupts=Interrupts(),
            seconds=time.process_time() - start,
            certificate=self._certificate(),
            runs=1,
            trusted=tuple(self.npu.made),
            error=None if self.bounds is None or stopped else self.bounds.result(self.bounded),
            application=ApplicationCall(),
            premises=tuple(self._premises()),
            stores=tuple(self.stores),
            network=self.network,
        )

    def _run(self) -> None:
        memory = self.machine.memory
        memory.recognise = self._recognised
        memory.sizes = frozenset(bits for layer in self.network.layers for bits in layer.stored_sizes)
        if self.bounds is not None and self.bounds.network.sums:
            memory.recognise, memory.sizes = self.bounds.output, frozenset((8, 16, 32))
        elif self.network.uncompared:
            memory.recognise, memory.sizes = _forgotten, frozenset((8, 16, 32))
        self._set_variables()
        self._put_inputs()
        self._call()

    def _put_inputs(self) -> None:
        for tensor, at in zip(self.network.file.inputs, self._places("input"), strict=True):
            self._put(at, tensor, self.network.fed[tensor])

    def _call(self) -> None:
        self.machine.run(self.image.symbols[f"{self.name}_compute"], STACK_TOP)
        if self._status() != 0:
            raise Refusal("the function does not return 0, by which it says that it ran")

    def _from_anything(self, function: str, *arguments: Word, machine: Machine | None = None) -> None:
        # One of several calls, with unknown registers and flags.
        machine = machine or self.machine
        lowest = machine.lowest
        machine.r[:13] = [*arguments, *(unknown() for _ in range(13 - len(arguments)))]
        machine.forget_flags()
        for q in machine.q:
            q[:] = [unknown() for _ in q]
        machine.run(self.image.symbols[f"{self.name}_{function}"], STACK_TOP)
        machine.lowest = min(lowest, machine.lowest)

    def _status(self) -> int:
        status = self.machine.r[0]
        if not isinstance(status, int):
            raise Refusal(f"whether the function says that it ran depends on {source_of(status)}")
        return status

    def _recognised(self, word: Word, bits: int) -> Word | None:
        # What is stored, noted for a second checker if it is an output.
        found = self.recogniser.output(word, bits)
        if isinstance(found, LinearSum):
            (symbol,) = found.terms()
            self.stores.append((self.machine.count, symbol.tensor, symbol.index))
        return found

    def _put(self, at: int, tensor: int, values: Sequence[Value]) -> None:
        # Store the values of a tensor: symbols, or numbers.
        memory, bits = self.machine.memory, self.network.file.kind(tensor).bits
        for i, value in enumerate(values):
            word = value & M32 if isinstance(value, int) else value.word
            a = at + i * bits // 8
            if bits == 8:
                memory.store_low_byte(a, word)
            else:
                (memory.store if bits == 32 else memory.store_half)(a, word)

    def _places(self, which: str) -> list[int]:
        # Found once: an image without a description is run for them.
        if which not in self._found_places:
            self._found_places[which] = places(self.image, self.network, self.name, which)
        return self._found_places[which]

    def _set_variables(self) -> None:
        # Variables that the model keeps from run to run.
        if not self.network.uncompared:
            self.machine.memory.words |= {i: self.before.get(i, 0) for i in self._kept_words()}
        if self.before:
            for at, state in zip(self._states(), self.network.states, strict=True):
                self._put(at, state.read[0], self.network.values(state.read[0]))

    def _states(self) -> list[int]:
        # Addresses of states, contiguous and aligned alike. If this were wrong, the proof would fail.
        if not self.network.states:
            return []
        (first, end), file = self.image.span(f"{self.name}_state"), self.network.file
        for align in (16, 8, 4, 1):
            found, at = [], first
            for state in self.network.states:
                at = -(-at // align) * align
                found.append(at)
                at += file.size(state.read[0]) * file.kind(state.read[0]).bits // 8
            if at == end:
                return found
        raise Refusal("the image does not say where its states are")

    def kept(self) -> list[tuple[int, int]]:
        # First address and end of each variable of a network that keeps something.
        keeps = self.network.states or self.network.slides
        return kept_variables(self.image, self.name) if keeps else []

    def _kept_words(self) -> list[int]:
        return [i for first, end in self.kept() for i in range(first >> 2, end + 3 >> 2)]

    def variables(self) -> dict[int, Content]:
        # Return the variables' contents after a run, by address / 4.
        return {i: self.machine.memory.words[i] for i in self._kept_words()}

    def _check_output(self) -> None:
        file = self.network.file
        ends = self._places("output") + self._states()
        for at, tensor in zip(ends, self.network.results, strict=True):
            bits = file.kind(tensor).bits
            for i, value in enumerate(() if self.network.uncompared else self.network.values(tensor)):
                is_there = self._is(at + i * bits // 8, bits, value)
                self.found += is_there
                if not is_there and not self.recogniser.first_reason:
                    said = f"element {i} of tensor {tensor}: what is at its place is not known"
                    self.recogniser.first_reason = said
        states = self.image.span(f"{self.name}_state") if self.before else (0, 0)
        for i, word in self.before.items():
            if not states[0] <= 4 * i < states[1] and self.machine.memory.words[i] != word:
                raise Refusal(f"a variable at {4 * i:#x} is not the same after each run")

    def afterwards(self) -> Afterwards:
        """Return the state in which the run leaves memory, for the model's other functions."""
        file, states = self.network.file, dict[int, int]()
        for at, state in zip(self._states(), self.network.states, strict=True):
            size = file.kind(state.read[0]).bits // 8
            data = b"".join(int(v).to_bytes(size, "little", signed=True) for v in state.first)
            states |= {at + i: byte for i, byte in enumerate(data)}
        return Afterwards(self._keeps_inputs(), self.variables(), states)

    def _keeps_inputs(self) -> bool:
        # True if the inputs are at their places.
        file = self.network.file
        ends = self._places("input")
        return all(
            self._is(at + i * file.kind(tensor).bits // 8, file.kind(tensor).bits, value)
            for tensor, at in zip(file.inputs, ends, strict=True)
            for i, value in enumerate(self.network.fed[tensor])
        )

    def _count_bounded(self) -> None:
        # Outputs of float32 that are at their places, up to their error.
        if self.bounds is not None and not self.bounds.network.unbounded:
            ends = self._places("output")
            values = iter(self.bounds.network.ends)
            for at, tensor in zip(ends, self.network.file.outputs, strict=True):
                for i in range(self.network.file.size(tensor)):
                    self.bounded += self._is(at + 4 * i, 32, next(values))

    def _is(self, at: int, bits: int, value: Value) -> bool:
        memory = self.machine.memory
        if bits == 8:
            byte = memory.byte(at)
            return byte is value or (isinstance(value, int) and byte == value & 255)
        word = memory.load(at) if bits == 32 else memory.half(at, signed=True)
        if isinstance(value, int):
            return word == value & M32
        return isinstance(word, LinearSum) and word.constant == 0 and word.terms() == {value: 1}

    def _layers(self) -> "list[LayerProof]":
        need = self.network.needed()
        return [self._layer(layer, need.get(layer.number, set())) for layer in self.network.layers]

    def _layer(self, layer: Layer, need: set[int]) -> LayerProof:
        proven = layer.proven_outputs()
        return LayerProof(
            number=layer.number,
            operator=layer.name,
            outputs=layer.size,
            proven=len(proven),
            needed=len(need),
            missing=len(need - proven - layer.trusted),
            trusted=len(layer.trusted),
            reasons=tuple(layer.reasons) if need - proven - layer.trusted else (),
            evaluations=layer.evaluations,
        )

    def _calls(self) -> "list[tuple[str, int, int]]":
        # The functions that the network's own calls, with their instructions.
        m = self.machine
        top = [c for c in m.calls if c.depth == 2]
        ends = [c.before for c in top[1:]] + [(m.count - m.slack, m.count)][: len(top)]
        return [
            (self.image.function_of(c.target), end[0] - c.before[0], end[1] - c.before[1])
            for c, end in zip(top, ends, strict=True)
        ]

    def _depth(self) -> int:
        return STACK_TOP - self.machine.lowest

    def _premises(self) -> Iterator[str]:
        # What a caller sees to.
        image = self.image
        room = f"{self._depth():,} bytes of stack are left"
        yield f"{room}, from a multiple of 8 down, apart from {self.name}_arena"
        if self.machine.uses_unit:
            yield "the FPU, or Helium, is on"
        copied = sum(len(s.data) for s in image.segments if s.data and s.load != s.address)
        memory = f", and the {copied:,} bytes that are copied to RAM" if copied else ""
        yield f"code and constants are in memory as the file has them{memory}"
        if self.kept():
            yield "the network's variables hold 0 at the first call, and later what the last one left"
        yield "unaligned accesses are no faults"
        yield "while it runs, nothing else writes its arena, its variables, or its part of the stack"

    def _certificate(self) -> dict[str, str]:
        return {
            "image_sha256": self.image.sha256,
            "model_sha256": hashlib.sha256(self.network.file.data).hexdigest(),
            "checker_sha256": checker_digest(),
        }


class InlinedRun(ProofRun):
    """A run by ``<model>_run``, into which a compiler put the network: from the application's inputs to its
    outputs.
    """

    function = "run"

    def _places(self, which: str) -> list[int]:
        if not self._found_places:
            self._found_places = outer_places(self.network, self.machine)
        return self._found_places[which]

    def _call(self) -> None:
        pass_structs(self.machine, self._found_places)
        self.machine.run(self.image.symbols[f"{self.name}_run"], STACK_TOP)
        if self._status() != 0:
            raise Refusal("the function does not return 0, by which it says that it ran")


class SteppedRun(ProofRun):
    """A run by ``<model>_step``, one layer per call, until it returns -1 after the last one.

    Between the calls the application may change everything except the arena and the variables.
    """

    function = "step"

    def _call(self) -> None:
        for step in count():
            self._from_anything("step", step)
            if self._status() != 0:
                break
        if step == 0 or self._status() != M32:
            raise Refusal(f"step {step} does not return 0, nor -1 after the last")
