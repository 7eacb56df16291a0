"""Addresses of a model's inputs and outputs in an image.

The problem. A proof begins with the inputs at their addresses and ends with the outputs at theirs. An image
with a registry describes its tensors; a library in an application may have no such description.

The idea. ``<model>_run`` knows the addresses. It is run on symbols, one for each byte of the application's
inputs. The network reads its inputs where these symbols are when ``<model>_compute`` is called. At that point
each byte of the arena becomes a symbol that stands for its address; the symbols in the application's memory
at the end tell where the outputs were.
"""

from collections.abc import Callable, Sequence
from typing import cast

from crtgen.proof.checker.algebra.value import STACK_TOP, Symbol
from crtgen.proof.checker.binary.image import DecodedImage, image_bytes
from crtgen.proof.checker.core.layout import allow
from crtgen.proof.checker.core.machine import Machine
from crtgen.proof.checker.network.file import ModelFile
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.surroundings.npu import DRIVER

__all__ = [
    "BOTH",
    "InlinedNetwork",
    "SymbolicCall",
    "outer_places",
    "pass_structs",
    "places",
    "size_of",
    "tensors_of",
]

BOTH = ("input", "output")
# An application's structs and buffers: addresses that no image uses.
_STRUCTS, _BUFFERS, _APART = 0xC0000000, 0xC1000000, 0x100000
_MOST_INSTRUCTIONS = 50_000_000
# r1 to r3, r12 and LR, which a callee may change.
_CHANGED = (1, 2, 3, 12, 14)
_ARENA = -3
"""Tensor of the symbols that stand for bytes of the arena."""


class InlinedNetwork(Refusal):
    """The function that an application calls does not call the network's."""


def places(image: DecodedImage, network: Network, name: str, which: str) -> list[int]:
    """Return the addresses of the inputs or of the outputs. Raises ``Refusal`` if the image does not say.

    If the inputs arrive by rows, they are in an array of their own.
    """
    count = len(tensors_of(network.file, which))
    memories = list(image.arenas(name).values())
    memories += [image.span(f"{name}_image")] if which == "input" and f"{name}_image" in image.symbols else []
    described = [s for s in (f"{name}_{which}_tensors", f"{name}_{which}_places") if s in image.symbols]
    if not described and {f"{name}_run", f"{name}_compute"} <= image.symbols.keys():
        return _by_run(image, network, name)[which]
    for symbol in described[:1]:
        first, end = image.span(symbol)
        data = image_bytes(image, first, end - first)
        words = [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data) - 3, 4)]
        found = [w for w in words if any(low <= w < high for low, high in memories)]
        if len(found) == count:  # nothing else in the description points into the arena
            return found
    raise Refusal(f"the image does not say where its {which}s are")


def tensors_of(file: ModelFile, which: str) -> list[int]:
    return file.inputs if which == "input" else file.outputs


def size_of(network: Network, which: str, tensor: int) -> int:
    """Return the elements of an input, as a run gets it, or of an output."""
    return len(network.fed[tensor]) if which == "input" else network.file.size(tensor)


def outer_places(network: Network, machine: Machine) -> dict[str, list[int]]:
    """Return addresses for an application's inputs and outputs, where the machine may write from now on."""
    outer, buffer = dict[str, list[int]](), _BUFFERS
    machine.memory.allow(_STRUCTS, _STRUCTS + 0x1000)
    for which in BOTH:
        outer[which] = []
        for tensor in tensors_of(network.file, which):
            alignment = network.file.kind(tensor).bits // 8
            size = size_of(network, which, tensor) * alignment
            at = buffer + alignment  # no more aligned than its elements are
            machine.memory.allow(at, at + size)
            outer[which].append(at)
            buffer += -(-size // _APART) * _APART + _APART
    return outer


def pass_structs(machine: Machine, outer: dict[str, list[int]]) -> None:
    """Set the arguments of ``<model>_run``: a struct of pointers to the inputs, and one to the outputs."""
    for n, which in enumerate(BOTH):
        for k, at in enumerate(outer[which]):
            machine.memory.store(_STRUCTS + 0x800 * n + 4 * k, at)
        machine.r[n] = _STRUCTS + 0x800 * n


class SymbolicCall:
    """A call of ``<model>_run`` with symbols as inputs, and a stand-in for ``<model>_compute``."""

    def __init__(self, image: DecodedImage, network: Network, name: str) -> None:
        self.name, self.machine, file = name, Machine(image, _MOST_INSTRUCTIONS), network.file
        self.status = Symbol(-2, 1 << 40, -(1 << 31), (1 << 31) - 1, 32)
        self.calls = 0
        allow(self.machine, name)
        self.outer = outer_places(network, self.machine)
        self.symbols = {
            which: [
                [
                    Symbol(-2 - k, i, -128, 127)
                    for i in range(size_of(network, which, t) * file.kind(t).bits // 8)
                ]
                for k, t in enumerate(tensors_of(file, which))
            ]
            for which in BOTH
        }

    def run(self, instead: Callable[[], None]) -> None:
        """Run the function. Raises ``Refusal`` if it calls the network more than once, or returns another
        status.

        A compiler that sees that ``<model>_compute`` always returns 0 may return 0 itself (GCC 14). The proof
        of the network shows that it does. With an NPU this is refused, because the driver's status would be
        lost.
        """
        r, symbols = self.machine.r, self.machine.image.symbols
        pass_structs(self.machine, self.outer)
        self.store("input", self.outer["input"])

        def computed(machine: Machine) -> None:
            self.calls += 1
            instead()
            machine.spoil(_CHANGED, 0)
            machine.r[0] = self.status.word

        self.machine.instead[symbols[f"{self.name}_compute"]] = computed
        self.machine.run(symbols[f"{self.name}_run"], STACK_TOP)
        if self.calls > 1:
            raise Refusal(f"{self.name}_run calls {self.name}_compute {self.calls} times")
        kept = r[0] is self.status.word or (r[0] == 0 and DRIVER not in symbols)
        if self.calls and not kept:
            raise Refusal(f"{self.name}_run returns another status than {self.name}_compute")

    def store(self, which: str, at: Sequence[int]) -> None:
        for first, symbols in zip(at, self.symbols[which], strict=True):
            for i, symbol in enumerate(symbols):
                self.machine.memory.store_byte(first + i, symbol)


def _by_run(image: DecodedImage, network: Network, name: str) -> dict[str, list[int]]:
    # The places, as ``<model>_run`` has them.
    call = SymbolicCall(image, network, name)
    memory, arena = call.machine.memory, image.arenas(name).values()
    found: dict[str, list[int]] = {}

    def computed() -> None:
        first = {symbols[0]: k for k, symbols in enumerate(call.symbols["input"])}
        ends = [a for low, high in arena for a in range(low, high) if memory.byte(a) in first]
        at = {first[cast(Symbol, memory.byte(a))]: a for a in ends}
        found["input"] = [at[k] for k in range(len(first)) if k in at]
        for low, high in arena:
            for a in range(low, high):
                memory.store_byte(a, Symbol(_ARENA, a, -128, 127))

    call.run(computed)
    if not call.calls:
        raise InlinedNetwork(f"{name}_run does not call {name}_compute")
    ends = [memory.byte(at) for at in call.outer["output"]]
    found["output"] = [end.index for end in ends if isinstance(end, Symbol) and end.tensor == _ARENA]
    if any(len(found.get(which, ())) != len(call.outer[which]) for which in BOTH):
        raise Refusal(f"{name}_run does not show where the inputs and outputs are")
    return found
