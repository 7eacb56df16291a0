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
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from crtgen.base.errors import CorruptModelError, UnsupportedError, UsageError
from crtgen.proof.checker.algebra.value import Symbol, WordByte, unknown
from crtgen.proof.checker.binary.decoders import agree
from crtgen.proof.checker.binary.image import DecodedImage, read_image
from crtgen.proof.checker.core.cycles import UNKNOWN, CoreTiming
from crtgen.proof.checker.core.layout import only_model, takes_rows
from crtgen.proof.checker.core.memory import Content
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.network.reading import read_network
from crtgen.proof.checker.pushes import SampleStream
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.rows import PushedRun, RowsRun
from crtgen.proof.checker.run import InlinedRun, ProofRun, SteppedRun
from crtgen.proof.checker.samples import WindowsProof, follow_windows
from crtgen.proof.checker.surroundings.calls import ApplicationCall, after_reset, application_call
from crtgen.proof.checker.surroundings.interrupts import Interrupts, interrupts_of
from crtgen.proof.checker.surroundings.places import InlinedNetwork, places
from crtgen.proof.checker.surroundings.reset import Needs, Reset, start_up
from crtgen.proof.checker.surroundings.sliding import SlidingWindow, kept, repeats, windows
from crtgen.proof.checker.tools import checker_digest, checker_tools
from crtgen.proof.checker.verdict import Proof

__all__ = ["prove", "prove_windows"]

_DEEPEST = 10_000
# Runs on windows that are full of signal, until what is kept repeats.
_MOST_MORE = 3


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
        kind = _kind(image, network, name)
        run = kind(image, network, name, timing, reach=reach)
        proof, runs = run.proof(start), [run]
        if network.states and proof.is_computed:
            runs.append(kind(image, _network(model, later=True), name, timing, run.variables()))
            proof = runs[1].proof(start).joined(proof)
        others = _others(image, name, kind) if proof.is_computed else []
        steps = [
            other(image, _network(model, bool(r.before)), name, timing, r.before)
            for other in others
            for r in runs
        ]
        return _from_reset(proof, runs, steps)


def prove_windows(path: Path, model: Path, stream: SampleStream) -> WindowsProof:
    """Prove that ``<name>_push`` of the ELF file at ``path`` gives the network of the pipeline ``model`` each
    window of the ``stream``. What is computed from windows is not followed.
    """
    image = read_image(path)
    with _deep_recursion():
        try:
            found, code = follow_windows(image, stream)
            asked = agree(image, code)
        except Refusal as refusal:
            return WindowsProof(stream, wrong=str(refusal))
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    own = {"image_sha256": image.sha256, "model_sha256": digest, "checker_sha256": checker_digest()}
    return replace(found, certificate={**own, **checker_tools(), **asked})


def _kind(image: DecodedImage, network: Network, name: str) -> type[ProofRun]:
    # The run by the function that an image has. If nothing calls the network, and nothing tells where its
    # inputs are, a compiler has put a copy of it into the function that an application calls.
    if f"{name}_compute" not in image.symbols:
        has = {which for which in ("step", "run") if f"{name}_{which}" in image.symbols}
        if takes_rows(image, name) and "step" not in has:
            return RowsRun if "run" in has else PushedRun
        return SteppedRun if "step" in has else InlinedRun
    try:
        places(image, network, name, "input")
    except InlinedNetwork:
        return InlinedRun
    except Refusal:
        return ProofRun  # which is stopped by it
    return ProofRun


def _others(image: DecodedImage, name: str, kind: type[ProofRun]) -> list[type[ProofRun]]:
    # The runs by other functions that applications call, besides the run of one kind.
    others = list[type[ProofRun]]()
    if kind is ProofRun and f"{name}_step" in image.symbols:
        others.append(SteppedRun)
    if takes_rows(image, name):
        # Without these an application does not get what a push computes: it is part of <model>_run then.
        tells = any(f"{name}_output_{what}" in image.symbols for what in ("places", "tensors"))
        others += [PushedRun] if tells and kind is not PushedRun else []
        others += [RowsRun] if kind is ProofRun and f"{name}_run" in image.symbols else []
    return others


def _from_reset(proof: Proof, runs: "Sequence[ProofRun]", steps: "Sequence[ProofRun]" = ()) -> Proof:
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
            tuple({*runs[0].kept(), *(span for run in steps for span in run.kept())}),
            interrupts.written,
            interrupts.devices,
        )
        reset, started = start_up(image, proof.model, needs)
    except Refusal as refusal:
        reset, started = Reset(stopped=str(refusal)), set()
    application = proof.application
    if proof.is_computed:
        application = application_call(
            image, proof.network, proof.model, runs[-1].afterwards(), runs[0].function
        )
        application = _with_steps(application, [*zip(steps, in_steps, strict=True)], runs)
    code |= interrupts.code | application.code
    try:
        asked = agree(image, code | started)
    except Refusal as refusal:
        return replace(proof, stopped=str(refusal), outputs_proven=0)
    premises = dict.fromkeys((*proof.premises, *(p for other in in_steps for p in other.premises[1:])))
    proof = replace(proof, premises=tuple(premises))
    proof = replace(proof, reset=reset, interrupts=interrupts, application=application)
    return replace(proof, certificate={**proof.certificate, **checker_tools(), **asked})


def _with_steps(
    application: ApplicationCall, steps: Sequence[tuple[ProofRun, Proof]], runs: Sequence[ProofRun]
) -> ApplicationCall:
    for run, proof in steps:
        if not proof.is_computed and not application.wrong:
            said = f"{proof.model}_{run.function}: {proof.stopped or proof.first_reason}"
            return replace(application, wrong=said)
    found = [*runs, *(run for run, _ in steps)]
    pushed = [run for run in found if isinstance(run, PushedRun)]
    return replace(
        application,
        followed=application.followed or any(isinstance(run, RowsRun) for run in found),
        steps=any(isinstance(run, SteppedRun) for run, _ in steps),
        pushes=min((run.most for run in pushed), default=0),
        rows=pushed[0].rows if pushed else 0,
    )


@contextmanager
def _deep_recursion() -> Iterator[None]:
    # Expressions are deeper than calls usually are; beyond this a proof stops, and says so.
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _sliding(image: DecodedImage, model: Path, name: str, timing: CoreTiming, window: SlidingWindow) -> Proof:
    # The proof of all runs, by that of the first ones, or that of the first run which is not proven.
    start, last = time.process_time(), None
    before: Mapping[int, Content] = MappingProxyType({})
    found: Proof | None = None
    runs: list[ProofRun] = []
    with _readable(model):
        for run, (network, is_full) in enumerate(windows(model, window), 1):
            this = ProofRun(image, network, name, timing, before)
            proof = replace(this.proof(start), runs=run)
            runs.append(this)
            found = proof.joined(found) if found else proof
            if not proof.is_computed:
                return _from_reset(found, runs)
            before = this.variables()
            state = network, kept(image.span(f"{name}_state"), this.machine.memory.byte)
            if is_full and last is not None and repeats(last, state):
                return _with_silence(_from_reset(found, runs), runs, model, window)
            if run > window.runs(network.file.shape(network.file.inputs[0])[window.axis]) + _MOST_MORE:
                return replace(found, stopped="the image does not keep the same of each window")
            last = state if is_full else None
    raise AssertionError  # there is no last window


def _with_silence(proof: Proof, runs: Sequence[ProofRun], model: Path, window: SlidingWindow) -> Proof:
    # With ``<model>_reset``, if the image has it: whatever runs left, it leads to variables from which a run
    # on the first window is right, and leaves what the first run after a start left.
    first, application = runs[0], proof.application
    image, name = first.image, first.name
    if f"{name}_reset" not in image.symbols or application.wrong:
        return proof
    state = image.span(f"{name}_state")
    try:
        machine = after_reset(image, name, _left_by_any(runs, state))
        reset = {i: machine.memory.words[i] for i in first.variables()}
        network, _ = next(windows(model, window))
        again = ProofRun(image, network, name, first.machine.timing, reset)
        if not again.proof(0.0).is_computed or not _is_left_alike(first, again, state):
            raise Refusal(f"{name}_reset does not lead to the first window")
    except Refusal as refusal:
        return replace(proof, application=replace(application, wrong=str(refusal)))
    code = application.code | machine.code
    return replace(proof, application=replace(application, resets=True, code=code))


def _left_by_any(runs: Sequence[ProofRun], state: tuple[int, int]) -> dict[int, Content]:
    # The variables that a reset may find: a byte of the state is 0 if no run leaves another, else unknown.
    found = runs[-1].variables()
    for i in [i for i in found if state[0] <= 4 * i < state[1]]:
        bytes_left = [[run.machine.memory.byte(4 * i + k) for run in runs] for k in range(4)]
        found[i] = [0 if all(b == 0 for b in left) else WordByte(unknown(), 0) for left in bytes_left]
    return found


def _is_left_alike(one: ProofRun, other: ProofRun, state: tuple[int, int]) -> bool:
    # True if two runs on the first window leave the same elements and numbers, each with symbols of its own.
    left = [kept(state, run.machine.memory.byte) for run in (one, other)]
    for (v, i), (w, k) in zip(*left, strict=True):
        both = isinstance(v, Symbol) and isinstance(w, Symbol)
        if v is None or i != k or ((v.tensor, v.index) != (w.tensor, w.index) if both else v != w):
            return False
    rest = [
        {i: w for i, w in run.variables().items() if not state[0] <= 4 * i < state[1]} for run in (one, other)
    ]
    return rest[0] == rest[1]


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
