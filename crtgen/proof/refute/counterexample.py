"""Finds an input for which an image differs from the network, by running both."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crtgen.base import files
from crtgen.base.errors import LinkError, MismatchError
from crtgen.boards import Board
from crtgen.proof.checker.binary.image import DecodedImage, read_image
from crtgen.proof.checker.core.layout import STACK_TOP, allow, variables
from crtgen.proof.checker.core.machine import Machine
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.network.numbers import Numbers, OnNumbers
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.surroundings.npu import DRIVER
from crtgen.proof.checker.surroundings.places import places
from crtgen.proof.checker.verdict import Proof
from crtgen.proof.refute.inputs import inputs_to_try
from crtgen.proof.refute.qemu import at_compute

__all__ = ["Refutation", "refute"]

# Limits of a search in instructions, by the machine that runs them.
_INSTRUCTIONS = {"QEMU": 2_000_000_000, "the checker": 10_000_000}
_FEWEST, _MOST, _LONGEST = 4, 200, 8
# A run is given up after this many times the instructions of the proof.
_MARGIN = 4


# Inputs to outputs, each with the elements of all tensors one behind the other; true after a start.
_Run: TypeAlias = Callable[[Numbers, bool], Numbers]


@dataclass(frozen=True, slots=True, eq=False)
class Refutation:
    """Result of a search: the number of inputs tried, the machine, and the first inputs that showed a
    difference.

    ``inputs`` are the concatenated elements of all inputs, for each run since a start; a network without
    states has one run. ``wanted`` has all outputs of the network, ``got`` those of the last run, or None if
    that did not return 0. If ``inputs`` is empty, no difference was found.
    """

    tried: int
    where: str
    inputs: tuple[Numbers, ...] = ()
    wanted: tuple[Numbers, ...] = ()
    got: Numbers | None = None
    reason: str = ""

    def lines(self) -> list[str]:
        if not self.inputs:
            why = f" ({self.reason})" if self.reason else ""
            return [f"no input was found that differs, in {self.tried:,} tries{why}"]
        after = f" in run {len(self.inputs)} after a start" if len(self.inputs) > 1 else ""
        found, wanted = f"input {_short(self.inputs[-1])}{after}", self.wanted[-1]
        if self.got is None:
            return [f"{found}: the function does not return 0: {self.reason} (run by {self.where})"]
        i = int(np.nonzero(self.got != wanted)[0][0])
        differ = f"{int((self.got != wanted).sum()):,} of {self.got.size:,} outputs differ"
        says = f"output {i} is {self.got[i]}, the network says {wanted[i]}"
        return [f"{found}: {says}; {differ} (run by {self.where}, try {self.tried:,})"]

    def to_dict(self) -> dict[str, Any]:
        return {
            "tried": self.tried,
            "run_by": self.where,
            "reason": self.reason or None,
            "inputs": [x.tolist() for x in self.inputs],
            "wanted": [y.tolist() for y in self.wanted],
            "got": None if self.got is None else self.got.tolist(),
        }

    def write(self, path: Path, network: Network) -> None:
        """Write inputs and the network's outputs into an ``.npz`` file, as a case for ``crtgen verify``."""
        file, buffer = network.file, BytesIO()
        arrays: dict[str, Any] = {}
        for run, (x, y) in enumerate(zip(self.inputs, self.wanted, strict=True)):
            step = f"step{run}_" if network.states else ""
            for name, tensors, values in (("input", file.inputs, x), ("output", file.outputs, y)):
                for i, part in enumerate(_parts(network, tensors, values)):
                    arrays[f"case0_{step}{name}{i}"] = part.reshape(file.shape(tensors[i]))
        np.savez(buffer, **arrays)
        files.write(path, buffer.getvalue())


def _parts(network: Network, tensors: Sequence[int], x: Numbers) -> list[NDArray[Any]]:
    # Elements of tensors one behind the other, as arrays of the tensors' types.
    ends = list(accumulate(network.file.size(t) for t in tensors))
    parts = np.split(x, ends[:-1])
    return [part.astype(_type(network, t)) for part, t in zip(parts, tensors, strict=True)]


def _type(network: Network, tensor: int) -> np.dtype[Any]:
    kind = network.file.kind(tensor)
    return np.dtype(f"{'u' if kind.low == 0 else 'i'}{kind.bits // 8}")


def _short(x: Numbers) -> str:
    values = ", ".join(map(str, x[:24].tolist()))
    return f"[{values}{', ...' if x.size > 24 else ''}]"


def refute(proof: Proof, path: Path, board: Board | None = None) -> Refutation:
    """Search for an input for which the image at ``path`` differs from its network.

    QEMU runs the image from its reset if it simulates the ``board``; otherwise the checker runs the image on
    concrete values.
    """
    image = read_image(path)
    if f"{proof.model}_compute" not in image.symbols:
        return Refutation(0, "", reason="images that run step by step are not searched")
    if DRIVER in image.symbols:
        return Refutation(0, "", reason="images with an NPU are not searched; crtgen verify runs them")
    try:
        on = OnNumbers(proof.network)
        with _runs(proof, image, board) as (where, run):
            each = max(proof.instructions[1], 1)
            tries = max(_FEWEST, min(_MOST, _INSTRUCTIONS[where] // each))
            return _search(on, where, run, tries)
    except (Refusal, LinkError) as error:
        return Refutation(0, "", reason=str(error))


def _search(on: OnNumbers, where: str, run: _Run, tries: int) -> Refutation:
    # Tries one after the other; a network with states starts anew after some.
    inputs: list[Numbers] = []
    wanted: list[Numbers] = []
    states = on.first
    for tried, x in enumerate(islice(inputs_to_try(on), tries), 1):
        if len(inputs) == (_LONGEST if on.states.stop > on.states.start else 1):
            inputs, wanted, states = [], [], on.first
        given = x[: on.states.start]
        outputs, after = on.results(np.concatenate([given, states[: x.size - given.size]]))
        inputs.append(given)
        wanted.append(outputs)
        try:
            got = run(given, len(inputs) == 1)
        except (MismatchError, LinkError) as error:
            return Refutation(tried, where, tuple(inputs), tuple(wanted), reason=str(error))
        if (got != outputs).any():
            return Refutation(tried, where, tuple(inputs), tuple(wanted), got)
        states = after
    return Refutation(tries, where)


@contextmanager
def _runs(proof: Proof, image: DecodedImage, board: Board | None) -> Iterator[tuple[str, _Run]]:
    # Who runs the function, and how. After a start all that the model keeps from run to run is 0.
    most = _MARGIN * (proof.instructions[1] + 1_000_000)
    entry, network, name = image.symbols[f"{proof.model}_compute"], proof.network, proof.model
    inputs, outputs = network.file.inputs, network.file.outputs
    at = places(image, network, name, "input")
    kept = [(first, bytes(end - first)) for first, end in variables(image, name)]
    types = [_type(network, t) for t in outputs]
    sizes = [network.file.size(t) * kind.itemsize for t, kind in zip(outputs, types, strict=True)]
    read = list(zip(places(image, network, name, "output"), sizes, strict=True))

    def run(x: Numbers, first: bool, core: Callable[..., list[bytes]]) -> Numbers:
        parts = (part.tobytes() for part in _parts(network, inputs, x))
        found = core([*(kept if first else ()), *zip(at, parts, strict=True)], read)
        arrays = [np.frombuffer(data, kind) for data, kind in zip(found, types, strict=True)]
        return np.concatenate(arrays).astype(np.int64)

    if board is None or board.qemu is None:
        core = partial(_by_checker, _core(image, name, most), image.symbols[f"{name}_compute"])
        yield "the checker", partial(run, core=core)
        return
    with at_compute(image, board, entry, proof.instructions[1]) as stopped:
        yield "QEMU", partial(run, core=stopped.run)


def _core(image: DecodedImage, name: str, most: int) -> Machine:
    # A core of the checker's, for many runs.
    machine = Machine(image, most)
    allow(machine, name)
    return machine


def _by_checker(
    machine: Machine,
    entry: int,
    written: Sequence[tuple[int, bytes]],
    read: Sequence[tuple[int, int]],
) -> list[bytes]:
    # Memory after a run. Code that the checker does not follow is a ``Refusal``, and shows nothing.
    machine.count = 0
    for at, data in written:
        for i, byte in enumerate(data):
            machine.memory.store_byte(at + i, byte)
    machine.run(entry, STACK_TOP)
    if machine.r[0] != 0:
        raise MismatchError(f"the image returns status {machine.r[0]}, expected 0")
    found = [[machine.memory.byte(at + i) for i in range(size)] for at, size in read]
    if not all(isinstance(b, int) for data in found for b in data):
        raise Refusal("the output depends on memory or a register that nothing wrote")
    return [bytes(b for b in data if isinstance(b, int)) for data in found]
