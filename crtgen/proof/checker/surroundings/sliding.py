"""Images that receive only the new part of each window and keep the rest: each run is proven, until one
stands for all that follow.

Before the first run, the signal is silence: the zero point of the input. Each run has a network of its own,
over the whole window that ends with this run. A layer output that was computed from the same elements in the
previous window has the same symbol, so a byte that the state kept is recognised. Once windows are full of
signal and a run leaves, in each byte of the state, the element at the same position of its own window that
the previous run left of its window, every later run is like this one, which was proven for all signals.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from crtgen.proof.checker.algebra.value import Byte, LinearSum, Symbol, WordByte
from crtgen.proof.checker.network.file import ModelFile
from crtgen.proof.checker.network.layer import Value
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.refusal import Refusal

__all__ = ["SlidingWindow", "kept", "repeats", "windows"]


Kept: TypeAlias = tuple[Value | None, int]
"""Content of a state's byte: a number, or a symbol and one of its bytes; None for anything else."""


class SlidingWindow(NamedTuple):
    """Windows that advance by ``step`` positions along ``axis`` of the input, counted from 0."""

    axis: int
    step: int

    def runs(self, length: int) -> int:
        return -(-length // self.step)


def windows(path: Path, window: SlidingWindow) -> Iterator[tuple[Network, bool]]:
    """Yield the network on the window of each run, endlessly, and True once the window is full of signal.

    Raises ``Refusal`` for a network that cannot slide over a signal.
    """
    if path.suffix.lower() == ".onnx":
        raise Refusal("windows over a signal are followed in .tflite files only")
    file = ModelFile(path)
    if len(file.inputs) != 1 or file.variables():
        raise Refusal("windows slide over one input, of a network that keeps nothing by itself")
    (tensor,), shape = file.inputs, file.shape(file.inputs[0])
    axis, step = window
    if not 0 <= axis < len(shape) or not 0 < step < shape[axis]:
        raise Refusal(f"windows of {shape} do not overlap along axis {axis} at a step of {step}")
    kind, zero = file.kind(tensor), file.zero_point(tensor)
    whole, before, run = _objects([zero] * file.size(tensor)).reshape(shape), None, 0
    while True:
        added = (*whole.shape[:axis], step, *whole.shape[axis + 1 :])
        count = int(np.prod(added))
        new = [Symbol(tensor, run * count + i, kind.low, kind.high, kind.bits) for i in range(count)]
        part = _objects(new).reshape(added)
        whole = np.concatenate([np.delete(whole, range(step), axis), part], axis)
        run += 1
        network = Network(path, window=whole.ravel().tolist(), new=new, before=before, given_shape=added)
        yield network, run >= window.runs(shape[axis])
        before = network


def _objects(values: Sequence[Value]) -> Any:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def kept(span: tuple[int, int], byte: Callable[[int], Byte]) -> list[Kept]:
    return [_named(byte(at)) for at in range(*span)]


def _named(byte: Byte) -> Kept:
    if not isinstance(byte, WordByte):
        return byte, 0
    terms = byte.word.terms() if isinstance(byte.word, LinearSum) and byte.word.constant == 0 else {}
    symbol = next(iter(terms), None)
    return (symbol, byte.index) if list(terms.values()) == [1] else (None, 0)


def repeats(before: tuple[Network, list[Kept]], after: tuple[Network, list[Kept]]) -> bool:
    """Return True if, after two successive runs, each byte of a state is the same element of each run's
    window.
    """
    first, last = _places(before[0]), _places(after[0])
    for (one, i), (other, k) in zip(before[1], after[1], strict=True):
        if isinstance(one, Symbol) and isinstance(other, Symbol):
            if i != k or first.get(one, set()).isdisjoint(last.get(other, set())):
                return False
        elif one is None or isinstance(one, Symbol) or one != other:
            return False
    return True


def _places(network: Network) -> Mapping[Symbol, set[tuple[int, int]]]:
    # Tensors and elements of each symbol.
    found: dict[Symbol, set[tuple[int, int]]] = {}
    for tensor, values in network.tensors():
        for i, value in enumerate(values):
            if isinstance(value, Symbol):
                found.setdefault(value, set()).add((tensor, i))
    return found
