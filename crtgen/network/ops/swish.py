"""The 16-bit arithmetic of TFLite's int8 ``hard_swish``."""

from dataclasses import dataclass

import numpy as np

from crtgen.network.ir import Quant
from crtgen.network.ops.fixedpoint import Int64, quantize_multiplier, rounding_divide_by_pot, single

__all__ = ["SwishParams", "hard_swish"]

_LOW, _HIGH = -(1 << 15), (1 << 15) - 1
_SHIFT = 7  # of the input, for more bits


@dataclass(frozen=True, slots=True)
class SwishParams:
    """Zero points, and factors ``multiplier * 2**(exponent - 15)`` with 15-bit multipliers.

    The input, minus its zero point and times 128, is scaled twice: by the output's factor for the first
    operand of the product, and by the gate's factor, in which 3.0 is 32768, for the second operand.
    """

    input_zero_point: int
    output_zero_point: int
    output_multiplier: int
    output_exponent: int
    gate_multiplier: int
    gate_exponent: int

    @classmethod
    def of(cls, x: Quant, y: Quant) -> "SwishParams":
        """Compute the factors in float32. Raises ``ValueError`` if the output's scale is finer than 1/128 of
        the input's.
        """
        fine = single(x.scale / (1 << _SHIFT))
        output = _short(*quantize_multiplier(single(fine / y.scale)))
        gate = _short(*quantize_multiplier(single(fine / single(3 / 32768))))
        if output[1] > 0:
            raise ValueError("the output's scale is too fine for the input's")
        if min(output[1], gate[1]) < -15:
            raise ValueError(
                f"the input's scale {x.scale:g} is too fine: TFLite shifts 16 bits by more than 15"
            )
        return cls(x.zero_point, y.zero_point, *output, *gate)


def _short(multiplier: int, exponent: int) -> tuple[int, int]:
    # The multiplier rounded to 15 bits.
    return min((multiplier + (1 << 15)) >> 16, _HIGH), exponent


def _high(a: Int64, b: int) -> Int64:
    # ``a * b / 2**15`` rounded to nearest, halves away from zero; saturating.
    product = a * b
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    high: Int64 = np.minimum(_towards_zero(nudged, 15), _HIGH)
    return high


def _towards_zero(x: Int64, bits: int) -> Int64:
    cut: Int64 = np.sign(x) * (np.abs(x) >> bits)
    return cut


def _shifted(x: Int64, bits: int) -> Int64:
    shifted: Int64 = np.clip(x << bits, _LOW, _HIGH)
    return shifted


def hard_swish(params: SwishParams, x: Int64) -> Int64:
    """Return the output for inputs that include their zero point; it is not yet saturated to its type."""
    fine = (x - params.input_zero_point) << _SHIFT
    scaled = _high(fine, params.output_multiplier)
    gate = fine
    if params.gate_exponent > 0:
        gate = _shifted(gate, params.gate_exponent - 1)
    gate = _high(gate, params.gate_multiplier)
    if params.gate_exponent > 0:
        gate = _shifted(gate, 1)
    if params.gate_exponent < 0:
        gate = rounding_divide_by_pot(gate, -params.gate_exponent)
    gate = (gate + (1 << 15)) >> 1
    product = _towards_zero(gate * scaled, 15)
    return rounding_divide_by_pot(product, -params.output_exponent) + params.output_zero_point
