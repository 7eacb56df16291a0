"""The verdict about an image: which outputs are proven, and under which limits."""

from dataclasses import dataclass, field, replace

from crtgen.proof.checker.core.cycles import CoreTiming
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.recognition.error import Error
from crtgen.proof.checker.surroundings.calls import ApplicationCall
from crtgen.proof.checker.surroundings.interrupts import Interrupts
from crtgen.proof.checker.surroundings.npu import TrustedCall
from crtgen.proof.checker.surroundings.reset import Reset

__all__ = ["LayerProof", "Proof"]


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
