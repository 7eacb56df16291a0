"""Element-wise kernels in C, with any number of operands."""

from collections.abc import Sequence
from dataclasses import dataclass

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel
from crtgen.compiler.kernels.engine.loops import Loop, index_of, merge, repeated_strides
from crtgen.network.ir import DType, Signature, Value
from crtgen.network.ops.scheme import is_plain

__all__ = ["ElementsView", "Operand", "clamped", "elements", "measured_as", "operands", "stored"]

_WIDE = {
    DType.INT8: "int32_t",
    DType.UINT8: "int32_t",
    DType.INT16: "int32_t",
    DType.UINT16: "uint32_t",
}
_CLAMPS = {DType.INT8: "crt_int8", DType.UINT8: "crt_uint8", DType.INT16: "crt_int16"}


@dataclass(frozen=True, slots=True)
class Operand:
    """A C variable ``name`` of C type ``type``, loaded from ``array[index]``."""

    type: str
    name: str
    array: str
    index: str


@dataclass(frozen=True, slots=True)
class ElementsView:
    """An element-wise kernel: in ``loops`` over the elements, ``lines`` of C compute ``result`` from the
    operands.
    """

    operands: tuple[Operand, ...]
    loops: tuple[Loop, ...]
    lines: tuple[str, ...]
    result: str


def elements(sig: Signature, name: str, lines: Sequence[str], tables: Sequence[Const] = ()) -> Kernel:
    """Return the kernel of an element-wise operator.

    ``lines`` is C: statements, and finally the expression of the result. It names the operands a, b, ...;
    integers narrower than 32 bits are passed as int32, other types unchanged. ``tables`` are constants that
    it reads.
    """
    names, consts = operands(sig)
    strides = [repeated_strides(v, sig.y) for v in sig.inputs]
    loops = [Loop(n, s) for n, s in zip(sig.y.shape, zip(*strides, strict=True), strict=True)]
    merged = merge(loops, len(strides))
    variables = [
        Operand(_WIDE.get(v.dtype, v.dtype.c_name), chr(ord("a") + i), names[i], index_of(merged, i))
        for i, v in enumerate(sig.inputs)
    ]
    return Kernel(
        design=name,
        template="elements.c.j2",
        view=ElementsView(tuple(variables), merged, tuple(lines[:-1]), lines[-1]),
        consts=(*consts, *tables),
        inplace=tuple(_overlays(sig)),
        work=_work(sig, lines, merged),
    )


def _work(sig: Signature, lines: Sequence[str], loops: Sequence[Loop]) -> Work:
    count, run = sig.y.elements, loops[-1].strides
    types = [v.dtype.value.removeprefix("u") for v in (sig.x, sig.y)]  # a sign takes no time
    kind = " to ".join(dict.fromkeys(types))
    strides = " ".join("01"[s] if s in (0, 1) else "n" for s in run)
    work = Work().words(kind, count, *lines).block(f"{kind} {strides} in {len(loops)}", count)
    return work.loops("line", loops)


def _overlays(sig: Signature) -> Sequence[InPlace]:
    # The output may overwrite operands that are read once and in order. If its elements are wider, it needs a
    # lead.
    whole = [i for i, v in enumerate(sig.inputs) if not v.is_constant and v.elements == sig.y.elements]
    growth = {i: sig.y.dtype.itemsize - sig.inputs[i].dtype.itemsize for i in whole}
    return [InPlace(input=i, lead=max(0, growth[i] * (sig.y.elements - 1))) for i in whole]


def operands(sig: Signature) -> tuple[tuple[str, ...], tuple[Const, ...]]:
    names, consts, variables = [], [], 0
    for i, value in enumerate(sig.inputs):
        if value.is_constant:
            names.append(f"operand{i}")
            consts.append(Const.of(f"operand{i}", value.array(), max(4, value.dtype.itemsize)))
        else:
            names.append(f"x{variables}")
            variables += 1
    return tuple(names), tuple(consts)


def measured_as(value: Value) -> str:
    """Return the type whose measured costs are used for the value's type; an integer type without
    measurements counts as int8.
    """
    return DType.INT8.value if is_plain(value) and value.dtype.is_integer else value.dtype.value


def clamped(value: Value, number: str, low: int, high: int) -> str:
    """Return C that clamps the C expression ``number`` and converts it to an element of a quantised value."""
    return f"{_CLAMPS[value.dtype]}({number}, {low}, {high})"


def stored(value: Value, number: str) -> str:
    """Return C that converts the C expression ``number`` to an element of a value."""
    return f"({value.dtype.c_name})({number})" if value.dtype in _WIDE else number
