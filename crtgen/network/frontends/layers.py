"""Input of the builder: tensors of a file, and operators on them."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TypeAlias

from crtgen.network.frontends.refusals import NotFixed, RefusedOperator
from crtgen.network.ir import Array, DType, Op, Quant, Value, shape_text
from crtgen.network.ops.traits import Windowed

__all__ = [
    "Converted",
    "KeptState",
    "KnownOutput",
    "NamedTensor",
    "Result",
    "check_tensor",
    "collect",
    "counts",
    "typed",
]


@dataclass(frozen=True, slots=True, eq=False)
class NamedTensor:
    """A tensor of a file. ``key`` is its identity in the file, ``name`` its readable name.

    ``shape`` has -1 for an open length. ``dtype`` is None for a type that crtgen does not support;
    ``type_name`` is the format's name of the type, empty if unknown. ``data`` is set for constants. A
    variable keeps its content between runs, and begins with zeros.
    """

    key: Hashable
    name: str
    shape: tuple[int, ...]
    type_name: str
    dtype: DType | None
    quant: Quant | None
    data: Array | None
    is_variable: bool = False


@dataclass(frozen=True, slots=True)
class Converted:
    """An operator and its operands, which are tensors, values, constants made by the converter, or outputs of
    other operators that are added first.

    ``roles`` names the operands after the first, for the names of constants. ``updates`` are keys of states;
    the last outputs of the operator are their new values. A new value that is also an output of the layer
    need not be read. ``quant`` is the quantisation of the output if another operator follows; by default it
    is that of the first operand, if the types are equal.
    """

    op: Op
    operands: tuple["NamedTensor | Array | Value | Converted | KeptState", ...]
    roles: tuple[str, ...] = ()
    updates: tuple[Hashable, ...] = ()
    quant: Quant | None = None


@dataclass(frozen=True, slots=True, eq=False)
class KeptState:
    """A state of an operator for which the file has no tensor; ``key`` identifies it."""

    key: Hashable
    initial: Array


@dataclass(frozen=True, slots=True, eq=False)
class KnownOutput:
    data: Array


Result: TypeAlias = Converted | KnownOutput | tuple[Converted | KnownOutput, ...]
"""Outputs of an operator: an operator, a constant, or a tuple of these for several outputs."""


def collect(made: Converted, steps: dict[int, Converted]) -> None:
    if id(made) not in steps:
        steps[id(made)] = made
        for operand in made.operands:
            if isinstance(operand, Converted):
                collect(operand, steps)


def counts(made: Converted) -> bool:
    """Return True if the operator is the main one of its layer: it computes products or windows."""
    return isinstance(made.op, Windowed) or type(made.op).macs is not Op.macs


def check_tensor(tensor: NamedTensor) -> None:
    """Refuse a tensor with a type or shape that values cannot have."""
    if tensor.dtype is None:
        known = ", ".join(d.name for d in DType)
        raise RefusedOperator(f"a tensor of {tensor.type_name}; supported: {known}")
    if tensor.dtype in (DType.FLOAT16, DType.INT4) and tensor.data is None:
        raise RefusedOperator(
            f"a tensor of {tensor.type_name} that is computed at run time; supported: constants"
        )
    if -1 in tensor.shape:
        raise NotFixed(tensor.name, tensor.shape)
    if 0 in tensor.shape:
        raise RefusedOperator(f"{tensor.name!r} is empty, its shape is {shape_text(tensor.shape)}")


def typed(tensor: NamedTensor, dtype: DType) -> NamedTensor:
    """Return the tensor with the type that an operator gives it, if the file does not state one."""
    return tensor if tensor.type_name else replace(tensor, dtype=dtype)
