"""An input for which an image gives something else than the network: found by running both."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from crtgen import files
from crtgen.boards import Board
from crtgen.errors import LinkError
from crtgen.prove.image import Image, read_image
from crtgen.prove.machine import Machine
from crtgen.prove.network.network import Network
from crtgen.prove.proof import STACK_TOP, Proof, allow, places
from crtgen.prove.refusal import Refusal
from crtgen.refute.inputs import inputs_to_try
from crtgen.refute.numbers import Numbers, OnNumbers
from crtgen.refute.qemu import at_compute

__all__ = ["Refutation", "refute"]

_INSTRUCTIONS = {"QEMU": 2_000_000_000, "the checker": 10_000_000}
"""How many are spent on a search, by what runs them."""
_FEWEST, _MOST = 4, 200


@dataclass(frozen=True, slots=True, eq=False)
class Refutation:
    """How many inputs were tried, by what, and the first that showed something: int8, as the tensors are.

    ``got`` is None where the function did not return. Without an ``input`` nothing was found.
    """

    tried: int
    where: str
    input: Numbers | None = None
    wanted: Numbers | None = None
    got: Numbers | None = None
    reason: str = ""

    def lines(self) -> list[str]:
        """In words."""
        if self.input is None or self.wanted is None:
            why = f" ({self.reason})" if self.reason else ""
            return [f"no input was found that differs, in {self.tried:,} tries{why}"]
        found = f"input {_short(self.input)}"
        if self.got is None:
            return [f"{found}: the function does not return ({self.where})"]
        i = int(np.nonzero(self.got != self.wanted)[0][0])
        differ = f"{int((self.got != self.wanted).sum()):,} of {self.got.size:,} outputs differ"
        says = f"output {i} is {self.got[i]}, the network says {self.wanted[i]}"
        return [f"{found}: {says}; {differ} (run by {self.where}, try {self.tried:,})"]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        arrays = {name: getattr(self, name) for name in ("input", "wanted", "got")}
        lists = {name: None if a is None else a.tolist() for name, a in arrays.items()}
        return {"tried": self.tried, "run_by": self.where, **lists}

    def write(self, path: Path, network: Network) -> None:
        """Write the input and the network's output into an ``.npz`` file, as a case for ``crtgen verify``."""
        assert self.input is not None  # asked for where there is one
        assert self.wanted is not None
        x, y, buffer = network.file.inputs[0], network.file.outputs[0], BytesIO()
        np.savez(
            buffer,
            case0_input0=self.input.astype(np.int8).reshape(network.file.shape(x)),
            case0_output0=self.wanted.astype(np.int8).reshape(network.file.shape(y)),
        )
        files.write(path, buffer.getvalue())


def _short(x: Numbers) -> str:
    values = ", ".join(map(str, x[:24].tolist()))
    return f"[{values}{', ...' if x.size > 24 else ''}]"


def refute(proof: Proof, path: Path, board: Board | None = None) -> Refutation:
    """Look for an input for which the image at ``path`` does not what its network says.

    Runs are QEMU's, from reset on, where it simulates the ``board``; else the checker's own, on numbers.
    """
    image = read_image(path)
    try:
        on = OnNumbers(proof.network)
        with _runs(proof, image, board) as (where, run):
            each = max(proof.instructions[1], 1)
            tries = max(_FEWEST, min(_MOST, _INSTRUCTIONS[where] // each))
            return _search(on, where, run, tries)
    except (Refusal, LinkError) as error:
        return Refutation(0, "", reason=str(error))


def _search(on: OnNumbers, where: str, run: Callable[[bytes], bytes], tries: int) -> Refutation:
    for tried, x in enumerate(islice(inputs_to_try(on), tries), 1):
        wanted = on.output(x)
        try:
            got = np.frombuffer(run(x.astype(np.int8).tobytes()), np.int8).astype(np.int64)
        except (Refusal, LinkError):
            return Refutation(tried, where, x, wanted)
        if (got != wanted).any():
            return Refutation(tried, where, x, wanted, got)
    return Refutation(tries, where)


@contextmanager
def _runs(proof: Proof, image: Image, board: Board | None) -> Iterator[tuple[str, Callable[[bytes], bytes]]]:
    """Who runs the function, and how: bytes of the input in, bytes of the output out."""
    entry = image.symbols[f"{proof.model}_compute"]
    (at,), (result,) = (places(image, proof.model, which, 1) for which in ("input", "output"))
    size = proof.outputs

    def by_checker(x: bytes) -> bytes:
        machine = Machine(image, 1 << 40)
        allow(machine, proof.model)
        for i, byte in enumerate(x):
            machine.memory.store_byte(at + i, byte)
        machine.run(entry, STACK_TOP)
        found = [machine.memory.byte(result + i) for i in range(size)]
        if not all(isinstance(b, int) for b in found):
            raise Refusal("the output depends on memory or a register that nothing wrote")
        return bytes(b for b in found if isinstance(b, int))

    if board is None or board.qemu is None:
        yield "the checker", by_checker
        return
    with at_compute(image.path, board, entry, proof.instructions[1]) as core:
        yield "QEMU", lambda x: core.run(at, x, result, size)
