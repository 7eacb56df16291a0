"""Two convolutions in one, row by row: what lies between them never exists as a whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from crtgen.ir import Array, DType, Op, Signature, Value
from crtgen.ops.attrs import require, require_inputs
from crtgen.ops.conv import Conv2d, DepthwiseConv2d

__all__ = ["RowStream"]


@dataclass(frozen=True, slots=True)
class RowStream(Op):
    """``second(first(x, w1, bias1), w2, bias2)``, of which ``rows`` rows of outputs are computed at a time.

    ``middle`` is the output of ``first``, with its quantisation. A row of it comes from one row of ``x``.
    """

    name: ClassVar[str] = "row_stream"

    first: Conv2d
    second: Conv2d | DepthwiseConv2d
    middle: Value
    rows: int

    def signatures(self, sig: Signature) -> tuple[Signature, Signature]:
        """What each of the two is applied to."""
        x, w1, bias1, w2, bias2 = sig.inputs
        return Signature((x, w1, bias1), (self.middle,)), Signature((self.middle, w2, bias2), sig.outputs)

    @staticmethod
    def streams(first: Conv2d, weights: Value) -> bool:
        """Whether ``first`` computes a row from a row."""
        single = weights.shape[1] == first.stride[0] == 1
        return single and first.padding.top == first.padding.bottom == 0

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 5)
        inferred = self.first.infer(inputs[:3])
        require(inferred == ((self.middle.shape, self.middle.dtype),), "the values between the two differ")
        outputs = self.second.infer((self.middle, *inputs[3:]))
        require(self.streams(self.first, inputs[1]), "a row of the first is not computed from a single row")
        require(1 <= self.rows <= outputs[0][0][1], f"{self.rows} rows at a time")
        return outputs

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        first, second = self.signatures(sig)
        middle = self.first.reference(first, arrays[:3])
        return self.second.reference(second, (*middle, *arrays[3:]))

    def attributes(self) -> str:
        """The attributes of both, and the value between them."""
        first, second = (f"{op.name}({op.attributes()})" for op in (self.first, self.second))
        return f"first={first} second={second} middle={self.middle} rows={self.rows}"
