"""Proof that an image computes its network: run the machine code on symbols, and compare what it stores.

The inputs of the network are symbols, one per element, each with its range. The code of ``<model>_compute``
is run instruction by instruction, as on a core, but on symbolic words (``value``). Whenever it stores a byte,
the ``Recogniser`` asks if that expression is the output of some layer for every value of its inputs. If it
is, the memory gets a new symbol: the layer's output. So a network of forty layers is never one huge
expression; each layer is compared on its own, with the outputs of earlier layers as its symbols.

Example: a fully connected layer with weights 3 and -2. The code loads the symbols a and b, and an expression
grows until a byte is stored:

    mla    3*a - 2*b + 40               a LinearSum: coefficients, in whatever order the code adds
    smmul  (3*a - 2*b + 40) * M >> 32   a WordOp on that sum
    ssat   saturated to 8 bits
    strb   -> output 7 of layer 2, for every sum from -598 to 677

At the end, each byte at the address of the network's output must be the symbol of that output. Everything
else that has to hold is checked on the way, and fails with a ``Refusal``: loads and stores within the image's
memory, no jump or address that depends on an input, registers and stack as they were. The verdict also needs
the way from reset (``reset``) and the interrupt handlers (``interrupts``), since they decide in which state
the function is called.

A network with states is run from two starts: from states of 0, and from any states. ``flow`` and ``machine``
join both ways of a branch that depends on an input.
"""

import hashlib
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from types import MappingProxyType

from crtgen import npu
from crtgen.base.errors import CorruptModelError, UnsupportedError, UsageError
from crtgen.proof.checker.algebra.value import M32, LinearSum, Word, unknown
from crtgen.proof.checker.binary.decoders import agree, decoders
from crtgen.proof.checker.binary.image import DecodedImage, read_image
from crtgen.proof.checker.core.cycles import UNKNOWN, CoreTiming
from crtgen.proof.checker.core.layout import STACK_TOP, allow, only_model, variables
from crtgen.proof.checker.core.machine import Machine
from crtgen.proof.checker.core.memory import Content
from crtgen.proof.checker.network.layer import Layer, Value
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.network.reading import read_network
from crtgen.proof.checker.network.real_layers import RealNetwork
from crtgen.proof.checker.recognition.error import Bounds, Error
from crtgen.proof.checker.recognition.recognise import Recogniser, source_of
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.surroundings.calls import Afterwards, ApplicationCall, application_call
from crtgen.proof.checker.surroundings.interrupts import Interrupts, interrupts_of
from crtgen.proof.checker.surroundings.npu import DRIVER, NpuCalls, TrustedCall
from crtgen.proof.checker.surroundings.places import places
from crtgen.proof.checker.surroundings.reset import Needs, Reset, start_up
from crtgen.proof.checker.surroundings.sliding import SlidingWindow, kept, repeats, windows

__all__ = ["LayerProof", "Proof", "checker_digest", "checker_tools", "prove"]

_MOST_INSTRUCTIONS = 400_000_000
_MOST_FORGOTTEN = 2000
# Limit for windows: layers span the seam between kept and new data.
_MOST_AT_SEAMS = 50_000
_DEEPEST = 10_000
# Runs on windows that are full of signal, until what is kept repeats.
_MOST_MORE = 3


@dataclass(frozen=True, slots=True)
class LayerProof:
    """Proof of a layer: of its ``outputs`` outputs, ``needed`` matter for the result.

    ``missing`` of the needed outputs are not proven; ``trusted`` are computed by an NPU.
    """

    number: int
    operator: str
    outputs: int
    proven: int
    needed: int
    missing: int
    trusted: int
    reasons: tuple[str, ...]
    evaluations: int


@dataclass(frozen=True, slots=True)
class Proof:
    """Result of checking an image: which output bytes are proven, and under which limits.

    ``stopped`` says why the run ended before the function returned; nothing is claimed about the code after
    that. ``instructions`` are the fewest and the most of a run, ``stack`` the bytes of stack that it needs.
    ``certificate`` has digests of the loaded segments, the model and the checker.
    """

    model: str
    architecture: str
    layers: tuple[LayerProof, ...]
    outputs: int
    outputs_proven: int
    stopped: str
    forgotten: int
    first_reason: str
    instructions: tuple[int, int]
    varying: tuple[str, ...]
    """Causes of a duration that depends on inputs; empty if every input takes the same time."""
    cycles: int
    timing: CoreTiming
    calls: tuple[tuple[str, int, int], ...]
    stack: int
    reset: Reset
    seconds: float
    certificate: dict[str, str]
    runs: int
    """Number of runs after a start that have a proof of their own; the last proof covers all later runs."""
    interrupts: Interrupts
    trusted: tuple[TrustedCall, ...]
    """Calls of an NPU, whose layers are not proven but trusted to crtgen's model of it."""
    error: Error | None
    """Error bound of a float32 network; None for other networks."""
    application: ApplicationCall = field(repr=False)
    """The function that an application calls, and the description of the tensors."""
    premises: tuple[str, ...] = field(repr=False)
    """Conditions that the program which calls the function has to meet."""
    stores: tuple[tuple[int, int, int], ...] = field(repr=False, compare=False)
    """Stores of outputs: number of the instruction, tensor, index. Only of a network with one run."""
    network: Network = field(repr=False, compare=False)
    """The checked network. Its layers list which outputs they need, and where bytes were wrong."""

    @property
    def is_proven(self) -> bool:
        """True if each byte of the result is the network's for every input, on a core that starts with a
        reset.
        """
        return self.holds and not self.trusted

    @property
    def holds(self) -> bool:
        """True if the core's part is proven, assuming that the NPU computes its layers as crtgen's model of
        the NPU does.
        """
        return self.holds_from_call and not self.reset.stopped

    @property
    def holds_from_call(self) -> bool:
        """True if the outputs are proven from the call of the function on, whatever ran before it.

        ``premises`` are what the caller has to ensure.
        """
        return self.is_computed and not self.application.wrong

    @property
    def is_computed(self) -> bool:
        """True if each byte is the network's, provided that the core and the memory meet the function's
        assumptions.
        """
        return not self.stopped and self.outputs > 0 and self.outputs_proven == self.outputs

    def joined(self, first: "Proof") -> "Proof":
        """Join the proofs of the first run after a start and of all later ones."""
        (a, b), (c, d) = self.instructions, first.instructions
        return replace(
            self,
            instructions=(min(a, c), max(b, d)),
            varying=tuple(dict.fromkeys((*first.varying, *self.varying))),
            cycles=max(self.cycles, first.cycles),
            stack=max(self.stack, first.stack),
            runs=max(self.runs, 2),
        )


def prove(
    path: Path,
    model: Path,
    name: str = "",
    timing: CoreTiming = UNKNOWN,
    window: SlidingWindow | None = None,
    reach: float = 1.0,
) -> Proof:
    """Prove that ``<name>_compute`` of the ELF file at ``path`` computes the network of the file ``model``,
    or ``<name>_step`` of an application that has no other function.

    Without a name it is the image's only such function, or the one with the name of the file. If the core's
    ``timing`` is known, cycles are counted. A network with states is proven twice: from memory after a start,
    and from any state, with which every further run begins. An image that slides over a signal gets the new
    part of each ``window``. For error bounds, float32 inputs are between -``reach`` and ``reach``; otherwise
    they may be anything.

    Raises ``CrtgenError`` for files that cannot be read; anything else that is not followed is part of the
    proof.
    """
    start = time.process_time()
    image, network = read_image(path), _network(model)
    name = name or only_model(image, model.stem)
    with _deep_recursion():
        if window is not None:
            return _sliding(image, model, name, timing, window)
        kind = _ProofRun if f"{name}_compute" in image.symbols else _SteppedRun
        run = kind(image, network, name, timing, reach=reach)
        proof, runs = run.proof(start), [run]
        if network.states and proof.is_computed:
            runs.append(kind(image, _network(model, later=True), name, timing, run.variables()))
            proof = runs[1].proof(start).joined(proof)
        steps: list[_SteppedRun] = []
        if proof.is_computed and kind is _ProofRun and f"{name}_step" in image.symbols:
            steps = [
                _SteppedRun(image, _network(model, bool(r.before)), name, timing, r.before) for r in runs
            ]
        return _from_reset(proof, runs, steps)


def _from_reset(proof: Proof, runs: "Sequence[_ProofRun]", steps: "Sequence[_SteppedRun]" = ()) -> Proof:
    # The proof with the way from reset to the first of its runs, if these were followed to their ends, and
    # with what an application calls.
    if proof.stopped:
        return proof
    in_steps = [run.proof(0.0) for run in steps]
    image, machines = runs[0].image, [run.machine for run in (*runs, *steps)]
    code = frozenset[int]().union(*(m.code for m in machines))
    unit = any(m.uses_unit for m in machines)
    interrupts = Interrupts()
    try:
        interrupts = interrupts_of(image, proof.model)
        needs = Needs(
            proof.stack + interrupts.stack,
            unit,
            code | interrupts.code,
            tuple(runs[0].kept()),
            interrupts.written,
            interrupts.devices,
        )
        reset, started = start_up(image, proof.model, needs)
    except Refusal as refusal:
        reset, started = Reset(stopped=str(refusal)), set()
    application = proof.application
    if proof.is_computed:
        application = application_call(image, proof.network, proof.model, runs[-1].afterwards())
        application = _with_steps(application, in_steps)
    code |= interrupts.code | application.code
    try:
        asked = agree(image, code | started)
    except Refusal as refusal:
        return replace(proof, stopped=str(refusal), outputs_proven=0)
    proof = replace(proof, reset=reset, interrupts=interrupts, application=application)
    return replace(proof, certificate={**proof.certificate, **checker_tools(), **asked})


def _with_steps(application: ApplicationCall, steps: Sequence[Proof]) -> ApplicationCall:
    wrong = [p.stopped or p.first_reason for p in steps if not p.is_computed]
    if wrong and not application.wrong:
        return replace(application, wrong=f"{steps[0].model}_step: {wrong[0]}")
    return replace(application, steps=bool(steps) and not wrong)


@contextmanager
def _deep_recursion() -> Iterator[None]:
    # Expressions are deeper than calls usually are; beyond this a proof stops, and says so.
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


_LIBRARIES = ("numpy", "pyelftools", "tflite", "onnx", "protobuf", "flatbuffers")


def checker_tools() -> dict[str, str]:
    """Return the versions and digests of everything that the checker runs on: decoders, Python, libraries."""
    libraries = ", ".join(f"{name} {_version_of(name)}" for name in _LIBRARIES)
    return {**decoders(), "python": sys.version, "libraries": libraries}


def _version_of(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


def checker_digest() -> str:
    """SHA-256 of the checker's own files, and of those of the NPU's model."""
    checker = hashlib.sha256()
    for room in (Path(__file__).parent, Path(npu.__file__).parent):
        for file in sorted(room.rglob("*.py")):
            checker.update(file.relative_to(room).as_posix().encode() + b"\0" + file.read_bytes())
    return checker.hexdigest()


def _sliding(image: DecodedImage, model: Path, name: str, timing: CoreTiming, window: SlidingWindow) -> Proof:
    # The proof of all runs, by that of the first ones, or that of the first run which is not proven.
    start, last = time.process_time(), None
    before: Mapping[int, Content] = MappingProxyType({})
    found: Proof | None = None
    runs: list[_ProofRun] = []
    with _readable(model):
        for run, (network, is_full) in enumerate(windows(model, window), 1):
            this = _ProofRun(image, network, name, timing, before)
            proof = replace(this.proof(start), runs=run)
            runs.append(this)
            found = proof.joined(found) if found else proof
            if not proof.is_computed:
                return _from_reset(found, runs)
            before = this.variables()
            state = network, kept(image.span(f"{name}_state"), this.machine.memory.byte)
            if is_full and last is not None and repeats(last, state):
                return _from_reset(found, runs)
            if run > window.runs(network.file.shape(network.file.inputs[0])[window.axis]) + _MOST_MORE:
                return replace(found, stopped="the image does not keep the same of each window")
            last = state if is_full else None
    raise AssertionError  # there is no last window


@contextmanager
def _readable(model: Path) -> Iterator[None]:
    # Say of a file that is not followed, or damaged, which it is.
    try:
        yield
    except Refusal as refusal:
        raise UnsupportedError(str(refusal), where=str(model)) from None
    except OSError as error:
        raise UsageError(
            str(error.strerror), where=str(model), hint="check the path and the permissions"
        ) from None
    except (struct.error, LookupError, ValueError, TypeError, AttributeError) as error:
        raise CorruptModelError(f"the file cannot be read: {error}", where=str(model)) from None


def _network(model: Path, later: bool = False) -> Network:
    # The network of a file. Raises ``ModelError`` for one that is damaged, or that is not followed.
    with _readable(model):
        return read_network(model, later)


def _forgotten(word: Word, bits: int) -> Word:
    # A stored value that is not compared: anything.
    return unknown()


class _ProofRun:
    """A run of the function; ``before`` holds the variables of a network with states, which are 0 after a
    start.

    Variables of a network without states may hold anything before each of its runs.
    """

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
        memory, file = self.machine.memory, self.network.file
        memory.recognise = self._recognised
        memory.sizes = frozenset(bits for layer in self.network.layers for bits in layer.stored_sizes)
        if self.bounds is not None and self.bounds.network.sums:
            memory.recognise, memory.sizes = self.bounds.output, frozenset((8, 16, 32))
        elif self.network.uncompared:
            memory.recognise, memory.sizes = _forgotten, frozenset((8, 16, 32))
        self._set_variables()
        for tensor, at in zip(file.inputs, self._places("input"), strict=True):
            self._put(at, tensor, self.network.fed[tensor])
        self._call()

    def _call(self) -> None:
        self.machine.run(self.image.symbols[f"{self.name}_compute"], STACK_TOP)
        if self._status() != 0:
            raise Refusal("the function does not return 0, by which it says that it ran")

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
        return variables(self.image, self.name) if keeps else []

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
        if self.network.states or self.network.slides:
            yield "the network's variables hold 0 at the first call, and later what the last one left"
        yield "unaligned accesses are no faults"
        yield "while it runs, nothing else writes its arena, its variables, or its part of the stack"

    def _certificate(self) -> dict[str, str]:
        return {
            "image_sha256": self.image.sha256,
            "model_sha256": hashlib.sha256(self.network.file.data).hexdigest(),
            "checker_sha256": checker_digest(),
        }


class _SteppedRun(_ProofRun):
    """A run by ``<model>_step``, one layer per call, until it returns -1 after the last one.

    Between the calls the application may change everything except the arena and the variables.
    """

    def _call(self) -> None:
        machine, lowest = self.machine, STACK_TOP
        for step in count():
            machine.r[:13] = [step, *(unknown() for _ in range(12))]
            machine.forget_flags()
            for q in machine.q:
                q[:] = [unknown() for _ in q]
            machine.run(self.image.symbols[f"{self.name}_step"], STACK_TOP)
            lowest = min(lowest, machine.lowest)
            if self._status() != 0:
                break
        if step == 0 or self._status() != M32:
            raise Refusal(f"step {step} does not return 0, nor -1 after the last")
        machine.lowest = lowest
