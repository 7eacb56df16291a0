"""What features of float32 share in assembly, whatever the extension: the frames of their functions."""

from collections.abc import Sequence

from crtgen.ir import Signature
from crtgen.kernels.asm import Function

__all__ = ["bands_function", "frame_function", "power_function"]


def frame_function(sig: Signature) -> Function:
    """``frame(x, y, weights)``: samples, converted and windowed."""
    return Function(
        "frame",
        f"const {sig.x.dtype.c_name} *x",
        "float *y",
        "const float *weights",
        apart=True,
        purpose=f"{sig.y.elements} samples, windowed",
    )


def power_function(sig: Signature, apart: bool = False) -> Function:
    """``power(x, y)``: sums of two squares, or roots of them."""
    return Function("power", "const float *x", "float *y", apart=apart, purpose=f"{sig.y.elements} powers")


def bands_function(rows: int, count: int, tables: Sequence[str], apart: bool = False) -> Function:
    """``bands(x, y, ...)``: sums of weighted neighbours, ``count`` for each row.

    ``tables`` are the declarations of two parameters, which are kept where each row reads them anew.
    """
    return Function(
        "bands",
        "const float *x",
        "float *y",
        *tables,
        apart=apart,
        purpose=f"{count} sums of weighted neighbours",
        keep=(2, 3) if rows > 1 else (),
    )
