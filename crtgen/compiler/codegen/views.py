"""Views for the templates of a model: all decisions, spelled as C."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from zlib import crc32

import numpy as np

from crtgen.compiler.codegen.arena import Arena, ArenaView
from crtgen.compiler.codegen.module import Argument, Interface, LayerInfo
from crtgen.compiler.codegen.names import c_string, comment
from crtgen.compiler.kernels.engine.kernel import Const
from crtgen.compiler.kernels.engine.literal import c_float
from crtgen.compiler.plan import Step
from crtgen.network.ir import Array, DType, Value, shape_text

__all__ = [
    "ArrayView",
    "FedView",
    "KernelFileView",
    "KernelView",
    "LayerView",
    "ModelView",
    "PackedView",
    "StateView",
    "TensorView",
    "dl_numbers",
    "dl_type",
    "rows_of",
    "tensor_argument",
]

_PER_ROW = {
    "int8": 20,
    "uint8": 20,
    "int16": 14,
    "uint16": 14,
    "int32": 8,
    "uint32": 8,
    "float32": 8,
    "int64": 5,
    "bool": 20,
}
_INT64_MIN = -(1 << 63)
_ROWS = 1000  # of columns that are spelled at a time


@dataclass(frozen=True, slots=True)
class ArrayView:
    """A const array that is packed and spelled only when it is written, because the text has five times as
    many bytes.
    """

    symbol: str
    c_type: str
    align: int
    comment: str
    const: Const

    @property
    def count(self) -> int:
        return prod(self.const.shape)

    @property
    def rows(self) -> Iterator[str]:
        return rows_of(self.const.data)


@dataclass(frozen=True, slots=True)
class KernelView:
    comment: str
    source: str


@dataclass(frozen=True, slots=True)
class KernelFileView:
    """A file of functions: the suffix of its name, a description of ``what`` they compute, and declarations
    at file scope.

    ``device`` is a pointer that the file defines, with the value ``handle``; empty if there is none.
    """

    suffix: str
    what: str
    kernels: tuple[KernelView, ...]
    includes: tuple[str, ...]
    support: tuple[str, ...]
    device: str = ""
    handle: str = ""


@dataclass(frozen=True, slots=True)
class PackedView:
    """A layer as a packed function: ``arguments`` are those of its C kernel, ``nbytes`` the sizes of its
    tensors.

    ``scratch`` is the address of its ``scratch_size`` bytes of working memory; empty if it has none. With
    ``fails`` it returns an error.
    """

    symbol: str
    text: str
    kernel: str
    arguments: str
    nbytes: tuple[int, ...]
    scratch: str
    scratch_size: int
    signature: tuple[Argument, ...]
    fails: bool = False

    @classmethod
    def of(
        cls, arena: Arena, symbol: str, layer: LayerInfo, step: Step, values: Sequence[Value]
    ) -> "PackedView":
        scratch = arena.scratch(step)
        tensors = (f"data[{i}]" for i in range(len(values)))
        arguments = (*tensors, *layer.consts, scratch, arena.apart(step), layer.device)
        return cls(
            symbol=symbol,
            text=comment(f"{step.item.operator} {step.name}"),
            kernel=layer.function,
            arguments=", ".join(filter(None, arguments)),
            nbytes=tuple(value.nbytes for value in values),
            scratch=scratch,
            scratch_size=step.scratch.size if step.scratch is not None else 0,
            signature=tuple(tensor_argument(value.nbytes, value.dtype) for value in values),
            fails=step.kernel.fails,
        )


@dataclass(frozen=True, slots=True)
class LayerView:
    """A layer in execution order; ``call`` is the C statement, empty if no code runs."""

    index: int
    comment: str
    call: str


@dataclass(frozen=True, slots=True)
class FedView:
    """An image that arrives by rows: ``rows`` rows of ``elements`` elements of type ``c_type``, ``nbytes`` in
    total.

    For a host that sends whole images, there is an additional array ``image``.
    """

    rows: int
    elements: int
    c_type: str
    nbytes: int
    image: str


_SMALL = (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16)


@dataclass(frozen=True, slots=True)
class TensorView:
    """An input or output in C: ``place`` is its address, ``shape_symbol`` its array of dimensions or NULL.

    ``argument`` is its index among all inputs followed by all outputs. ``dtype`` initialises a
    ``DLDataType``; ``scale`` is empty without a per-tensor quantisation. ``least`` and ``most`` are the
    limits of stored values of at most 16 bits, minus the zero point, as C floats.
    """

    name: str
    text: str
    argument: int
    c_name: str
    macro: str
    c_type: str
    place: str
    nbytes: int
    elements: int
    rank: int
    shape: str
    shape_symbol: str
    dtype: str
    comment: str
    scale: str
    zero_point: str
    least: str
    most: str

    @classmethod
    def of(cls, arena: Arena, role: str, index: int, argument: int, value: Interface) -> "TensorView":
        model = arena.model
        whole = value.quant if value.quant is not None and value.quant.axis is None else None
        zero = whole.zero_point if whole else 0
        small = whole is not None and value.dtype in _SMALL
        limits = np.iinfo(value.dtype.value) if small else None
        return cls(
            name=c_string(value.name),
            text=comment(value.name),
            argument=argument,
            c_name=value.c_name,
            macro=f"{model}_{role}_{value.c_name}".upper(),
            c_type=value.dtype.c_name,
            place=arena.value(value.name),
            nbytes=value.nbytes,
            elements=value.nbytes // value.dtype.itemsize,
            rank=len(value.shape),
            shape=", ".join(map(str, value.shape)),
            shape_symbol=f"{model}_{role}{index}_shape" if value.shape else "NULL",
            dtype=dl_type(value.dtype),
            comment=f"{shape_text(value.shape)} {value.dtype.value}"
            + (f", {value.quant}" if value.quant is not None else ""),
            scale=c_float(whole.scale) if whole else "",
            zero_point=str(zero) if whole else "",
            least=c_float(limits.min - zero) if limits else "",
            most=c_float(limits.max - zero) if limits else "",
        )


@dataclass(frozen=True, slots=True)
class StateView:
    """A state of ``nbytes`` at ``place``, to which ``becomes`` is copied after a run.

    ``initial`` are initialisers of its first value, of type ``c_type``, to be repeated; empty for zero.
    """

    text: str
    place: str
    becomes: str
    nbytes: int
    c_type: str
    initial: tuple[str, ...]
    repeats: int


@dataclass(frozen=True, slots=True)
class ModelView:
    name: str
    macro: str
    version: int
    arena: ArenaView
    keeps_inputs: bool
    inputs: tuple[TensorView, ...]
    outputs: tuple[TensorView, ...]
    arguments: tuple[TensorView, ...]
    arrays: tuple[ArrayView, ...]
    prototypes: tuple[str, ...]
    entries: tuple[PackedView, ...]
    devices: tuple[str, ...]
    layers: tuple[LayerView, ...]
    summary: str
    states: tuple[StateView, ...] = ()
    state_bytes: int = 0
    has_pipeline: bool = False
    fed: FedView | None = None

    @property
    def steps(self) -> tuple[LayerView, ...]:
        """The layers with code, if runs of the model can be divided into steps."""
        return () if self.has_pipeline or self.fed else tuple(layer for layer in self.layers if layer.call)

    @property
    def record_bytes(self) -> int:
        return sum(-(-t.nbytes // 4) * 4 for t in self.arguments)

    @property
    def record_layout(self) -> int:
        tensors = [(t.name, t.nbytes, t.shape, t.dtype) for t in self.arguments]
        return crc32(repr((self.name, tensors, self.state_bytes)).encode())

    @property
    def begins(self) -> bool:
        """True if states have a nonzero initial value, which must be set before the first run."""
        return any(state.initial for state in self.states)


_DL_KINDS = {"i": ("kDLInt", 0), "u": ("kDLUInt", 1), "f": ("kDLFloat", 2)}


def dl_type(dtype: DType) -> str:
    kind, bits = _dl_kind(dtype)
    return f"{{{_DL_KINDS[kind][0]}, {bits}, 1}}"


def dl_numbers(dtype: DType) -> tuple[int, int, int]:
    kind, bits = _dl_kind(dtype)
    return _DL_KINDS[kind][1], bits, 1


def tensor_argument(nbytes: int, dtype: DType) -> Argument:
    return Argument(nbytes, *dl_numbers(dtype))


def _dl_kind(dtype: DType) -> tuple[str, int]:
    return ("u", 1) if dtype is DType.BOOL else (dtype.numpy.kind, dtype.itemsize * 8)


def rows_of(data: Array) -> Iterator[str]:
    """Yield the elements as C text, line by line.

    Unsigned words are packed from smaller values, so they are written in hexadecimal.
    """
    flat = data.ravel()
    step = _PER_ROW[flat.dtype.name]
    if flat.dtype.itemsize <= 2:
        return _columns(flat, step)
    rows = (flat[i : i + step] for i in range(0, flat.size, step))
    if flat.dtype.name == "uint32":
        return map(_hexadecimal, rows)
    if flat.dtype.name == "float32":
        text = "{!s}f".format if np.isfinite(flat).all() else c_float
        return (", ".join(map(text, row)) + "," for row in rows)
    return (", ".join(map(_integer, row.tolist())) + "," for row in rows)


def _hexadecimal(words: Array) -> str:
    return f"0x{words.astype('>u4').tobytes().hex(' ', 4).replace(' ', 'u, 0x')}u,"


def _columns(flat: Array, step: int) -> Iterator[str]:
    # Small integers in columns: each value is spelled once, and looked up from then on.
    spelled = _spelled(flat.dtype.name)
    width = spelled.itemsize * step
    block = step * _ROWS
    for first in range(0, flat.size, block):
        numbers = flat[first : first + block].view(f"u{flat.dtype.itemsize}")
        text = spelled[numbers].tobytes().decode()
        yield from (text[i : i + width] for i in range(0, len(text), width))


@cache
def _spelled(dtype: str) -> Array:
    # The initialisers of all numbers of a type of at most 16 bits, by their bits, with the comma.
    words = np.arange(2 if dtype == "bool" else 1 << 8 * np.dtype(dtype).itemsize)
    numbers = words.astype(dtype).astype(int).tolist()
    width = max(len(str(number)) for number in numbers)
    return np.array([f"{number:{width}}," for number in numbers], np.bytes_)


def _integer(number: int) -> str:
    return "INT64_MIN" if number == _INT64_MIN else str(int(number))
