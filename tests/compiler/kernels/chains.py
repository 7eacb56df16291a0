"""A chain of operators as one, with the reference of all of them: what a loop over rows has to compute."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, TypeAlias

from crtgen.compiler.kernels import Kernel, Parts, RowStage, Target
from crtgen.compiler.kernels.rows.row_loop import row_loop
from crtgen.compiler.kernels.rows.row_stream import row_stream
from crtgen.network.ir import Array, DType, Op, Signature, Value
from crtgen.network.ops.attrs import require
from crtgen.network.ops.binary import Add
from crtgen.network.ops.conv import Conv2d, DepthwiseConv2d
from crtgen.network.ops.pool import AveragePool2d, MaxPool2d
from crtgen.network.ops.resize import ResizeBilinear, ResizeBytes, ResizeNearest
from crtgen.network.ops.shape import Concat

__all__ = ["Chain", "Joined", "Stage", "SumBeside", "Windowed", "loop_kernels", "stream_kernels"]

Windowed: TypeAlias = Conv2d | DepthwiseConv2d | AveragePool2d | MaxPool2d


@dataclass(frozen=True, slots=True)
class SumBeside(Op):
    """``x0 + layer(x1)``: an addition whose other operand a layer makes, as in a residual block that halves.

    The inputs are the two images, then what the layer takes beside its own. ``projected`` is what it makes,
    with its quantisation.
    """

    name: ClassVar[str] = "sum_beside"

    layer: Windowed
    projected: Value
    add: Add

    @property
    def stages(self) -> tuple[Windowed, Add]:
        """The operators that it consists of."""
        return self.layer, self.add

    def signatures(self, sig: Signature) -> tuple[Signature, Signature]:
        """What the layer and the addition are applied to."""
        return Signature(sig.inputs[1:], (self.projected,)), Signature((sig.x, self.projected), sig.outputs)

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        made = self.layer.infer(inputs[1:])
        _require_made(self.layer, made, self.projected)
        return self.add.infer((inputs[0], self.projected))

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        layer, add = self.signatures(sig)
        return self.add.reference(add, (arrays[0], *self.layer.reference(layer, arrays[1:])))

    def attributes(self) -> str:
        """The attributes of both operators, and what lies between them."""
        return f"{' '.join(map(_text, self.stages))} projected={self.projected}"


@dataclass(frozen=True, slots=True)
class Joined(Op):
    """The channels of the image and of another one; of the other one first if ``turned``."""

    name: ClassVar[str] = "joined"
    unscaled: ClassVar[bool] = True

    turned: bool = False

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        return Concat(3).infer(inputs)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return Concat(3).reference(sig, arrays[::-1] if self.turned else arrays)


Resize: TypeAlias = ResizeNearest | ResizeBilinear | ResizeBytes
Stage: TypeAlias = Windowed | Add | SumBeside | Joined | Resize


def _others(stage: Stage) -> int:
    """How many inputs a stage has beside the image: weights and bias, or what the other operand needs."""
    match stage:
        case Add() | Joined():
            return 1
        case SumBeside():
            return 1 + _others(stage.layer)
    return 2 if isinstance(stage, Conv2d | DepthwiseConv2d) else 0


def _require_made(stage: Stage, made: tuple[tuple[tuple[int, ...], DType], ...], value: Value) -> None:
    require(made == ((value.shape, value.dtype),), f"{value.name} is not what {stage.name} computes")


def _text(stage: Stage) -> str:
    return f"{stage.name}({stage.attributes()})"


@dataclass(frozen=True, slots=True)
class Chain(Op):
    """``stages`` one after the other, of which ``rows`` rows of outputs are computed at a time.

    The inputs are the first stage's image, then what each stage takes beside its image. ``between`` are the
    outputs of all stages but the last, with their quantisation. The rows divide the height of the output.
    """

    name: ClassVar[str] = "chain"

    stages: tuple[Stage, ...]
    between: tuple[Value, ...]
    rows: int

    def inputs_of(self, stage: int) -> range:
        """Which inputs are those of a stage beside its image."""
        first = 1 + sum(map(_others, self.stages[:stage]))
        return range(first, first + _others(self.stages[stage]))

    @property
    def inner(self) -> tuple[Value, ...]:
        """Every image that never exists as a whole."""
        return (
            *self.between,
            *(stage.projected for stage in self.stages if isinstance(stage, SumBeside)),
        )

    def signatures(self, sig: Signature) -> tuple[Signature, ...]:
        """What each stage is applied to."""
        images = pairwise((sig.x, *self.between, sig.y))
        return tuple(
            Signature((x, *(sig.inputs[i] for i in self.inputs_of(stage))), (y,))
            for stage, (x, y) in enumerate(images)
        )

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require(len(self.stages) >= 2, "a single stage")
        require(len(self.stages) == len(self.between) + 1, f"{len(self.between)} values between the stages")
        wanted = 1 + sum(map(_others, self.stages))
        require(len(inputs) == wanted, f"it has {len(inputs)} inputs instead of {wanted}")
        x = inputs[0]
        require(len(x.shape) == 4, f"{x.name} has {len(x.shape)} dimensions instead of four")
        for number, stage in enumerate(self.stages):
            outputs = stage.infer((x, *(inputs[i] for i in self.inputs_of(number))))
            if number < len(self.between):
                x = self.between[number]
                _require_made(stage, outputs, x)
        height = outputs[0][0][1]
        require(self.rows >= 1 and height % self.rows == 0, f"{self.rows} rows at a time of {height}")
        return outputs

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        outputs: tuple[Array, ...] = (arrays[0],)
        for number, (stage, part) in enumerate(zip(self.stages, self.signatures(sig), strict=True)):
            outputs = stage.reference(part, (*outputs, *(arrays[i] for i in self.inputs_of(number))))
        return outputs

    def attributes(self) -> str:
        """The attributes of all stages, and the values between them."""
        between = ",".join(map(str, self.between))
        return f"{' '.join(map(_text, self.stages))} between={between} rows={self.rows}"


def loop_kernels(chain: Op, sig: Signature, target: Target) -> list[Kernel]:
    """The kernel of a chain as a loop over rows, if there is one."""
    kernel = row_loop(*_stages(chain, sig), Parts(target))
    return [] if kernel is None else [kernel]


def stream_kernels(chain: Op, sig: Signature, target: Target, *, fed: bool = True) -> list[Kernel]:
    """The kernel of a chain that takes rows of an image, if there is one: it adds no other image."""
    kernel = row_stream(*_stages(chain, sig), Parts(target), fed=fed)
    return [] if kernel is None else [kernel]


def _stages(chain: Op, sig: Signature) -> tuple[list[RowStage], int]:
    """What loops are made of, and the rows that the last stage makes at a time."""
    assert isinstance(chain, Chain)
    stages = []
    for stage, part in zip(chain.stages, chain.signatures(sig), strict=True):
        if isinstance(stage, SumBeside):
            layer, sums = stage.signatures(part)
            stages.append(RowStage(stage.add, sums, (stage.layer, layer)))
        elif isinstance(stage, Joined):
            stages.append(RowStage(Concat(3), part, turned=stage.turned))
        else:
            stages.append(RowStage(stage, part))
    return stages, chain.rows
