"""Element-wise arithmetic in C with numpy's results, for the example generators."""

from crtgen.network.ir import DType, Op, Signature
from crtgen.network.ops import Activation, Add, Mul, Sub

__all__ = ["SIGNS", "expression", "reason"]

SIGNS: dict[str, str] = {"add": "+", "sub": "-", "mul": "*"}
_WIDE = (DType.INT32, DType.INT64)


def expression(op: str, dtype: DType, a: str, b: str) -> str:
    """Return ``a op b`` in C; integers wrap, without the undefined behaviour of signed overflow."""
    sign = SIGNS[op]
    if dtype is DType.FLOAT32:
        return f"{a} {sign} {b}"
    if dtype in _WIDE:
        return f"({dtype.c_name})((u{dtype.c_name}){a} {sign} (u{dtype.c_name}){b})"
    return f"({dtype.c_name})({a} {sign} {b})"


def reason(op: Op, sig: Signature) -> str:
    """Return the reason why an operator is not plain arithmetic; empty if it is."""
    if not isinstance(op, Add | Sub | Mul):
        return f"{op.name} is no arithmetic"
    if sig.y.dtype is DType.BOOL:
        return "bool is not a number"
    if sig.y.dtype.is_integer and any(value.quant is not None for value in (*sig.inputs, sig.y)):
        return "its values are quantised"
    if op.activation is not Activation.NONE:
        return f"it ends in {op.activation.value}"
    return ""
