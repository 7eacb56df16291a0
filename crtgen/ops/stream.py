"""Layers on images in one, row by row: what lies between them never exists as a whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, TypeAlias

from crtgen.ir import Array, DType, Op, Signature, Value
from crtgen.ops.attrs import require
from crtgen.ops.binary import Add
from crtgen.ops.conv import Conv2d, DepthwiseConv2d
from crtgen.ops.pool import AveragePool2d, MaxPool2d

__all__ = ["RowStream", "Stage"]

Stage: TypeAlias = Conv2d | DepthwiseConv2d | AveragePool2d | MaxPool2d | Add


def _others(stage: Stage) -> int:
    """How many inputs a stage has beside the image: weights and bias, or the other operand of an addition."""
    if isinstance(stage, Add):
        return 1
    return 2 if isinstance(stage, Conv2d | DepthwiseConv2d) else 0


@dataclass(frozen=True, slots=True)
class RowStream(Op):
    """``stages`` one after the other, of which ``rows`` rows of outputs are computed at a time.

    The inputs are the first stage's image, then what each stage takes beside its image. ``between`` are the
    outputs of all stages but the last, with their quantisation. The rows divide the height of the output.
    """

    name: ClassVar[str] = "row_stream"

    stages: tuple[Stage, ...]
    between: tuple[Value, ...]
    rows: int

    def inputs_of(self, stage: int) -> range:
        """Which inputs are those of a stage beside its image."""
        first = 1 + sum(map(_others, self.stages[:stage]))
        return range(first, first + _others(self.stages[stage]))

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
        for number, stage in enumerate(self.stages):
            outputs = stage.infer((x, *(inputs[i] for i in self.inputs_of(number))))
            if number < len(self.between):
                x = self.between[number]
                require(outputs == ((x.shape, x.dtype),), f"{x.name} is not what {stage.name} computes")
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
        stages = " ".join(f"{op.name}({op.attributes()})" for op in self.stages)
        return f"{stages} between={','.join(map(str, self.between))} rows={self.rows}"
