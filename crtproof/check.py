"""The check of an image with a certificate."""

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from crtproof.compare import Comparer
from crtproof.elf import Image, read_image
from crtproof.layers import Addition, Greatest, Network, Softmax, Value
from crtproof.machine import Machine
from crtproof.memory import Memory
from crtproof.model import read_model
from crtproof.rows import Rows
from crtproof.values import MASK, STACK_TOP, Piece, Refused, Symbol

__all__ = ["FORMAT", "Certificate", "Result", "check", "read_certificate"]

FORMAT = "crtproof 1"
_MORE, _MOST = 1 << 20, 1 << 28
"""Instructions that a run may take after the last store that a certificate names, and in all."""
_MOST_BYTES = 1 << 28
"""Greatest size of a certificate, unpacked, in bytes."""


@dataclass(frozen=True)
class Result:
    """``layers`` are number, name, accepted and all outputs.

    ``refused`` is why the run ended early, if it did.

    ``left`` are the layers of kinds that are not followed. If it ``stands``, their inputs were in memory when
    a function was called: the one in which the run ended, if it ended early.
    """

    model: str
    layers: tuple[tuple[int, str, int, int], ...]
    left: tuple[str, ...]
    stands: bool
    outputs: int
    accepted: int
    refused: str
    instructions: int
    stack: int
    intervals: int

    @property
    def is_accepted(self) -> bool:
        return not self.refused and self.accepted == self.outputs

    @property
    def missing(self) -> str:
        """The first layer after the last complete one, and how many of its outputs are found."""
        complete = [i for i, (*_, accepted, size) in enumerate(self.layers) if accepted == size]
        for number, name, accepted, size in self.layers[max(complete, default=-1) + 1 :]:
            return f"layer {number}, {name}: {accepted:,} of {size:,} outputs are found"
        return "outputs are missing"

    @property
    def is_accepted_but_for(self) -> bool:
        """True if the run came to a layer that is not followed, whose input was there in full.

        Then all that this input depends on was found, and so was each output that depends on no such layer.
        """
        return bool(self.left) and self.stands


@dataclass(frozen=True)
class Certificate:
    """``stores`` are tensors and indices by the number of the instruction that stores them."""

    model: str
    image_sha256: str
    model_sha256: str
    stores: dict[int, list[tuple[int, int]]]


def check(certificate: Path, model: Path, image: Path) -> Result:
    """Check that an image computes a network, where a certificate says that it does.

    Raises ``Refused`` for files that are damaged or do not belong together.
    """
    said, elf = read_certificate(certificate), read_image(image)
    if said.image_sha256 != elf.sha256:
        raise Refused("the certificate is for another image")
    if said.model_sha256 != sha256(model.read_bytes()).hexdigest():
        raise Refused("the certificate is for another network")
    try:
        return _Run(elf, Network(read_model(model)), said.model, said.stores).result()
    except (LookupError, ArithmeticError, ValueError, TypeError, struct.error, RecursionError) as error:
        raise Refused(f"the network's file is not what it should be: {error!r}") from None


def read_certificate(path: Path) -> Certificate:
    """Read what a certificate says. Raises ``Refused`` for a file that is none."""
    try:
        reader = zlib.decompressobj()
        said = json.loads(reader.decompress(path.read_bytes(), _MOST_BYTES))
        if not reader.eof:
            raise ValueError("it is cut off, or too long")
        if said["format"] != FORMAT:
            again = "write it again by crtgen prove --certificate, or check it by the crtgen that wrote it"
            raise Refused(f"{path} has the format {said['format']!r}, this checker reads {FORMAT!r}: {again}")
        stores: dict[int, list[tuple[int, int]]] = {}
        for count, tensor, index in said["stores"]:
            stores.setdefault(int(count), []).append((int(tensor), int(index)))
        model, of_image, of_model = (str(said[key]) for key in ("model", "image_sha256", "model_sha256"))
        return Certificate(model, of_image, of_model, stores)
    except (zlib.error, ValueError, TypeError, LookupError, RecursionError) as error:
        raise Refused(f"{path} is no certificate: {error}") from None


class _Run:
    def __init__(
        self, image: Image, network: Network, name: str, cuts: dict[int, list[tuple[int, int]]]
    ) -> None:
        self.image, self.network, self.name, self.cuts = image, network, name, cuts
        bottom, _ = image.span("crt_stack_bottom")
        top, _ = image.span("crt_stack_top")
        self.room = top - bottom
        writable = [*self._arenas(), (STACK_TOP - self.room, STACK_TOP)]
        self.memory = Memory(image, writable)
        self.machine = Machine(image, self.memory, self._stored)
        self.machine.entered = self._entered
        self.comparer = Comparer(self.memory)
        self.rows = Rows(self.machine, self.comparer)
        self.reason = ""
        """Cause why a byte is no output of softmax."""
        self.last = 0
        """Number of the last instruction that stored an output."""
        self.left = {t for y in network.layers if y.is_left for t in y.operator.inputs}
        self.came: set[int] = set()
        """Inputs of layers that are not followed which were in memory at a call, and at the last one."""
        self.now: set[int] = set()

    def _arenas(self) -> list[tuple[int, int]]:
        # The arena, or the one that all models share, and its parts in other memories.
        shared, own = "crt_shared_arena", f"{self.name}_arena"
        parts = [n for n, (_, size) in self.image.symbols.items() if n.startswith(f"{own}_") and size]
        return [self.image.span(n) for n in (shared if shared in self.image.symbols else own, *sorted(parts))]

    def result(self) -> Result:
        refused, found, outputs = "", 0, 0
        try:
            self._feed()
            entry, _ = self.image.span(f"{self.name}_compute")
            self.machine.call(entry, self.room, min(max(self.cuts, default=0) + _MORE, _MOST))
            if self.machine.r[0] != 0:
                raise Refused("the function does not return 0, by which it says that it ran")
            self.rows.check_premises()
        except Refused as error:
            refused = str(error)
        for tensor in self.network.model.outputs:
            outputs += self.network.model.tensors[tensor].size
        if not refused:
            found = self._found()
            refused = self.reason if found < outputs else ""
        calls, last = self.machine.calls, self.last
        left = {t for t in self.left if self._is_known(t)}
        if refused:
            stands = bool(left and calls) and last < calls[0][1] and left <= self.now
        else:
            model = self.network.model
            known = sum(model.tensors[t].size for t in model.outputs if self._is_known(t))
            stands = bool(left) and found == known and left <= self.came
        seen = self.machine.count, STACK_TOP - self.machine.lowest, self.comparer.intervals
        return Result(self.name, tuple(self._layers()), self._left(), stands, outputs, found, refused, *seen)

    def _entered(self) -> None:
        # Notes which inputs are complete when the network's function calls another one.
        if len(self.machine.calls) == 1 and self.memory.journal is None:
            self.now = {t for t in self.left if self._is_known(t) and self._stands(t)}
            self.came |= self.now

    def _is_known(self, tensor: int) -> bool:
        # True if no layer before a tensor is left.
        try:
            return bool(self.network.values(tensor))
        except Refused:
            return False

    def _stands(self, tensor: int) -> bool:
        # True if all elements of a tensor are in memory, one behind the other.
        values = self.network.values(tensor)
        return any(
            all(self._is_at(first + i, value) for i, value in enumerate(values))
            for low, high in self._arenas()
            for first in range(low, high - len(values) + 1)
        )

    def _is_at(self, address: int, value: Value) -> bool:
        try:
            piece = self.memory.byte(address)
        except Refused:
            return False
        return piece is value if isinstance(value, Symbol) else piece == value & 255

    def _places(self, which: str, tensors: tuple[int, ...]) -> list[int]:
        # The descriptors of tensors have one address in the arena each.
        first, end = self.image.span(f"{self.name}_{which}_tensors")
        arenas = self._arenas()
        words = [self.image.constant(a, 4) for a in range(first, end, 4)]
        found = [w for w in words if w is not None and any(low <= w < high for low, high in arenas)]
        if len(found) != len(tensors):
            raise Refused(f"the image does not say where its {which}s are")
        return found

    def _feed(self) -> None:
        inputs = self.network.model.inputs
        for at, tensor in zip(self._places("input", inputs), inputs, strict=True):
            for i, value in enumerate(self.network.values(tensor)):
                self.memory.store_byte(at + i, value)

    def _stored(self, address: int, size: int) -> None:
        # Replace the bytes that an instruction stores by the outputs that they are shown to be.
        cuts = self.cuts.get(self.machine.count)
        if cuts is None and not self.machine.elements:
            return
        left = list(cuts or ())
        for a in range(address, address + size):
            piece = self.memory.byte(a)
            if isinstance(piece, int):
                continue
            for cut in left:
                if self._is(piece, *cut):
                    self.memory.store_byte(a, self.network.values(cut[0])[cut[1]])
                    left.remove(cut)
                    break
            else:
                if a <= MASK:  # no stack
                    self._is_softmax(a, piece)

    def _is_softmax(self, address: int, piece: Piece) -> None:
        # Such a byte names its output by the element and the row that it depends on.
        for layer in self.network.layers:
            if isinstance(layer, Softmax):
                try:
                    self.network.values(layer.operator.outputs[0])
                    index = self.rows.place(piece, layer)
                except Refused as refused:
                    self.reason = str(refused)
                    continue
                if index is not None:
                    self.memory.store_byte(address, layer.values[index])
                    layer.accepted.add(index)
                    self.last = self.machine.count

    def _is(self, piece: Piece, tensor: int, index: int) -> bool:
        layer = self.network.by_tensor.get(tensor)
        if layer is None or not 0 <= index < len(self.network.values(tensor)):
            raise Refused(f"the certificate names element {index} of tensor {tensor}, which is no output")
        if isinstance(layer, Addition):
            fits = self.comparer.is_pair(piece, layer, index)
        elif isinstance(layer, Greatest):
            fits = self.comparer.is_greatest(piece, layer.sets[index])
        else:
            form = layer.forms.get(index)
            fits = form is not None and self.comparer.is_sum(piece, form)
        if fits:
            layer.accepted.add(index)
            self.last = self.machine.count
        return fits

    def _found(self) -> int:
        found = 0
        outputs = self.network.model.outputs
        for at, tensor in zip(self._places("output", outputs), outputs, strict=True):
            if self._is_known(tensor):
                found += sum(self._is_at(at + i, v) for i, v in enumerate(self.network.values(tensor)))
        return found

    def _left(self) -> tuple[str, ...]:
        return tuple(f"{y.operator.number} {y.name}" for y in self.network.layers if y.is_left)

    def _layers(self) -> Iterator[tuple[int, str, int, int]]:
        for layer in self.network.layers:
            if layer.is_left:
                continue
            if not layer.values:
                yield layer.operator.number, layer.name, 0, layer.output.size
                continue
            own = {
                v.index
                for v in layer.values
                if isinstance(v, Symbol) and v.tensor == layer.operator.outputs[0]
            }
            yield layer.operator.number, layer.name, len(layer.accepted), len(own)
