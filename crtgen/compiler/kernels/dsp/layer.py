"""Prepares a convolution for the matrix micro-kernel: its windows, packing and weights."""

from dataclasses import dataclass

from crtgen.compiler.kernels.dsp.matrix import WeightStream
from crtgen.compiler.kernels.dsp.packing import Packing
from crtgen.compiler.kernels.dsp.walk import Walk
from crtgen.compiler.kernels.engine.kernel import Const

__all__ = ["DspLayer"]


@dataclass(frozen=True, slots=True, eq=False)
class DspLayer:
    walk: Walk
    packing: Packing
    stream: WeightStream
    steps: int

    @property
    def weights(self) -> Const:
        return self.stream.const

    @property
    def lead(self) -> int:
        return self.walk.lead(self.stream.pixel_bytes)
