"""Layers on two cores: each core computes half of the output, with kernels for the smaller shapes.

An image is split between rows, or between pixels if each output depends on one position only. A layer with a
single row of outputs is split between outputs. The halves write disjoint bytes, do not read what the other
one writes, and have separate scratch buffers. ``Share`` records these ranges, and the check of the plan
verifies them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np

from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Part, Share, Target
from crtgen.compiler.kernels.engine.parts import Parts, aligned, described
from crtgen.compiler.kernels.engine.registry import applicable
from crtgen.network.ir import Op, Quant, Signature, Value
from crtgen.network.ops import Windowed
from crtgen.network.ops.traits import Weighted

__all__ = ["PairView", "on_two_cores"]

_HEADER = "crt/cores.h"
# A layer is split only if it then takes less than this fraction of one core's time.
_WORTH = 0.8
# Instructions to start the other core and to wait for it.
_BARRIER = 40
# Cuts are tried at multiples of these, since kernels compute several outputs at once.
_STEPS = (1, 4, 8)


@dataclass(frozen=True, slots=True)
class PairView:
    """``fields`` are the function's parameters with their types, ``calls`` the arguments of each half."""

    fields: tuple[tuple[str, str], ...]
    calls: tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class _Half:
    """An operator on a slice of its values; ``starts`` are the offsets, in elements, of its inputs and its
    output.
    """

    op: Op
    sig: Signature
    starts: tuple[int, ...]


def on_two_cores(op: Op, sig: Signature, kernel: Kernel, known: Parts) -> Kernel:
    """Return ``kernel``, or a kernel of two halves if that is sufficiently faster."""
    if kernel.is_alias or kernel.module is not None:
        return kernel
    found = [pair for halves in _cuts(op, sig) if (pair := _pair(halves, known)) is not None]
    best = min(found, key=lambda pair: pair.time, default=None)
    if best is None or best.time + _BARRIER > _WORTH * kernel.cost.time:
        return kernel
    return _kernel(sig, best, known.target)


@dataclass(frozen=True, slots=True, eq=False)
class _Pair:
    halves: tuple[_Half, _Half]
    parts: tuple[Part, Part]

    @property
    def time(self) -> float:
        return max(part.kernel.cost.time for part in self.parts)


def _cuts(op: Op, sig: Signature) -> Iterator[tuple[_Half, _Half]]:
    # Candidates for a cut into halves.
    if len(sig.outputs) != 1 or any(v.is_state for v in (*sig.inputs, *sig.outputs)):
        return
    whole = _flattened(op, sig)
    axis = next((n for n, length in enumerate(whole.y.shape) if length > 1), None)
    if axis is None:
        return
    if axis < len(whole.y.shape) - 1:
        for at in _near_half(whole.y.shape[axis]):
            halves = [_between(op, whole, axis, *ends) for ends in ((0, at), (at, whole.y.shape[axis]))]
            if halves[0] is not None and halves[1] is not None:
                yield halves[0], halves[1]
    elif isinstance(op, Weighted) and op.mixes and not op.slides:
        for at in _near_half(whole.y.shape[axis]):
            yield _outputs(op, whole, 0, at), _outputs(op, whole, at, whole.y.shape[axis])


def _near_half(length: int) -> list[int]:
    found = {round(length / 2 / step) * step for step in _STEPS} | {length // 2}
    return sorted(at for at in found if 0 < at < length)


def _flattened(op: Op, sig: Signature) -> Signature:
    # If each output depends on one position only, the rows of an image become a single line.
    images = [v for v in (*sig.inputs, *sig.outputs) if not v.is_constant]
    alike = all(len(v.shape) == 4 and v.shape[:3] == sig.y.shape[:3] for v in images)
    if not alike or sig.y.shape[0] != 1 or not _is_pointwise(op, sig):
        return sig

    def line(value: Value) -> Value:
        if value.is_constant:
            return value
        return replace(value, shape=(1, 1, prod(value.shape[:3]), value.shape[3]))

    return Signature(tuple(map(line, sig.inputs)), tuple(map(line, sig.outputs)))


def _is_pointwise(op: Op, sig: Signature) -> bool:
    if any(v.is_constant and len(v.shape) > 1 for v in sig.inputs) and not isinstance(op, Weighted):
        return False
    for axis in (1, 2):
        along = op.axis_map(sig, _axes(sig, axis))
        if along is None or (along.axis, along.stride, along.before, along.extent) != (axis, 1, 0, 1):
            return False
    return True


def _axes(sig: Signature, axis: int) -> list[int | None]:
    # The axis along which each input is cut; None for constants.
    return [None if v.is_constant else axis for v in sig.inputs]


def _between(op: Op, sig: Signature, axis: int, first: int, end: int) -> _Half | None:
    # Outputs ``first`` to ``end - 1`` along an axis; None if that slice cannot be computed alone.
    images = [v for v in sig.inputs if not v.is_constant]
    if any(prod(v.shape[:axis]) != 1 or len(v.shape) != len(sig.y.shape) for v in (*images, sig.y)):
        return None
    along = op.axis_map(sig, _axes(sig, axis))
    if along is None or along.axis != axis or len({v.shape[axis] for v in images}) != 1:
        return None
    length = images[0].shape[axis]
    low = first * along.stride - along.before
    high = (end - 1) * along.stride - along.before + along.extent
    inside = max(low, 0), min(high, length)
    if inside[0] >= inside[1]:
        return None
    if isinstance(op, Windowed):
        if axis != 1 and (low, high) != inside:
            return None
        outer = replace(op.padding, top=max(-low, 0), bottom=max(high - length, 0))
        op = op.padded(outer) if axis == 1 else op
    inputs = tuple(v if v.is_constant else _cut(v, axis, *inside) for v in sig.inputs)
    starts = [0 if v.is_constant else inside[0] * prod(v.shape[axis + 1 :]) for v in sig.inputs]
    starts.append(first * prod(sig.y.shape[axis + 1 :]))
    half = Signature(inputs, (_cut(sig.y, axis, first, end),))
    return _Half(op, half, tuple(starts)) if _makes(op, half) else None


def _makes(op: Op, half: Signature) -> bool:
    # True if the operator accepts the sliced inputs and infers the sliced output shape.
    try:
        return op.infer(half.inputs)[0][0] == half.y.shape
    except ValueError:
        return False


def _outputs(op: Weighted, sig: Signature, first: int, end: int) -> _Half:
    # Outputs ``first`` to ``end - 1`` of a layer with one row of outputs.
    x, weights, bias = sig.inputs
    parts = (_constants(weights, op.channel_axis, first, end), _constants(bias, 0, first, end))
    y = _cut(sig.y, len(sig.y.shape) - 1, first, end)
    return _Half(op, Signature((x, *parts), (y,)), (0, 0, 0, first))


def _cut(value: Value, axis: int, first: int, end: int) -> Value:
    shape = (*value.shape[:axis], end - first, *value.shape[axis + 1 :])
    return replace(value, shape=shape)


def _constants(value: Value, axis: int, first: int, end: int) -> Value:
    assert value.data is not None
    data = np.take(value.data, range(first, end), axis)
    return Value.constant(value.name, data, _quant(value.quant, axis, first, end), value.dtype)


def _quant(quant: Quant | None, axis: int, first: int, end: int) -> Quant | None:
    if quant is None or quant.axis != axis:
        return quant
    return replace(quant, scales=quant.scales[first:end], zero_points=quant.zero_points[first:end])


def _pair(halves: tuple[_Half, _Half], known: Parts) -> _Pair | None:
    # None if one half has no kernel.
    one, two = (
        known.once((half.op, described(half.sig), "half"), partial(_part, half, known.target))
        for half in halves
    )
    return None if one is None or two is None else _Pair(halves, (one, two))


def _part(half: _Half, target: Target) -> Part | None:
    found = applicable(half.op, half.sig, target)
    return Part(half.op.name, half.sig, found[0]) if found else None


def _kernel(sig: Signature, pair: _Pair, target: Target) -> Kernel:
    halves, (one, two) = pair.halves, pair.parts
    second = aligned(one.kernel.scratch)
    consts, names = _consts(pair.parts)
    kernel = Kernel(
        design=f"{one.kernel.design}, on two cores",
        template="pair.c.j2",
        view=PairView(_fields(sig, consts, pair.parts), _calls(sig, pair, names, second)),
        consts=consts,
        scratch=second + two.kernel.scratch if one.kernel.scratch or two.kernel.scratch else 0,
        inplace=_permits(sig, pair),
        includes=(_HEADER,),
        libraries=tuple(dict.fromkeys((*one.kernel.libraries, *two.kernel.libraries))),
        parts=pair.parts,
        shares=(_share(halves[0], one, 0), _share(halves[1], two, second)),
    )
    priced = kernel.priced(target)
    return replace(priced, cost=replace(priced.cost, time=priced.cost.time + _BARRIER))


def _consts(
    parts: tuple[Part, Part],
) -> tuple[tuple[Const, ...], tuple[tuple[str, ...], tuple[str, ...]]]:
    # Constants of both halves, equal ones once, and the names that each half uses for them.
    found: list[Const] = []
    names: list[tuple[str, ...]] = []
    for number, part in enumerate(parts):
        own = []
        for place, const in enumerate(part.kernel.consts):
            twin = parts[0].kernel.consts[place] if number and place < len(parts[0].kernel.consts) else None
            if twin is not None and _equal(twin, const):
                own.append(names[0][place])
                continue
            found.append(const.named(f"half{number}_{const.name}"))
            own.append(found[-1].name)
        names.append(tuple(own))
    return tuple(found), (names[0], names[1])


def _equal(one: Const, two: Const) -> bool:
    alike = (one.name, one.dtype, one.shape, one.align) == (two.name, two.dtype, two.shape, two.align)
    return alike and np.array_equal(one.data, two.data)


def _values(sig: Signature) -> list[tuple[str, str, int]]:
    # Type, C name and position of each argument that is not a constant.
    inputs = [(n, v) for n, v in enumerate(sig.inputs) if not v.is_constant]
    found = [(f"const {v.dtype.c_name} *", f"x{i}", n) for i, (n, v) in enumerate(inputs)]
    return [*found, (f"{sig.y.dtype.c_name} *", "y0", len(sig.inputs))]


def _fields(sig: Signature, consts: Sequence[Const], parts: tuple[Part, Part]) -> tuple[tuple[str, str], ...]:
    found = [(kind, name) for kind, name, _ in _values(sig)]
    found += [(f"const {const.c_type} *", const.name) for const in consts]
    found += [("uint8_t *", "scratch")] if any(part.kernel.scratch for part in parts) else []
    return tuple(found)


def _calls(
    sig: Signature, pair: _Pair, names: tuple[tuple[str, ...], tuple[str, ...]], second: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    made = []
    for half, own, part, offset in zip(pair.halves, names, pair.parts, (0, second), strict=True):
        call = [_at(name, half.starts[place]) for _, name, place in _values(sig)]
        call += [f"c->{name}" for name in own]
        call += [_at("scratch", offset)] if part.kernel.scratch else []
        made.append(tuple(call))
    return made[0], made[1]


def _at(name: str, offset: int) -> str:
    return f"c->{name} + {offset}" if offset else f"c->{name}"


def _share(half: _Half, part: Part, scratch: int) -> Share:
    # Byte ranges that a half reads and writes, and its scratch bytes.
    sizes = [v.dtype.itemsize for v in (*half.sig.inputs, half.sig.y)]
    values = (*half.sig.inputs, half.sig.y)
    ranges = [
        (0, 0) if v.is_constant else (start * size, start * size + v.nbytes)
        for v, start, size in zip(values, half.starts, sizes, strict=True)
    ]
    return Share(tuple(ranges[:-1]), ranges[-1], (scratch, scratch + part.kernel.scratch))


def _permits(sig: Signature, pair: _Pair) -> tuple[InPlace, ...]:
    # The output may overwrite the first input if each half overwrites only what it alone reads.
    if sig.x.is_constant or sig.x.nbytes != sig.y.nbytes:
        return ()
    for half, part in zip(pair.halves, pair.parts, strict=True):
        share = _share(half, part, 0)
        own = [p for p in part.kernel.inplace if p.input == 0 and p.output == 0]
        if share.reads[0] != share.writes or not any(p.exact or p.lead <= 0 for p in own):
            return ()
    same = (n for n, value in enumerate(sig.inputs) if value is sig.x)
    return tuple(InPlace(n, exact=True) for n in same)
