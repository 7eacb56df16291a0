"""The operators of TFLite Micro's signal library that keep samples between runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Op, Signature, Value, shape_text
from crtgen.network.ops.attrs import require
from crtgen.network.ops.case import Case, plain
from crtgen.network.ops.scheme import INT16

__all__ = ["Delay", "Framer", "OverlapAdd", "Stacker", "cases", "stream_case"]

_I16, _I32, _F32 = DType.INT16, DType.INT32, DType.FLOAT32
_Outputs = tuple[tuple[tuple[int, ...], DType], ...]


def _require(inputs: Sequence[Value], types: Sequence[DType], shapes: Sequence[tuple[int, ...]]) -> None:
    # ``ValueError`` unless the inputs after the first have these shapes, and all of them these types.
    given = tuple(v.dtype for v in inputs)
    require(given == tuple(types), f"types {', '.join(t.value for t in given)}")
    for value, shape in zip(inputs[1:], shapes, strict=True):
        require(value.shape == shape, f"a memory of {shape_text(value.shape)}, not {shape_text(shape)}")


def _rows(x: Value, axes: int = 1) -> int:
    require(len(x.shape) >= axes and x.elements > 0, f"an input of {shape_text(x.shape)}")
    return int(np.prod(x.shape[:-axes], dtype=int))


@dataclass(frozen=True, slots=True)
class Delay(Op):
    """``x[..., N], memory[rows, length] -> y[..., N], memory``: each sample is delayed by ``length``
    samples.
    """

    name: ClassVar[str] = "delay"
    states: ClassVar[tuple[tuple[int, int], ...]] = ((1, 1),)

    length: int

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        require(self.length > 0, f"a delay of {self.length}")
        memory = (_rows(inputs[0]), self.length)
        _require(inputs, (_I16, _I16), (memory,))
        return (inputs[0].shape, _I16), (memory, _I16)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, memory = arrays
        size = x.shape[-1]
        both = np.concatenate([memory, x.reshape(len(memory), size)], axis=1)
        return both[:, :size].reshape(x.shape), both[:, size:]


@dataclass(frozen=True, slots=True)
class Framer(Op):
    """``x[..., N], buffer, seen -> y[..., N / step, size], valid, buffer, seen``: overlapping frames.

    A frame begins every ``step`` samples. ``seen`` counts steps until the first complete frame; frames before
    it are padded with zeros and marked as not valid. With ``prefill`` they are valid: the time before the
    first run counts as zeros.
    """

    name: ClassVar[str] = "framer"
    states: ClassVar[tuple[tuple[int, int], ...]] = ((1, 2), (2, 3))

    size: int
    step: int
    prefill: bool

    @property
    def kept(self) -> int:
        return self.size if self.prefill else self.steps * self.step

    @property
    def steps(self) -> int:
        return -(-self.size // self.step)

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        x, rows = inputs[0], _rows(inputs[0])
        require(self.size > 0 and self.step > 0, f"frames of {self.size}, {self.step} apart")
        require(self.step <= self.kept, f"frames of {self.size} with prefill are {self.step} apart")
        require(x.shape[-1] % self.step == 0, f"{x.shape[-1]} samples, frames {self.step} apart")
        _require(inputs, (_I16, _I16, _I32), ((rows, self.kept), ()))
        frames = (*x.shape[:-1], x.shape[-1] // self.step, self.size)
        return (frames, _I16), ((), DType.BOOL), ((rows, self.kept), _I16), ((), _I32)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, buffer, seen = arrays
        made, steps = [], x.reshape(len(buffer), -1, self.step)
        for number in range(steps.shape[1]):
            buffer = np.concatenate([buffer[:, self.step :], steps[:, number]], axis=1)
            made.append(buffer[:, : self.size])
        valid = self.prefill or int(seen) + 1 >= self.steps
        count = min(int(seen) + steps.shape[1], self.steps)
        frames = np.stack(made, axis=1).reshape(sig.y.shape)
        return frames, np.array(valid), buffer, np.array(count, np.int32)


@dataclass(frozen=True, slots=True)
class Stacker(Op):
    """``x[C], buffer, wait -> y[(left + 1 + right) * C], valid, buffer, wait``: a frame with its neighbours.

    A stack is valid ``right`` frames after the first one, and then every ``step`` frames. The first frame
    also stands for those to its left. ``wait`` is the number of frames until the next valid stack, initially
    0.
    """

    name: ClassVar[str] = "stacker"
    states: ClassVar[tuple[tuple[int, int], ...]] = ((1, 2), (2, 3))

    left: int
    right: int
    step: int

    @property
    def frames(self) -> int:
        return self.left + 1 + self.right

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        x = inputs[0]
        fits = min(self.left, self.right) >= 0 and 1 <= self.step <= self.frames
        require(fits, f"stacks of {self.left} + 1 + {self.right} frames, {self.step} apart")
        require(len(x.shape) == 1, f"a frame of {shape_text(x.shape)}")
        stack = (self.frames * x.elements,)
        _require(inputs, (_I16, _I16, _I32), (stack, ()))
        return (stack, _I16), ((), DType.BOOL), (stack, _I16), ((), _I32)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, buffer, before = arrays
        wait = int(before)
        stack = np.concatenate([buffer[len(x) :], x]) if wait else np.tile(x, self.frames)
        wait = (wait or self.right + 1) - 1
        return stack, np.array(wait == 0), stack, np.array(wait or self.step, np.int32)


@dataclass(frozen=True, slots=True)
class OverlapAdd(Op):
    """``x[..., F, N], memory[rows, N] -> y[..., F * step], memory``: sums of overlapping frames, ``step``
    apart.

    int16 sums saturate after each addition.
    """

    name: ClassVar[str] = "overlap_add"
    states: ClassVar[tuple[tuple[int, int], ...]] = ((1, 1),)

    step: int

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        x = inputs[0]
        rows = _rows(x, 2)
        count, size = x.shape[-2:]
        require(x.dtype in (_I16, _F32), f"frames of {x.dtype.value}")
        require(0 < self.step <= size, f"frames of {size}, {self.step} apart")
        _require(inputs, (x.dtype, x.dtype), ((rows, size),))
        return ((*x.shape[:-2], count * self.step), x.dtype), ((rows, size), x.dtype)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, memory = arrays
        made, frames = [], x.reshape(len(memory), -1, memory.shape[1])
        for number in range(frames.shape[1]):
            sums = _sum(memory, frames[:, number])
            made.append(sums[:, : self.step])
            memory = np.concatenate([sums[:, self.step :], np.zeros_like(made[0])], axis=1)
        return np.concatenate(made, axis=1).reshape(sig.y.shape), memory


def _sum(a: Array, b: Array) -> Array:
    if a.dtype == np.float32:
        return a.astype(np.float32) + b.astype(np.float32)
    return INT16.saturated(a.astype(np.int64) + b.astype(np.int64))


_NO_LIMITS: Mapping[str, tuple[float, float]] = MappingProxyType({})


def stream_case(name: str, op: Op, x: Value, limits: Mapping[str, tuple[float, float]] = _NO_LIMITS) -> Case:
    memories: Sequence[Value]
    match op:
        case Delay():
            memories = [plain("m", (_rows(x), op.length), _I16)]
        case Framer():
            memories = [plain("m", (_rows(x), op.kept), _I16), plain("n", ())]
        case Stacker():
            memories = [plain("m", (op.frames * x.elements,), _I16), plain("n", ())]
        case _:
            memories = [plain("m", (_rows(x, 2), x.shape[-1]), x.dtype)]
    inputs = (x, *memories)
    kept = {output: memories[i - 1].name for i, output in op.states}
    made = [
        Value(f"{kept[i]}_next" if i in kept else ("y", "valid")[i], shape, dtype)
        for i, (shape, dtype) in enumerate(op.infer(inputs))
    ]
    return Case(f"{op.name}_{name}", op, Signature(inputs, tuple(made)), limits)


def cases() -> Iterator[Case]:
    yield stream_case("long", Delay(7), plain("x", (2, 3), _I16))
    yield stream_case("short", Delay(2), plain("x", (5,), _I16))
    counts = {"n": (0.0, 3.0)}
    yield stream_case("prefill", Framer(7, 3, True), plain("x", (2, 6), _I16))
    yield stream_case("own", Framer(7, 3, False), plain("x", (6,), _I16), counts)
    yield stream_case("at_once", Framer(4, 4, False), plain("x", (2, 4), _I16))
    yield stream_case("at_once", Stacker(2, 0, 1), plain("x", (5,), _I16))
    yield stream_case("own", Stacker(1, 2, 3), plain("x", (4,), _I16), counts)
    yield stream_case("int16", OverlapAdd(3), plain("x", (2, 2, 8), _I16))
    yield stream_case("f32", OverlapAdd(2), plain("x", (3, 4), _F32))
