"""Random layers in generated C, apart and in place, against the operators' definitions."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from crtgen.ir import DType, Op, Quant, Value
from crtgen.ops import (
    Activation,
    Add,
    AveragePool2d,
    Case,
    Concat,
    Conv2d,
    DepthwiseConv2d,
    MaxPool2d,
    Mean,
    Mul,
    Pad,
    Padding,
    StridedSlice,
    Sub,
    Transpose,
)
from crtgen.ops.case import make
from tests.kernels.overlays import overlays
from tests.kernels.program import Run, check_outputs, run_on_host, run_plans_on_host

Random = np.random.Generator


def _tensor(random: Random, name: str, shape: tuple[int, ...]) -> Value:
    if random.integers(4) == 0:
        return Value(name, shape, DType.FLOAT32)
    quant = Quant.tensor(float(np.exp(random.uniform(-4, 0))), int(random.integers(-128, 128)))
    return Value(name, shape, DType.INT8, quant)


def _image(random: Random) -> Value:
    return _tensor(random, "x", (*(int(n) for n in random.integers(1, [3, 10, 10, 12])),))


def _output(random: Random) -> Quant:
    return Quant.tensor(float(np.exp(random.uniform(-3, 2))), int(random.integers(-128, 128)))


def _pick(random: Random) -> Activation:
    return list(Activation)[random.integers(4)]


def _window(random: Random, x: Value, most_dilation: int) -> tuple[tuple[int, ...], ...]:
    """Taps, stride, dilation and padding of a window that fits."""
    taps, stride = random.integers(1, 5, 2), random.integers(1, 4, 2)
    dilation = random.integers(1, most_dilation + 1, 2)
    extent = (taps - 1) * dilation + 1
    before = random.integers(0, taps)
    after = np.maximum(random.integers(0, taps), extent - before - np.array(x.shape[1:3]))
    padding = (before[0], after[0], before[1], after[1])
    return tuple(tuple(int(n) for n in numbers) for numbers in (taps, stride, dilation, padding))


def _constants(random: Random, x: Value, shape: tuple[int, ...], axis: int) -> list[Value]:
    outputs = shape[axis]
    if x.dtype is DType.FLOAT32:
        weights = Value.constant("w", random.uniform(-1, 1, shape).astype(np.float32))
        return [weights, Value.constant("b", random.uniform(-1, 1, outputs).astype(np.float32))]
    scales = tuple(float(s) for s in np.exp(random.uniform(-6, -2, outputs)).astype(np.float32))
    weights = Value.constant(
        "w", random.integers(-127, 128, shape, np.int8), Quant(scales, (0,) * outputs, axis)
    )
    return [weights, Value.constant("b", random.integers(-5000, 5000, outputs, np.int32))]


def _convolution(random: Random, name: str) -> Case:
    x = _image(random)
    taps, stride, dilation, padding = _window(random, x, 2)
    channels, filters = x.shape[3], int(random.integers(1, 11))
    op: Op
    if random.integers(2):
        op = Conv2d(stride, Padding(*padding), dilation, _pick(random))
        constants = _constants(random, x, (filters, *taps, channels), 0)
    else:
        multiplier = int(random.integers(1, 4))
        op = DepthwiseConv2d(stride, Padding(*padding), dilation, multiplier, _pick(random))
        constants = _constants(random, x, (1, *taps, channels * multiplier), 3)
    return make(name, op, [x, *constants], _output(random))


def _pool(random: Random, name: str) -> Case | None:
    x = _image(random)
    taps, stride, _, padding = _window(random, x, 1)
    if max(padding[:2]) >= taps[0] or max(padding[2:]) >= taps[1]:
        return None
    kind = (AveragePool2d, MaxPool2d)[random.integers(2)]
    return make(name, kind(taps, stride, Padding(*padding), _pick(random)), [x])


def _binary(random: Random, name: str) -> Case:
    shape = random.integers(1, 7, random.integers(1, 5))
    a = _tensor(random, "a", tuple(np.where(random.integers(3, size=shape.size), shape, 1).tolist()))
    other = tuple(np.where(random.integers(3, size=shape.size), shape, 1).tolist())
    quant = None if a.quant is None else Quant.tensor(a.quant.scale * 1.3, -3)
    b = Value("b", other[random.integers(len(other)) :], a.dtype, quant)
    kind = (Add, Sub, Mul)[random.integers(3)]
    output = None if a.quant is None else Quant.tensor(a.quant.scale * 2, 9)
    return make(name, kind(_pick(random)), [a, b], output)


def _movement(random: Random, name: str) -> Case:
    x = _tensor(random, "x", tuple(random.integers(1, 6, random.integers(1, 5)).tolist()))
    rank = len(x.shape)
    kind = random.integers(5)
    if kind == 0:
        return make(name, Transpose(tuple(random.permutation(rank).tolist())), [x])
    if kind == 1:
        amounts = random.integers(0, 3, (2, rank)).tolist()
        return make(name, Pad(tuple(amounts[0]), tuple(amounts[1])), [x])
    if kind == 2:
        axis = int(random.integers(rank))
        return make(name, Concat(axis), [x, Value("x2", x.shape, x.dtype, x.quant)])
    if kind == 3:
        axes = tuple(sorted(random.permutation(rank)[: random.integers(1, rank + 1)].tolist()))
        return make(name, Mean(axes, bool(random.integers(2))), [x])
    forward = random.integers(2, size=rank).astype(bool)
    begin = np.where(forward, 0, np.array(x.shape) - 1)
    end = np.where(forward, x.shape, -1)
    stride = np.where(forward, 1, -1) * random.integers(1, 4, rank)
    return make(name, StridedSlice(tuple(begin.tolist()), tuple(end.tolist()), tuple(stride.tolist())), [x])


def _cases() -> Iterator[Case]:
    random = np.random.default_rng(11)
    for number in range(60):
        for kind in (_convolution, _pool, _binary, _movement):
            case = kind(random, str(number))
            if case is not None:
                yield case


@pytest.mark.cc
def test_random_layers(tmp_path: Path) -> None:
    runs = [Run(f"{case.name} {case.op.attributes()}", case.graph(), case.inputs(4)) for case in _cases()]
    assert len(runs) > 200
    outputs = run_on_host(tmp_path, runs, ["-O0"])
    wrong = [check_outputs(run, out) for run, out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.cc
def test_random_overlays(tmp_path: Path) -> None:
    runs = [pair for case in _cases() for pair in overlays(case, 5)]
    outputs = run_plans_on_host(tmp_path, runs, ["-O0"])
    wrong = [check_outputs(run, out) for (run, _), out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))
