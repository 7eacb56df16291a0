"""From accumulator to output: requantisation to int8, or the clamp of float32."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtgen.compiler.kernels.arithmetic.requant import Rescale, solve_floor
from crtgen.compiler.kernels.engine.cost import Work, limits_within
from crtgen.compiler.kernels.engine.kernel import Const
from crtgen.compiler.kernels.engine.literal import c_float, plus
from crtgen.network.ir import Array, Signature
from crtgen.network.ops import INT8, Activation, ConvParams
from crtgen.network.ops.conv import sum_bounds
from crtgen.network.ops.rescaling import mantissa_of

__all__ = [
    "Epilogue",
    "even",
    "float_epilogue",
    "folded_bias",
    "integer_epilogue",
    "one_rounding",
    "sums",
    "two_roundings",
]


_GREATEST = INT8.magnitude(0)


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Conversion of an accumulator to an output, as C names and literals.

    ``x_type``, ``w_type`` and ``sum_type`` are the types of inputs, weights and accumulators; ``factor`` is
    the C expression that multiplies a weight. ``scale`` is the requantising function, empty for float32;
    ``clamp`` turns its result into an output. With ``per_channel``, each output channel has its own
    multiplier and shift. ``offset`` is added afterwards, as ``+ 3``. ``low`` and ``high`` are empty if
    nothing is clamped. With ``scaled``, float32 sums are multiplied by the scale of their weights. Integer
    sums without a ``scale`` are the outputs.
    """

    x_type: str
    w_type: str
    sum_type: str
    factor: str
    scale: str = ""
    clamp: str = ""
    per_channel: bool = False
    offset: str = ""
    low: str = ""
    high: str = ""
    scaled: bool = False

    @property
    def y_type(self) -> str:
        return self.x_type if self.scale else self.sum_type

    def work(self, work: Work, runs: float, pixels: int, channels: int) -> None:
        if self.scale:
            clamped = limits_within(self.clamp.removeprefix("crt_"), self.low, self.high)
        else:
            clamped = bool(self.low) + bool(self.high)
        form = self.scale or ("scaled float" if self.scaled else self.sum_type.removesuffix("_t"))
        name = f"{form} clamp {clamped}{' each' if self.per_channel else ''}"
        work.block(f"output {name}", runs * pixels * channels, pixels * channels)
        work.block(f"channel {name}", runs * channels, channels)


def float_epilogue(activation: Activation) -> Epilogue:
    low, high = activation.float_range()
    return Epilogue(
        x_type="float",
        w_type="float",
        sum_type="float",
        factor="float",
        low=c_float(low) if np.isfinite(low) else "",
        high=c_float(high) if np.isfinite(high) else "",
    )


def sums(sig: Signature, zero_point: int, axes: tuple[int, ...]) -> tuple[Epilogue, Const]:
    """Return the epilogue of a layer whose outputs are its sums, and its bias with the zero point of the
    input folded in.

    ``axes`` are the axes of the weights that are summed over.
    """
    x, w, bias = sig.inputs
    total = bias.array() - zero_point * w.array().astype(np.int64).sum(axis=axes).ravel()
    const = Const.of("bias", total.astype(np.int32), note="less zero point times weights")
    return Epilogue(x.dtype.c_name, w.dtype.c_name, "int32_t", "int32_t"), const


def integer_epilogue(sig: Signature, params: ConvParams, bias: Array) -> tuple[Epilogue, tuple[Const, ...]]:
    """Return the requantisation of a quantised layer with this folded bias, and its multipliers and
    shifts.
    """
    if params.factors is not None:
        return _even_epilogue(sig, params)
    return _wide_epilogue(sig, params, bias) if params.wide else _narrow_epilogue(sig, params, bias)


def _wide_epilogue(sig: Signature, params: ConvParams, bias: Array) -> tuple[Epilogue, tuple[Const, ...]]:
    # Sums of 64 bits; with few weights 32 bits suffice. Their type is that of the bias.
    multipliers = np.minimum((params.multipliers.astype(np.int64) + (1 << 15)) >> 16, 0x7FFF).astype(np.int32)
    shifts = (15 - params.shifts).astype(np.int8)
    per_channel = len(set(zip(multipliers.tolist(), shifts.tolist(), strict=True))) > 1
    count = len(shifts) if per_channel else 1
    consts = (
        Const.of("multiplier", multipliers[:count], 4, "times 2^15"),
        Const.of("shift", shifts[:count], 1, "bits to the right"),
    )
    sum_type = f"{bias.dtype.name}_t"
    return _integer(sig, params, sum_type, "crt_scale_wide", per_channel), consts


def _even_epilogue(sig: Signature, params: ConvParams) -> tuple[Epilogue, tuple[Const, ...]]:
    # By a float32 product; the factor is stored as mantissa and exponent.
    assert params.factors is not None
    pairs = np.array([mantissa_of(f) for f in params.factors.tolist()], np.int64)
    per_channel = len(np.unique(params.factors)) > 1
    count = len(pairs) if per_channel else 1
    consts = (
        Const.of("multiplier", pairs[:count, 0].astype(np.int32), 4, "24 bits of the factor"),
        Const.of("shift", pairs[:count, 1].astype(np.int8), 1, "bits to the right"),
    )
    return _integer(sig, params, "int32_t", "crt_scale_even", per_channel), consts


def even(total: str, factor: float, odd: bool = False) -> str:
    """Return C for ``total`` times a float32 factor, rounded with ties to even, or ``odd``, numbers."""
    mantissa, right = mantissa_of(factor)
    return f"crt_scale_{'odd' if odd else 'even'}({total}, {mantissa}, {right})"


def _integer(sig: Signature, params: ConvParams, sum_type: str, scale: str, per_channel: bool) -> Epilogue:
    return Epilogue(
        x_type=sig.x.dtype.c_name,
        w_type=sig.inputs[1].dtype.c_name,
        sum_type=sum_type,
        factor="int32_t",
        scale=scale,
        clamp=f"crt_{sig.y.dtype.value}",
        per_channel=per_channel,
        offset=plus(params.output_offset),
        low=str(params.act_min),
        high=str(params.act_max),
    )


def _narrow_epilogue(sig: Signature, params: ConvParams, bias: Array) -> tuple[Epilogue, tuple[Const, ...]]:
    # Sums of 32 bits. If every factor is below one half and the sums are below 2**30, the cheap form applies,
    # whose shifts count to the right beyond the first bit.
    multipliers, shifts = params.multipliers.copy(), params.shifts.copy()
    shifts[multipliers == 0] = -1
    summed = sig.inputs[1].elements // len(bias)
    greatest = params.scheme.magnitude(0) * _GREATEST
    largest = int(np.abs(bias.astype(np.int64)).max()) + greatest * summed
    right = bool((shifts < 0).all()) and largest < 2**30
    per_channel = len(set(zip(multipliers.tolist(), shifts.tolist(), strict=True))) > 1
    count = len(shifts) if per_channel else 1
    consts = (
        Const.of("multiplier", multipliers[:count], 4, "times 2^31"),
        Const.of("shift", (-1 - shifts if right else shifts)[:count].astype(np.int8), 1, _direction(right)),
    )
    return _integer(sig, params, "int32_t", "crt_scale_down" if right else "crt_scale", per_channel), consts


def two_roundings(total: str, multiplier: int, shift: int, extent: int) -> str:
    """Return C for ``total`` (at most ``extent``) times ``multiplier * 2**(shift - 31)``, as TFLite rounds
    it.
    """
    if shift < 0 and extent < 1 << 30:
        return f"crt_scale_down({total}, {multiplier}, {-1 - shift})"
    return f"crt_scale({total}, {multiplier}, {shift})"


def one_rounding(total: str, rescale: Rescale) -> str | None:
    """Return C for the requantisation of the C expression ``total``, before its clamp; None if no such form
    is exact.
    """
    floor = solve_floor(rescale)
    if floor is None:
        return None
    offset, multiplier, constant = (int(n[0]) for n in (floor.offset, floor.multiplier, floor.constant))
    high = f"(int32_t)((int64_t)({total} {plus(offset)}) * {multiplier} >> 32)"
    return f"({high} {plus(constant)}) >> {floor.shift}"


def _direction(right: bool) -> str:
    return "bits to the right, less one" if right else "bits to the left"


def folded_bias(sig: Signature, params: ConvParams, axes: tuple[int, ...]) -> Array:
    """Return the bias plus the input zero point's share of every sum, so that raw inputs can be accumulated.

    It has the type of the sums: 64 bits if they need them. ``axes`` are the axes of the weights that are
    summed over.
    """
    weights, bias = sig.inputs[1].array(), sig.inputs[2].array()
    sums: npt.NDArray[np.int64] = weights.sum(axis=axes, dtype=np.int64).ravel()
    total = bias.astype(np.int64) + params.input_offset * sums
    if params.wide and max(sum_bounds(sig, next(a for a in range(weights.ndim) if a not in axes))) >= 2**31:
        return total
    if np.abs(total).max() >= 2**31:
        raise ValueError("the bias does not fit into 32 bits with the zero point folded in")
    return total.astype(np.int32)
