"""The interface for applications: ``<model>_run``.

The problem. A proof is of ``<model>_compute``, between its input and its output in the arena. An application
calls ``<model>_run`` with pointers of its own. A copy that is one byte too short makes a right network
useless.

The idea. ``<model>_run`` moves bytes. It is run on symbols, one for each byte of the application's inputs.
The call of ``<model>_compute`` is replaced: at that point each byte has to be where the network reads it;
outputs become new symbols, and so does the status. In the end the application has these symbols in its own
memory, in order, and the status.

``<model>_reset`` is run after a run with any states: it has to leave their first values, and all other
variables as they were.

Nothing is claimed if the compiler inlined the network into ``<model>_run``, as it does with small ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from crtgen.proof.checker.algebra.value import STACK_TOP
from crtgen.proof.checker.binary.image import DecodedImage
from crtgen.proof.checker.core.layout import allow, takes_rows
from crtgen.proof.checker.core.machine import Machine
from crtgen.proof.checker.core.memory import Content
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.surroundings.conversions import Conversions, follow_conversions
from crtgen.proof.checker.surroundings.description import compare_description
from crtgen.proof.checker.surroundings.places import BOTH, SymbolicCall, places
from crtgen.proof.checker.surroundings.served import follow_copies

__all__ = ["Afterwards", "ApplicationCall", "after_reset", "application_call"]

_MOST_INSTRUCTIONS = 50_000_000


@dataclass(frozen=True, slots=True)
class ApplicationCall:
    """Result: which of ``_run``, ``_reset``, ``_step`` and a description the image has; all of them were
    followed.

    ``pushes`` are the most of an image's ``rows`` in a call of ``_push`` that was followed. ``served``: the
    copies of a server's host were followed.
    ``wrong`` is what is wrong with one of them, ``code`` the addresses of the function's instructions.
    """

    followed: bool = False
    resets: bool = False
    steps: bool = False
    pushes: int = 0
    rows: int = 0
    described: bool = False
    served: bool = False
    wrong: str = ""
    code: frozenset[int] = frozenset()
    conversions: Conversions = field(default_factory=Conversions)


@dataclass(frozen=True, slots=True)
class Afterwards:
    """Memory after a run of ``<model>_compute``.

    ``keeps_inputs``: the inputs are unchanged. ``kept`` are the words of the variables, by address / 4, and
    ``states`` the first values of the states, by byte address.
    """

    keeps_inputs: bool
    kept: Mapping[int, Content]
    states: Mapping[int, int]


def application_call(
    image: DecodedImage, network: Network, name: str, after: Afterwards, function: str = "compute"
) -> ApplicationCall:
    """Follow ``<model>_run`` and ``<model>_reset`` if an image has them, and compare the description of its
    tensors. ``after`` is the memory that any run but the first finds, ``function`` the one by which the
    network was followed.
    """
    described = resets = False
    code = frozenset[int]()
    rows = takes_rows(image, name)  # then _run calls _push instead
    computes, followed = function == "compute", function == "run"
    try:
        described = computes and compare_description(image, network, name, after.keeps_inputs)
        if computes and not rows and f"{name}_run" in image.symbols:
            application = _Application(image, network, name)
            application.follow()
            followed = bool(application.calls)
            code |= application.machine.code if followed else set()
        if network.states and f"{name}_reset" in image.symbols:
            code |= _followed_reset(image, name, after)
            resets = True
        conversions = follow_conversions(image, network, name)
        copies = follow_copies(image, network, name) if computes and described else frozenset()
    except Refusal as refusal:
        return ApplicationCall(described=described, wrong=str(refusal))
    return ApplicationCall(
        followed,
        resets,
        described=described,
        served=bool(copies),
        code=code | conversions.code | copies,
        conversions=conversions,
    )


def after_reset(image: DecodedImage, name: str, kept: Mapping[int, Content]) -> Machine:
    """Return a core that has run ``<model>_reset``, which found variables with these words."""
    machine = Machine(image, _MOST_INSTRUCTIONS)
    allow(machine, name)
    machine.memory.words |= kept
    machine.run(image.symbols[f"{name}_reset"], STACK_TOP)
    return machine


def _followed_reset(image: DecodedImage, name: str, after: Afterwards) -> frozenset[int]:
    # The function's instructions. Raises ``Refusal`` if it leaves anything but the states' first values.
    machine = after_reset(image, name, after.kept)
    for at, value in after.states.items():
        if machine.memory.byte(at) != value:
            raise Refusal(f"{name}_reset leaves another state than the network's first, at {at:#x}")
    states = {at >> 2 for at in after.states}
    for i, word in after.kept.items():
        if i not in states and machine.memory.words[i] != word:
            raise Refusal(f"{name}_reset changes the variable at {4 * i:#x}")
    return frozenset(machine.code)


class _Application(SymbolicCall):
    # A call that finds its inputs where the network does, and gives an application the network's outputs.

    def __init__(self, image: DecodedImage, network: Network, name: str) -> None:
        super().__init__(image, network, name)
        self.inner = {which: places(image, network, name, which) for which in BOTH}

    def follow(self) -> None:
        # Raises ``Refusal`` with what it does otherwise.
        self.run(self._computed)
        if self.calls:
            self._compare("output", self.outer["output"], "an application gets")

    def _computed(self) -> None:
        self._compare("input", self.inner["input"], "the network gets")
        self.store("output", self.inner["output"])

    def _compare(self, which: str, at: list[int], who: str) -> None:
        for k, (first, symbols) in enumerate(zip(at, self.symbols[which], strict=True)):
            for i, symbol in enumerate(symbols):
                if self.machine.memory.byte(first + i) is not symbol:
                    raise Refusal(f"{self.name}_run: byte {i} of {which} {k} is not what {who}")
