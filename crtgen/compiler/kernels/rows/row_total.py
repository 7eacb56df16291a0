"""A pooling of the whole image, or a mean over it, as a running sum that takes rows as they arrive."""

from dataclasses import dataclass

from crtgen.compiler.kernels.portable.pool import rescaled_sum
from crtgen.compiler.kernels.portable.reduce import image_of, mean_result
from crtgen.network.ir import DType, Op, Signature
from crtgen.network.ops import AveragePool2d, Mean, Padding
from crtgen.network.ops.rescaling import by_float

__all__ = ["TotalView", "sums_up", "total_view"]

_SUM = 4  # bytes


@dataclass(frozen=True, slots=True)
class TotalView:
    """Int32 sums of ``channels`` channels, over rows that arrive at the offset ``rows`` in scratch.

    They are at the offset ``sums``; ``result`` is C code that turns a ``sum`` into the output.
    """

    channels: int
    rows: int
    sums: int
    result: str

    @property
    def end(self) -> int:
        return self.sums + _SUM * self.channels


def sums_up(op: Op, sig: Signature) -> bool:
    """Return True if an operator reduces each channel of one int8 image to a value that only depends on its
    sum.
    """
    x = sig.x
    if len(x.shape) != 4 or x.shape[0] != 1 or x.dtype is not DType.INT8 or x.quant is None:
        return False
    if isinstance(op, AveragePool2d):
        return op.window == x.shape[1:3] and op.padding == Padding()
    return isinstance(op, Mean) and image_of(op, x) == (1, x.shape[1] * x.shape[2], x.shape[3])


def total_view(op: Op, sig: Signature, rows: int, sums: int) -> TotalView:
    assert isinstance(op, AveragePool2d | Mean)
    result = _average(op, sig) if isinstance(op, AveragePool2d) else mean_result(op, sig)
    return TotalView(sig.x.shape[3], rows, sums, result)


def _average(op: AveragePool2d, sig: Signature) -> str:
    p, count = op.parameters(sig), op.window[0] * op.window[1]
    half = count // 2
    mean = f"(sum > 0 ? sum + {half} : sum - {half}) / {count}"
    return f"crt_int8({rescaled_sum(p, 'sum') if by_float(sig.y) else mean}, {p.act_min}, {p.act_max})"
