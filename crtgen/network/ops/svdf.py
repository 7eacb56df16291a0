"""SVDF: a fully connected layer with memory, whose filters are decomposed with rank r."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Op, Quant, Signature, Value, shape_text
from crtgen.network.ops.attrs import Activation, clamp_float, require, require_inputs, tensor_quant
from crtgen.network.ops.case import Case, floats, int8s
from crtgen.network.ops.fixedpoint import multiply_by_quantized_multiplier, quantize_multiplier, single
from crtgen.network.ops.scheme import INT8, scheme_of

__all__ = ["Svdf", "SvdfParams", "cases"]


@dataclass(frozen=True, slots=True)
class SvdfParams:
    """Integers of a quantised SVDF.

    ``feature`` and ``time`` are multiplier and shift: ``feature`` for a filter's product with the input,
    which goes into the state; ``time`` for the sum over the memory, which becomes the output.
    """

    input_offset: int
    state_zero_point: int
    output_offset: int
    feature: tuple[int, int]
    time: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Svdf(Op):
    """``x[B,I], feature[F,I], time[F,M], bias[U], state[B,F*M] -> y[B,U], state``, with F = U * rank filters.

    Each filter's memory is shifted by one, and the product of the filter with the input is appended. An
    output is the sum over its filters' memories, weighted by ``time``. int8 networks have an int8 or int16
    state, and no activation except clamping.
    """

    name: ClassVar[str] = "svdf"
    states: ClassVar[tuple[tuple[int, int], ...]] = ((4, 1),)

    rank: int
    activation: Activation = Activation.NONE

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 5)
        x, feature, time, bias, state = inputs
        require(len(x.shape) == len(feature.shape) == len(time.shape) == 2, "its operands are not matrices")
        filters, memory = time.shape
        fits = feature.shape == (filters, x.shape[1]) and self.rank > 0 and filters % self.rank == 0
        require(fits, f"{shape_text(feature.shape)} filters of rank {self.rank} on {shape_text(x.shape)}")
        units = filters // self.rank
        require(bias.shape == (units,), f"a bias of {shape_text(bias.shape)} for {units} outputs")
        expected = (x.shape[0], filters * memory)
        require(state.shape == expected, f"a state of {shape_text(state.shape)}, not {shape_text(expected)}")
        if scheme_of(x).is_real:
            types = all(v.dtype is DType.FLOAT32 for v in inputs)
        else:
            types = (x.dtype, feature.dtype, bias.dtype) == (DType.INT8, DType.INT8, DType.INT32)
            types &= time.dtype is state.dtype and state.dtype in (DType.INT8, DType.INT16)
        require(types, f"types {', '.join(v.dtype.value for v in inputs)}")
        return (((x.shape[0], units), x.dtype), (state.shape, state.dtype))

    def macs(self, sig: Signature) -> int:
        return sig.x.shape[0] * (sig.inputs[1].elements + sig.inputs[2].elements)

    def parameters(self, sig: Signature) -> SvdfParams:
        """Compute the factors in float32, as TFLite Micro does: ``in * feature / state`` and ``state * time /
        out``.
        """
        x, feature, time, state, y = (
            tensor_quant(v) for v in (*sig.inputs[:3], sig.inputs[4], sig.outputs[0])
        )
        first = single(single(x.scale * feature.scale) / state.scale)
        second = single(single(state.scale * time.scale) / y.scale)
        factors = quantize_multiplier(first), quantize_multiplier(second)
        return SvdfParams(-x.zero_point, state.zero_point, y.zero_point, *factors)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, feature, time, bias, state = arrays
        memories = state.reshape(len(x), *time.shape)
        if scheme_of(sig.x).is_real:
            new = x.astype(np.float64) @ feature.astype(np.float64).T
            kept = np.concatenate([memories[..., 1:], new[..., None]], axis=2).astype(np.float32)
            sums = (
                (kept.astype(np.float64) * time.astype(np.float64))
                .sum(axis=2)
                .reshape(len(x), -1, self.rank)
                .sum(axis=2)
            )
            return clamp_float(sums + bias, self.activation), kept.reshape(state.shape)
        p = self.parameters(sig)
        limits = np.iinfo(state.dtype.name)
        products = (x.astype(np.int64) + p.input_offset) @ feature.astype(np.int64).T
        scaled = np.clip(multiply_by_quantized_multiplier(products, *p.feature), limits.min, limits.max)
        new = (scaled + p.state_zero_point).astype(state.dtype)
        kept = np.concatenate([memories[..., 1:], new[..., None]], axis=2)
        sums = ((kept.astype(np.int64) - p.state_zero_point) * time.astype(np.int64)).sum(axis=2)
        totals = sums.reshape(len(x), -1, self.rank).sum(axis=2) + bias
        outputs = multiply_by_quantized_multiplier(totals, *p.time) + p.output_offset
        return INT8.saturated(outputs), kept.reshape(state.shape)


def cases() -> Iterator[Case]:
    yield svdf_case("int16", int8s("x", (1, 12), 0.05, -7), 5, 2, 6, DType.INT16)
    yield svdf_case("int8", int8s("x", (1, 9), 0.05, 3), 4, 1, 5, DType.INT8)
    yield svdf_case("batch", int8s("x", (3, 7), 0.02, 0), 3, 2, 4, DType.INT16)
    yield svdf_case("f32", floats("x", (1, 10)), 6, 2, 7, DType.FLOAT32)
    yield svdf_case("f32_batch", floats("x", (2, 3)), 4, 1, 3, DType.FLOAT32)


def svdf_case(name: str, x: Value, units: int, rank: int, memory: int, dtype: DType, seed: int = 1) -> Case:
    rng = np.random.default_rng(seed)
    filters, batch = units * rank, x.shape[0]
    if x.quant is None:
        real = (rng.uniform(-1, 1, s) for s in ((filters, x.shape[1]), (filters, memory), (units,)))
        weights = [Value.constant(n, r.astype(np.float32)) for n, r in zip("wtb", real, strict=True)]
        state, y = (floats(n, s) for n, s in (("s", (batch, filters * memory)), ("y", (batch, units))))
    else:
        scale, zero = (0.002, 0) if dtype is DType.INT16 else (0.3, 0)
        top = 2000 if dtype is DType.INT16 else 127
        weights = [
            Value.constant("w", rng.integers(-127, 128, (filters, x.shape[1]), np.int8), Quant.tensor(0.01)),
            Value.constant(
                "t", rng.integers(-top, top, (filters, memory)).astype(dtype.numpy), Quant.tensor(0.003)
            ),
            Value.constant("b", rng.integers(-500, 500, units, np.int32), Quant.tensor(scale * 0.003)),
        ]
        state = Value("s", (batch, filters * memory), dtype, Quant.tensor(scale, zero))
        y = int8s("y", (batch, units), 0.08 if dtype is DType.INT16 else 0.5, -3)
    after = Value("s_next", state.shape, state.dtype, state.quant)
    activation = Activation.RELU if x.quant is None else Activation.NONE
    op = Svdf(rank, activation)
    return Case(f"svdf_{name}", op, Signature((x, *weights, state), (y, after)))
