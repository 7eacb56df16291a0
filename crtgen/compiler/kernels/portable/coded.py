"""Coded weights in flash, decoded into scratch before a layer runs.

Problem
    Flash is often what a model does not fit into. Weights can be stored as Huffman codes, or as 4-bit indices
    into a table if there are at most 16 different ones. But kernels read weights in an order of their own,
    with start values and constants between them, and none of the fast ones has registers left for a decoder.

Idea
    The decoder writes to scratch the very bytes that a kernel would have read from flash. A design for coded
    weights therefore wraps another design: it takes that kernel's stream of constants, replaces the part
    that is weights by codes, and calls the kernel on the decoded stream. The kernel is unchanged, so results
    are the same bits. A kernel says where its weights are by ``WeightRows``: rows of ``length`` bytes, of
    which the bytes ``first`` to ``end`` are weights. Everything else (start values, multipliers) is copied.

The price is the scratch buffer, a byte for each weight, and the time to decode. A convolution uses each
weight once per pixel, so decoding is a few percent. A layer with one row of outputs uses each weight once;
it is computed some outputs at a time (``_some_parts``), so that scratch holds only their weights. For that
all parts must have the same function, and differ in constants only.

Example
    A fully connected layer with 64 outputs of 256 inputs: the whole stream would take 16 KB of scratch. In
    eight parts of eight outputs it takes 2 KB, and one function of eight outputs is called eight times.

Halfwords of two weights (``halves``) are ``256 a + b``. With a negative b the upper byte of the halfword is
a - 1: the *borrow* would spoil the distribution of a, so the codes are of a and b, and the decoder subtracts
the borrow as it writes (``borrows`` of ``crt/coded.h``).

Weights of up to 16 values are coded wherever the level's objective gains by it; others only if the target
asks for it (``crtgen tune --flash``).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import TypeAlias

import numpy as np

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.huffman import Bytes, shortest
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Part, Target, WeightRows
from crtgen.compiler.kernels.engine.parts import aligned
from crtgen.compiler.kernels.engine.registry import applicable, design
from crtgen.network.ir import Array, DType, Quant, Signature, Value
from crtgen.network.ops import Conv2d, FullyConnected
from crtgen.network.ops.traits import Weighted

__all__ = ["CodedView"]

# Values of weights up to which codes are tried for every layer.
_FEW = 16
# Times the bytes of plain weights: codes that take more are none.
_WORTH = 0.9
# Outputs at a time, the best first.
_GROUPS = (8, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16)
# Fewer weights are not worth their table.
_LEAST = 512


@dataclass(frozen=True, slots=True)
class CodedView:
    """``rows`` of ``coded`` values for each of ``groups`` calls of the part, with plain bytes around them.

    There are ``first`` plain bytes at the start, ``between`` bytes between two rows, and ``last`` at the end.
    ``shift``, ``borrows`` and ``tables`` are those of ``crt/coded.h``, ``arguments`` those of the part.
    Without a shift, codes are indices.
    """

    groups: int
    rows: int
    coded: int
    first: int
    between: int
    last: int
    shift: int
    borrows: int
    tables: int
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Stream:
    """Streams of weights, ``[group, bytes]``, and the positions of the values to be coded."""

    data: Bytes
    rows: WeightRows

    @property
    def _body(self) -> slice:
        return slice(self.rows.header, self.rows.header + self.rows.count * self.rows.length)

    @property
    def tail(self) -> int:
        return int(self.data.shape[1]) - self.rows.header - self.rows.count * self.rows.length

    def numbers(self) -> Bytes:
        # Those to be coded, in order.
        body = self.data[:, self._body].reshape(len(self.data), self.rows.count, self.rows.length)
        taken = np.ascontiguousarray(body[:, :, self.rows.first : self.rows.end]).reshape(-1)
        if not self.rows.halves:
            return taken
        low = taken[0::2]
        # The upper byte of 256 a + b is a - 1 if b is negative: give the 1 back, so that a itself is coded.
        return np.stack([low, taken[1::2] + (low >> 7)], axis=1).reshape(-1)

    def others(self) -> Bytes:
        coded = np.zeros(self.data.shape, bool)
        body = coded[:, self._body].reshape(len(self.data), self.rows.count, self.rows.length)
        body[:, :, self.rows.first : self.rows.end] = True
        return self.data[~coded]


def _one_part(op: Conv2d | FullyConnected, sig: Signature, target: Target) -> list[Part]:
    # The fastest kernel of a layer whose weights may be coded, if there is one.
    found = (k for k in applicable(op, sig, replace(target, coded=None)) if _place(k) is not None)
    return [Part(op.name, sig, kernel) for kernel in islice(found, 1)]


def _some_parts(op: Conv2d | FullyConnected, sig: Signature, target: Target) -> list[Part]:
    # Kernels of one function for some outputs of a layer each; none if there are none.
    outputs = sig.inputs[1].shape[0]
    count = next((n for n in _GROUPS if outputs % n == 0 and outputs > n), None)
    one_row = sig.y.elements == outputs and sig.x.elements * outputs == sig.inputs[1].elements
    if count is None or not one_row:
        return []
    plain = replace(target, coded=None)
    sigs = [_outputs(op, sig, first, first + count) for first in range(0, outputs, count)]
    first, *others = ([k for k in applicable(op, part, plain) if _place(k) is not None] for part in sigs)
    for kernel in first:
        alike = [next((k for k in found if k.function == kernel.function), None) for found in others]
        kernels = [kernel, *(k for k in alike if k is not None)]
        if len(kernels) == len(sigs):
            parts = zip(sigs, kernels, strict=True)
            return [Part(op.name, part, found) for part, found in parts]
    return []


def _is_tried(sig: Signature, target: Target, few: bool = False) -> bool:
    # True if the target allows codes for these weights; with ``few``, only if indices can encode them.
    weights = sig.inputs[1]
    if target.coded is None or weights.dtype is not DType.INT8 or weights.elements < _LEAST:
        return False
    return (target.coded and not few) or _are_few(weights.array().reshape(weights.shape[0], -1))


def _are_few(weights: Array) -> bool:
    # True if all of ``weights[O, K]`` have few distinct values, or if those of each channel save more than
    # its table costs. The first channel nearly always decides.
    if len(np.unique(weights[0])) > _FEW:
        return False
    if weights.shape[1] <= 2 * _FEW:
        return len(np.unique(weights)) <= _FEW
    ordered = np.sort(weights, axis=1)
    return int((ordered[:, 1:] != ordered[:, :-1]).sum(axis=1).max(initial=0)) < _FEW


def _outputs(op: Weighted, sig: Signature, first: int, end: int) -> Signature:
    # The layer for the outputs from ``first`` to before ``end``.
    weights, bias = (_cut(value, first, end) for value in sig.inputs[1:])
    y = replace(sig.y, shape=(*sig.y.shape[:-1], end - first))
    return Signature((sig.x, weights, bias), (y,))


def _cut(value: Value, first: int, end: int) -> Value:
    quant = value.quant
    if quant is not None and quant.axis == 0:
        quant = Quant(quant.scales[first:end], quant.zero_points[first:end], 0)
    return Value.constant(value.name, value.array()[first:end], quant, value.dtype)


def _place(kernel: Kernel) -> int | None:
    # Which of its constants is a stream of weights whose rows are known.
    found = (n for n, const in enumerate(kernel.consts) if const.rows is not None and _is_even(const.rows))
    return next(found, None)


def _is_even(rows: WeightRows) -> bool:
    return (rows.end - rows.first) % 2 == 0 and rows.end > rows.first


def _kernel(parts: Sequence[Part], indices: bool) -> Kernel | None:
    # The kernel that decodes the weights of these parts, one after the other, which have one function. None
    # without parts, and if it saves nothing.
    if not parts:
        return None
    inner, at = parts[0].kernel, _place(parts[0].kernel)
    assert at is not None
    rows = inner.consts[at].rows
    assert rows is not None
    if any(len(part.kernel.consts[at].shape) != 1 or part.kernel.consts[at].rows != rows for part in parts):
        return None
    packed = [part.kernel.consts[at].data.view(np.uint8) for part in parts]
    stream = _Stream(np.stack(packed), rows)
    numbers, others = stream.numbers(), stream.others()
    found = _indices(numbers, rows) if indices else _codes(numbers)
    if found is None:
        return None
    shift, tables, coded = found
    between = [Const.of("between", others, 4, "what is between the weights")] if len(others) else []
    consts = (*coded, *between, *_given(parts, at))
    if sum(c.nbytes for c in consts) > _WORTH * sum(c.nbytes for p in parts for c in p.kernel.consts):
        return None
    work = aligned(inner.consts[at].nbytes)
    view = _view(stream, (shift, tables), len(parts), _arguments(parts, at, work))
    return Kernel(
        design=_name(parts, indices),
        template="coded.c.j2",
        view=view,
        consts=consts,
        scratch=work + inner.scratch,
        inplace=inner.inplace if len(parts) == 1 else (),
        work=_work(view, coded[0].nbytes),
        includes=("crt/coded.h",),
        libraries=inner.libraries,
        parts=(parts[0].called(len(parts)),),
    )


def _name(parts: Sequence[Part], indices: bool) -> str:
    some = f" {parts[0].sig.y.elements} at a time" if len(parts) > 1 else ""
    return f"{parts[0].kernel.design}, {'indices' if indices else 'coded'}{some}"


# The shift and the tables of a view, and constants: the codes, and what decodes them.
_Coded: TypeAlias = tuple[int, int, list[Const]]


def _codes(numbers: Bytes) -> _Coded:
    code = shortest(numbers)
    codes = code.written(numbers)

    def checked() -> Array:
        # The codes; what reads them on a device has been done with them once.
        if not np.array_equal(code.read(codes, len(numbers)), numbers):
            raise ValueError("the codes of weights are not those weights")
        return codes

    note = "a byte of the weights, and the length of its code times 256"
    found = Const("codes", "uint16", codes.shape, checked, 4, "of the weights, the first one highest")
    return 32 - code.bits, 0, [found, Const.of("decoding", code.table, 4, note)]


def _indices(numbers: Bytes, rows: WeightRows) -> _Coded | None:
    # By one table, or by two tables per row if a row has two channels; None if these do not suffice.
    found, tables = _looked_up(numbers.reshape(1, 1, -1)), 0
    if found is None and rows.pairs:
        by_row = numbers.reshape(-1, (rows.end - rows.first) // 2, 2).transpose(0, 2, 1)
        found, tables = _looked_up(by_row), 2 * _FEW
    if found is None:
        return None
    places, table = found
    order = places.reshape(-1, 2) if tables == 0 else places.transpose(0, 2, 1).reshape(-1, 2)
    packed = (order[:, 0] | order[:, 1] << 4).astype(np.uint8)
    return (
        0,
        tables,
        [
            Const.of("codes", packed, 4, "of the weights, the lower half of a byte first"),
            Const.of("decoding", table.reshape(-1), 4, "the weights of these codes"),
        ],
    )


def _looked_up(numbers: Bytes) -> tuple[Bytes, Bytes] | None:
    # Indices of ``numbers[row, table, n]``, and ``[row, table, 16]``; None if a table is too short.
    places, tables = np.zeros_like(numbers), np.zeros((*numbers.shape[:2], _FEW), np.uint8)
    for row, table in np.ndindex(*numbers.shape[:2]):
        values, found = np.unique(numbers[row, table], return_inverse=True)
        if len(values) > _FEW:  # or with what fills up rows
            return None
        places[row, table], tables[row, table, : len(values)] = found, values
    return places, tables


def _given(parts: Sequence[Part], at: int) -> Iterator[Const]:
    # The other constants of the parts, one part's after the other's.
    for place, const in enumerate(parts[0].kernel.consts):
        if place != at:
            data = np.concatenate([part.kernel.consts[place].data for part in parts])
            yield Const.of(f"plain_{const.name}", data, const.align, const.note)


def _arguments(parts: Sequence[Part], at: int, work: int) -> tuple[str, ...]:
    # Arguments of a part.
    inner, outputs = parts[0].kernel, parts[0].sig.y.elements
    many = len(parts) > 1
    found = ["x0", f"y0 + group * {outputs}" if many else "y0"]
    for place, const in enumerate(inner.consts):
        if place == at:
            found.append(f"(const {const.c_type} *)(const void *)scratch")
        else:
            found.append(f"plain_{const.name}" + (f" + group * {prod(const.shape)}" if many else ""))
    return (*found, f"scratch + {work}") if inner.scratch else tuple(found)


def _view(stream: _Stream, form: tuple[int, int], groups: int, arguments: tuple[str, ...]) -> CodedView:
    rows = stream.rows
    return CodedView(
        groups=groups,
        rows=rows.count,
        coded=rows.end - rows.first,
        first=rows.header + rows.first,
        between=rows.length - rows.end + rows.first,
        last=rows.length - rows.end + stream.tail,
        shift=form[0],
        borrows=int(rows.halves),
        tables=form[1],
        arguments=arguments,
    )


def _work(view: CodedView, nbytes: int) -> Work:
    # The functions that all layers share are a part of none.
    work = Work().block("group", view.groups).block("row", view.groups * view.rows, 0)
    work.block("two numbers" if view.shift else "two indices", view.groups * view.rows * view.coded / 2, 0)
    for size, runs in ((view.first, 1), (view.between, view.rows - 1), (view.last, 1)):
        work.copy(size, view.groups * runs, 0)
    work.constants = nbytes
    return work


_Parts: TypeAlias = Callable[[Conv2d | FullyConnected, Signature, Target], list[Part]]


def _register(parts: _Parts, indices: bool) -> None:
    # A design of weights that are decoded before these parts run; it gives None if it saves nothing. With
    # indices it takes less than half the time, and more bytes where some values are rare.
    @design(Conv2d, FullyConnected, types=(DType.INT8, DType.INT16), weights=(1, 2))
    def coded(op: Conv2d | FullyConnected, sig: Signature, target: Target) -> Kernel | None:
        return _kernel(parts(op, sig, target), indices) if _is_tried(sig, target, few=indices) else None


for _some in (_one_part, _some_parts):
    for _by_indices in (False, True):
        _register(_some, _by_indices)
