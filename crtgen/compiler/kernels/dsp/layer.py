"""A convolution for the matrix micro-kernel: where it goes, what it packs, and its weights."""

from dataclasses import dataclass

from crtgen.compiler.kernels.dsp.matrix import WeightStream
from crtgen.compiler.kernels.dsp.packing import Packing
from crtgen.compiler.kernels.dsp.walk import Walk
from crtgen.compiler.kernels.engine.kernel import Const

__all__ = ["DspLayer"]


@dataclass(frozen=True, slots=True, eq=False)
class DspLayer:
    """All that is decided of a layer before its code is."""

    walk: Walk
    packing: Packing
    stream: WeightStream
    steps: int

    @property
    def weights(self) -> Const:
        return self.stream.const

    @property
    def lead(self) -> int:
        """The lead with which the output may overwrite the input."""
        return self.walk.lead(self.stream.pixel_bytes)
