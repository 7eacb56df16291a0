"""Networks and kernels without arithmetic: what the planner sees of a model, and nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel
from crtgen.network.ir import Array, DType, Graph, Node, Op, Signature, Value

__all__ = ["Net", "kernel", "node"]


@dataclass(frozen=True, slots=True)
class Fake(Op):
    """Any inputs to int8 vectors of the given lengths."""

    sizes: tuple[int, ...]
    name: ClassVar[str] = "fake"

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        return tuple(((size,), DType.INT8) for size in self.sizes)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(np.zeros(size, np.int8) for size in self.sizes)


def kernel(*inplace: InPlace, scratch: int = 0, alias: bool = False) -> Kernel:
    return Kernel("fake", "" if alias else "fake.c.j2", None, scratch=scratch, inplace=inplace)


@dataclass(frozen=True)
class _Spec:
    name: str
    inputs: tuple[str, ...]
    outputs: Mapping[str, int]
    kernel: Kernel


def node(name: str, inputs: str, outputs: Mapping[str, int], k: Kernel | None = None) -> _Spec:
    """``inputs`` are names with spaces between, ``outputs`` names with their bytes."""
    return _Spec(name, tuple(inputs.split()), outputs, k or kernel())


class Net:
    """A graph of fakes with its kernels."""

    def __init__(
        self, inputs: Mapping[str, int], outputs: str, *specs: _Spec, constants: Sequence[str] = ()
    ) -> None:
        values = [Value(n, (size,), DType.INT8) for n, size in inputs.items()]
        values += [Value(n, (size,), DType.INT8) for s in specs for n, size in s.outputs.items()]
        values += [Value.constant(n, np.zeros(4, np.int8)) for n in constants]
        nodes = [Node(s.name, Fake(tuple(s.outputs.values())), s.inputs, tuple(s.outputs)) for s in specs]
        self.graph = Graph.build("net", values, nodes, list(inputs), outputs.split())
        self.kernels = {s.name: s.kernel for s in specs}
