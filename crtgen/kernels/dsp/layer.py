"""A convolution for the matrix micro-kernel: where it goes, what it packs, and its weights."""

from dataclasses import dataclass

from crtgen.kernels.dsp.matrix import Stream
from crtgen.kernels.dsp.packing import Packing
from crtgen.kernels.dsp.walk import Geometry, Walk, Window, least_lead
from crtgen.kernels.kernel import Const

__all__ = ["Layer"]


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """All that is decided of a layer before its code is."""

    geometry: Geometry
    walk: Walk
    window: Window | None
    packing: Packing
    stream: Stream
    steps: int

    @property
    def weights(self) -> Const:
        return self.stream.const

    @property
    def lead(self) -> int:
        """That of the leave to work in place."""
        geometry = self.geometry
        return least_lead(self.walk, self.window, geometry.images, geometry.image_bytes, self.stream.channels)
