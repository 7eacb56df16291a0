"""The interface for applications: ``<model>_run``, and the description of the tensors.

The problem. A proof is of ``<model>_compute``, between its input and its output in the arena. An application
calls ``<model>_run`` with pointers of its own, and a host sends what the description says. A copy that is one
byte too short, or a shape with two numbers exchanged, makes a right network useless.

The idea. ``<model>_run`` moves bytes. It is run on symbols, one for each byte of the application's inputs.
The call of ``<model>_compute`` is replaced: at that point each byte has to be where the network reads it;
outputs become new symbols, and so does the status. In the end the application has these symbols in its own
memory, in order, and the status.

Nothing is claimed if the compiler inlined the network into ``<model>_run``, as it does with small ones.

The description is compared with the network's file: number of bytes, shape and type. Names are not.
"""

from dataclasses import dataclass

from tflite import TensorType

from crtgen.proof.checker.image import DecodedImage, image_bytes
from crtgen.proof.checker.layout import allow, places
from crtgen.proof.checker.machine import Machine
from crtgen.proof.checker.network.file import ModelFile
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.value import STACK_TOP, Symbol

__all__ = ["ApplicationCall", "application_call"]

# An application's structs and buffers: addresses that no image uses.
_STRUCTS, _BUFFERS, _APART = 0xC0000000, 0xC1000000, 0x100000
_MOST_INSTRUCTIONS = 50_000_000
_DESCRIPTOR = 24
"""Size of a ``crt_tensor``: name, data, shape, bytes, dimensions, and type."""
_INT, _UINT, _FLOAT = 0, 1, 2
# r1 to r3, r12 and LR, which a callee may change.
_CHANGED = (1, 2, 3, 12, 14)


@dataclass(frozen=True, slots=True)
class ApplicationCall:
    """Result: whether the image has the function, and a description that was compared.

    ``wrong`` is what is wrong with one of them, ``code`` the addresses of the function's instructions.
    """

    followed: bool = False
    described: bool = False
    wrong: str = ""
    code: frozenset[int] = frozenset()


def application_call(image: DecodedImage, network: Network, name: str) -> ApplicationCall:
    """Follow ``<model>_run``, where an image has it, and compare the description of the tensors."""
    described, application = False, None
    try:
        plain = not network.slides and f"{name}_image" not in image.symbols
        described = plain and _compare_description(image, network, name)
        if plain and f"{name}_run" in image.symbols:
            application = _Application(image, network, name)
            application.run()
    except Refusal as refusal:
        return ApplicationCall(described=described, wrong=str(refusal))
    if application is None or not application.calls:
        return ApplicationCall(described=described)
    return ApplicationCall(followed=True, described=described, code=frozenset(application.machine.code))


class _Application:
    def __init__(self, image: DecodedImage, network: Network, name: str) -> None:
        self.name, self.machine = name, Machine(image, _MOST_INSTRUCTIONS)
        file = network.file
        self.sizes = {
            which: [file.size(t) * file.kind(t).bits // 8 for t in tensors]
            for which, tensors in (("input", file.inputs), ("output", file.outputs))
        }
        self.alignments = {
            which: [file.kind(t).bits // 8 for t in tensors]
            for which, tensors in (("input", file.inputs), ("output", file.outputs))
        }
        self.inner = {which: places(image, name, which, len(sizes)) for which, sizes in self.sizes.items()}
        self.outer: dict[str, list[int]] = {}
        self.symbols = {
            which: [[Symbol(-2 - k, i, -128, 127) for i in range(size)] for k, size in enumerate(sizes)]
            for which, sizes in self.sizes.items()
        }
        self.status = Symbol(-2, 1 << 40, -(1 << 31), (1 << 31) - 1, 32)
        self.calls = 0
        allow(self.machine, name)
        memory, buffer = self.machine.memory, _BUFFERS
        memory.allow(_STRUCTS, _STRUCTS + 0x1000)
        for which, sizes in self.sizes.items():
            self.outer[which] = []
            for size, alignment in zip(sizes, self.alignments[which], strict=True):
                at = buffer + alignment  # no more aligned than its elements are
                memory.allow(at, at + size)
                self.outer[which].append(at)
                buffer += -(-size // _APART) * _APART + _APART

    def run(self) -> None:
        """Run the function. Raises ``Refusal`` with what it does otherwise."""
        memory, r, symbols = self.machine.memory, self.machine.r, self.machine.image.symbols
        for n, which in enumerate(("input", "output")):
            for k, at in enumerate(self.outer[which]):
                memory.store(_STRUCTS + 0x800 * n + 4 * k, at)
            r[n] = _STRUCTS + 0x800 * n
        self._store("input", self.outer["input"])
        self.machine.instead[symbols[f"{self.name}_compute"]] = self._computed
        self.machine.run(symbols[f"{self.name}_run"], STACK_TOP)
        if not self.calls:
            return  # the compiler put the network into it
        if self.calls != 1:
            raise Refusal(f"{self.name}_run calls {self.name}_compute {self.calls} times")
        self._compare("output", self.outer["output"], "an application gets")
        if r[0] is not self.status.word:
            raise Refusal(f"{self.name}_run returns another status than {self.name}_compute")

    def _computed(self, machine: Machine) -> None:
        # Runs instead of the network.
        self.calls += 1
        self._compare("input", self.inner["input"], "the network gets")
        self._store("output", self.inner["output"])
        machine.spoil(_CHANGED, 0)
        machine.r[0] = self.status.word

    def _store(self, which: str, at: list[int]) -> None:
        for first, symbols in zip(at, self.symbols[which], strict=True):
            for i, symbol in enumerate(symbols):
                self.machine.memory.store_byte(first + i, symbol)

    def _compare(self, which: str, at: list[int], who: str) -> None:
        for k, (first, symbols) in enumerate(zip(at, self.symbols[which], strict=True)):
            for i, symbol in enumerate(symbols):
                if self.machine.memory.byte(first + i) is not symbol:
                    raise Refusal(f"{self.name}_run: byte {i} of {which} {k} is not what {who}")


def _compare_description(image: DecodedImage, network: Network, name: str) -> bool:
    # True if there is one. Raises ``Refusal`` for one that is not of the network's tensors.
    file = network.file
    if not isinstance(file, ModelFile):
        return False
    for which, tensors in (("input", file.inputs), ("output", file.outputs)):
        first, end = image.span(f"{name}_{which}_tensors")
        if end - first != _DESCRIPTOR * len(tensors):
            return False
        for k, t in enumerate(tensors):
            data = image_bytes(image, first + _DESCRIPTOR * k, _DESCRIPTOR)
            words = [int.from_bytes(data[i : i + 4], "little") for i in range(0, _DESCRIPTOR, 4)]
            _, _, at, size, dimensions, kind = words
            shape = image_bytes(image, at, 8 * dimensions) if dimensions < 16 else b""
            numbers = tuple(int.from_bytes(shape[i : i + 8], "little") for i in range(0, len(shape), 8))
            own = file.kind(t)
            code = _FLOAT if file.type(t) == TensorType.FLOAT32 else _UINT if own.low == 0 else _INT
            said = size, numbers, kind & 0xFF, kind >> 8 & 0xFF, kind >> 16
            wanted = file.size(t) * own.bits // 8, tuple(file.shape(t)), code, own.bits, 1
            if said != wanted:
                raise Refusal(f"the description of {which} {k} says {said}, the network {wanted}")
    return True
