"""CMSIS-NN as a code generator: Arm's kernels, with their working memory planned in crtgen's arena.

Only its public interface is used, from version 4.1 on for int8 and 7.0 for the rest; arithmetic and layouts
are TFLite's, like crtgen's own. The sources are the user's copy, of which the necessary files go into the
project.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from crtgen.compiler.byoc.cmsis_nn import elements, matrices, recurrent, windows
from crtgen.compiler.byoc.cmsis_nn.layer import CmsisCode, CmsisLayer, has_own_scales
from crtgen.compiler.byoc.cmsis_nn.reasons import reason
from crtgen.compiler.byoc.cmsis_nn.sources import CmsisSources, find_sources
from crtgen.compiler.byoc.cmsis_nn.transposed import BLOCKS, PATTERNS, find_transposed, transposed
from crtgen.compiler.byoc.generator import Generated, Generator, Pattern
from crtgen.compiler.kernels.engine.kernel import Const, Target
from crtgen.compiler.kernels.engine.sources import SourceLibrary
from crtgen.network.ir import Array, DType, Graph, Op, Signature, Value
from crtgen.network.ops import (
    Add,
    AveragePool2d,
    Conv2d,
    DepthwiseConv2d,
    FullyConnected,
    Logistic,
    MaxPool2d,
    Mul,
    Pad,
    Softmax,
    Tanh,
    Transpose,
)
from crtgen.network.ops.compare import Maximum, Minimum
from crtgen.network.ops.lstm import Lstm
from crtgen.network.ops.matmul import BatchMatMul
from crtgen.network.ops.svdf import Svdf

__all__ = ["CMSIS_NN", "CmsisNn"]

CMSIS_NN = "cmsis-nn"

_WRITERS: Mapping[type[Op], Callable[[CmsisLayer, CmsisSources], CmsisCode]] = {
    Conv2d: windows.convolution,
    DepthwiseConv2d: windows.depthwise,
    AveragePool2d: windows.pool,
    MaxPool2d: windows.pool,
    FullyConnected: matrices.fully_connected,
    BatchMatMul: matrices.matmul,
    Add: elements.add,
    Mul: elements.mul,
    Maximum: elements.extreme,
    Minimum: elements.extreme,
    Logistic: elements.activation,
    Tanh: elements.activation,
    Softmax: elements.softmax,
    Pad: elements.pad,
    Transpose: elements.transpose,
    Svdf: recurrent.svdf,
    Lstm: recurrent.lstm,
}


class CmsisNn(Generator):
    name = CMSIS_NN
    patterns: ClassVar[tuple[Pattern, ...]] = (*PATTERNS, *((kind,) for kind in _WRITERS))

    def __init__(self, path: str | Path = "") -> None:
        self.sources = CmsisSources(find_sources(str(path)))

    @classmethod
    def create(cls, options: Mapping[str, str]) -> Self:
        cls.refuse_unknown(options, ["path"], "docs/byoc.md lists its options")
        return cls(options.get("path", ""))

    def version(self) -> str:
        return f"{self.sources.digest()[:16]} {super().version()[:16]}"

    def reason(self, op: Op, sig: Signature) -> str:
        try:
            found = reason(op, sig)
        except ValueError as error:
            return str(error)
        if not found and isinstance(op, FullyConnected) and has_own_scales(op.parameters(sig)):
            lacks = not self.sources.defines(matrices.PER_CHANNEL)
            return f"this release of CMSIS-NN lacks {matrices.PER_CHANNEL}" if lacks else ""
        return found

    def reason_as_a_whole(self, subgraph: Graph) -> str:
        if len(subgraph.nodes) > 1:
            return "" if find_transposed(subgraph) else "it is no transposed convolution of int8"
        (node,) = subgraph.nodes
        blocks = isinstance(node.op, Transpose) and node.op.perm == BLOCKS
        return "it has more than four axes" if blocks else ""

    def library_for(self, headers: Collection[str], code: str) -> SourceLibrary | None:
        if not any(map(self.sources.has_header, headers)):
            return None
        return self.sources.library(self.sources.called_in(code))

    def generate(self, subgraph: Graph, target: Target) -> Generated:
        extension = "mve" if target.core.mve else "dsp" if target.core.dsp else ""
        found = find_transposed(subgraph)
        if found is not None:
            return self._generated(transposed(found, self.sources, extension))
        (node,) = subgraph.nodes
        sig = subgraph.signature(node)
        inputs = {name: f"x{i}" for i, name in enumerate(subgraph.inputs)}
        names = _names(node.inputs, inputs)
        code = _WRITERS[type(node.op)](CmsisLayer(node.op, sig, names, extension), self.sources)
        given = {
            name: Const.of(name, _data(value), max(value.dtype.itemsize, 4))
            for name, value in zip(names, sig.inputs, strict=True)
            if value.is_constant
        }
        return self._generated(code, *given.values())

    def _generated(self, code: CmsisCode, *consts: Const) -> Generated:
        return Generated(
            body="\n".join(f"    {line}" for line in code.lines),
            consts=(*consts, *code.consts),
            scratch=code.buffer,
            includes=("arm_nnfunctions.h",),
            libraries=(self.sources.library(code.functions),),
            inplace=code.inplace,
        )


def _data(value: Value) -> Array:
    # The constant as CMSIS-NN reads it: of four bits, two in a byte, the first one in its low half.
    numbers = value.array()
    if value.dtype is not DType.INT4:
        return numbers
    flat = np.append(numbers.astype(np.int8).reshape(-1), np.zeros(numbers.size % 2, np.int8)) & 15
    packed: Array = (flat[::2] | flat[1::2] << 4).astype(np.int8)
    return packed


def _names(inputs: Sequence[str], variable: Mapping[str, str]) -> tuple[str, ...]:
    # The node's inputs in C: arguments of the function, or constants by their place.
    first = {name: f"operand{inputs.index(name)}" for name in inputs}
    return tuple(variable.get(name, first[name]) for name in inputs)
