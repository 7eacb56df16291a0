"""Common part of float32 features in assembly, for all extensions: prologues."""

from collections.abc import Sequence

from crtgen.compiler.kernels.asm import Function
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.spectral import Frame

__all__ = ["FrameWriter", "bands_function", "frame_function", "power_function"]


def frame_function(sig: Signature) -> Function:
    """Begin ``frame(x, y, weights)``: samples, converted and windowed."""
    return Function(
        "frame",
        f"const {sig.x.dtype.c_name} *x",
        "float *y",
        "const float *weights",
        no_alias=True,
        purpose=f"{sig.y.elements} samples, windowed",
    )


class FrameWriter:
    """Converts samples of a frame from int16 if they are ``short``, otherwise from float32.

    ``place`` is the index of the sample before the first one, as in ``Before.place``.
    """

    def __init__(self, f: Function, op: Frame, sig: Signature) -> None:
        self.f, self.op = f, op
        self.x, self.y, self.weights = f.arguments
        self.short, self.size = sig.x.dtype is DType.INT16, sig.x.dtype.itemsize
        self.place = op.before.place(op.start, sig.x.elements)


def power_function(sig: Signature, no_alias: bool = False) -> Function:
    """Begin ``power(x, y)``: sums of two squares, or their square roots."""
    return Function(
        "power", "const float *x", "float *y", no_alias=no_alias, purpose=f"{sig.y.elements} powers"
    )


def bands_function(rows: int, count: int, tables: Sequence[str], no_alias: bool = False) -> Function:
    """Begin ``bands(x, y, ...)``: weighted sums of adjacent elements, ``count`` for each row.

    ``tables`` are the declarations of two parameters, which are kept on the stack if each row reads them
    again.
    """
    return Function(
        "bands",
        "const float *x",
        "float *y",
        *tables,
        no_alias=no_alias,
        purpose=f"{count} sums of weighted neighbours",
        keep=(2, 3) if rows > 1 else (),
    )
