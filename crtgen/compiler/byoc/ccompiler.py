"""An example generator: C for subgraphs of additions, subtractions and multiplications."""

from typing import ClassVar

import numpy as np

from crtgen.compiler.byoc import arithmetic
from crtgen.compiler.byoc.generator import Generated, Generator, Pattern
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Target
from crtgen.compiler.kernels.engine.loops import Loop, index_of, merge, strides_of
from crtgen.network.ir import Graph, Op, Signature, Value
from crtgen.network.ops import Add, Mul, Sub

__all__ = ["CCompiler"]


class CCompiler(Generator):
    """Turns a subgraph of any rank and type into one loop over its elements, with numpy's broadcasting."""

    name = "ccompiler"
    patterns: ClassVar[tuple[Pattern, ...]] = ((Add,), (Sub,), (Mul,))
    merges: ClassVar[bool] = True

    def reason(self, op: Op, sig: Signature) -> str:
        return arithmetic.reason(op, sig)

    def reason_as_a_whole(self, subgraph: Graph) -> str:
        try:
            np.broadcast_shapes(*(v.shape for v in subgraph.values.values()))
        except ValueError:
            return "its shapes do not broadcast to one"
        return ""

    def generate(self, subgraph: Graph, target: Target) -> Generated:
        values = subgraph.values
        shape = np.broadcast_shapes(*(v.shape for v in values.values()))
        constants = [v for v in values.values() if v.is_constant]
        read = [*((values[n], f"x{i}") for i, n in enumerate(subgraph.inputs)),
                *((v, f"c{i}") for i, v in enumerate(constants))]  # fmt: skip
        written = [(values[n], f"y{i}") for i, n in enumerate(subgraph.outputs)]
        strides = [_strides(v, len(shape)) for v, _ in (*read, *written)]
        loops = merge(
            [Loop(n, s) for n, s in zip(shape, zip(*strides, strict=True), strict=True)], len(strides)
        )
        index = [index_of(loops, operand) for operand in range(len(strides))]

        local = {value.name: f"v{i}" for i, value in enumerate(values.values())}
        lines = [f"    for (int32_t i{n} = 0; i{n} < {loop.count}; i{n}++)" for n, loop in enumerate(loops)]
        lines.append("    {")
        for (value, name), at in zip(read, index, strict=False):
            lines.append(f"        const {value.dtype.c_name} {local[value.name]} = {name}[{at}];")
        for node in subgraph.nodes:
            result = values[node.outputs[0]]
            text = arithmetic.expression(node.op.name, result.dtype, *(local[n] for n in node.inputs))
            lines.append(f"        const {result.dtype.c_name} {local[result.name]} = {text};")
        for (value, name), at in zip(written, index[len(read) :], strict=True):
            lines.append(f"        {name}[{at}] = {local[value.name]};")
        lines.append("    }")
        return Generated(
            body="\n".join(lines),
            consts=tuple(Const.of(f"c{i}", v.array()) for i, v in enumerate(constants)),
            inplace=_leave(subgraph, int(np.prod(shape, dtype=np.int64))),
        )


def _strides(value: Value, rank: int) -> tuple[int, ...]:
    # Elements between neighbours along the axes of the whole walk: 0 where the value is repeated.
    own = zip(value.shape, strides_of(value.shape), strict=True)
    strides = tuple(0 if length == 1 else stride for length, stride in own)
    return (0,) * (rank - len(strides)) + strides


def _leave(subgraph: Graph, elements: int) -> tuple[InPlace, ...]:
    # An output may be over an input that is walked as it is: each element is read before it is written.
    def whole(names: tuple[str, ...]) -> list[int]:
        return [i for i, n in enumerate(names) if subgraph.values[n].elements == elements]

    return tuple(InPlace(i, o) for o in whole(subgraph.outputs) for i in whole(subgraph.inputs))
