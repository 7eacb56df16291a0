"""Rounding of float32 features to integers."""

from dataclasses import dataclass

from crtgen.network.features.scaler import Scaler
from crtgen.network.ir import DType, Quant

__all__ = ["IntegerRounding"]


@dataclass(frozen=True, slots=True)
class IntegerRounding:
    """Rounding of float32 features to integers: the type, and if it ``truncates`` towards zero.

    ``history`` is the number of samples before the first frame of a run.
    """

    quant: Quant
    dtype: DType
    truncates: bool
    history: int
    scaler: Scaler | None = None
