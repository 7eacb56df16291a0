"""The operator that replaces a subgraph of an external generator, and its kernel."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from crtgen.base.errors import UsageError
from crtgen.compiler.byoc.generator import Generator
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.sources import ModuleOf
from crtgen.network.ir import Array, DType, Graph, Op, Signature, Value
from crtgen.network.ops.control import ControlFlow

__all__ = ["External", "constants_of"]


@dataclass(frozen=True, slots=True, eq=False)
class External(Op):
    """A subgraph. Its inputs are those of the node; its constants belong to itself."""

    name: ClassVar[str] = "external"

    generator: Generator
    subgraph: Graph

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        wanted = [self.subgraph.values[name] for name in self.subgraph.inputs]
        if [(v.shape, v.dtype) for v in inputs] != [(v.shape, v.dtype) for v in wanted]:
            raise ValueError("the inputs of the generated function are not those of its subgraph")
        return tuple((v.shape, v.dtype) for v in (self.subgraph.values[n] for n in self.subgraph.outputs))

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        values = self.subgraph.evaluate(dict(zip(self.subgraph.inputs, arrays, strict=True)))
        return tuple(values[name] for name in self.subgraph.outputs)

    def macs(self, sig: Signature) -> int:
        return sum(node.op.macs(self.subgraph.signature(node)) for node in self.subgraph.nodes)

    def attributes(self) -> str:
        return f"generator={self.generator.name} nodes={','.join(n.op.name for n in self.subgraph.nodes)}"


def constants_of(graph: Graph) -> tuple[Value, ...]:
    return tuple({n: v for g in _graphs(graph) for n, v in g.values.items() if v.is_constant}.values())


def _graphs(graph: Graph) -> Iterator[Graph]:
    # The graph and its subgraphs, however deep.
    yield graph
    for op in (node.op for node in graph.nodes):
        inner = (op.subgraph,) if isinstance(op, External) else ()
        for subgraph in op.graphs if isinstance(op, ControlFlow) else inner:
            yield from _graphs(subgraph)


@dataclass(frozen=True, slots=True)
class _View:
    body: str


@design(External, weights=None)
def external(op: External, sig: Signature, target: Target) -> Kernel:
    made = op.generator.generate(op.subgraph, target)
    names = [const.name for const in made.consts]
    for name in names:
        if not name.isidentifier() or names.count(name) > 1:
            raise UsageError(
                f"{name!r} is not the name of a constant, or occurs twice",
                where=op.generator.name,
                hint="Const names are C identifiers, each used once",
            )
    return Kernel(
        design=op.generator.name,
        template="external.c.j2",
        view=_View(made.body.rstrip("\n")),
        consts=made.consts,
        scratch=made.scratch,
        apart=made.apart,
        inplace=made.inplace,
        includes=made.includes,
        support=made.support.strip("\n") + "\n" if made.support else "",
        libraries=made.libraries,
        fails=made.fails,
        estimate=made.estimate,
        module=ModuleOf(op.generator.name, op.generator.context, op.generator.handle),
    )
