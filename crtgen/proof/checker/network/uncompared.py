"""Networks whose outputs are not compared: only the code's memory accesses are proven.

They have float32 inputs or outputs, branches and loops, or an operator that the checker does not define.
"""

from pathlib import Path

import tflite

from crtgen.proof.checker.algebra.products import SymbolProducts
from crtgen.proof.checker.network.file import ModelFile
from crtgen.proof.checker.network.network import Network

__all__ = ["Uncompared"]


class _File(ModelFile):
    def zero_point(self, tensor: int) -> int:
        # Numbers of float32 are what they say.
        return 0 if self.type(tensor) == tflite.TensorType.FLOAT32 else super().zero_point(tensor)


class Uncompared(Network):
    """A network without layers: its inputs are symbols; its outputs and states may be anything."""

    slides = False

    def __init__(self, path: Path, why: str) -> None:
        self.file, self.path, self.uncompared = _File(path), path, why
        self.products = SymbolProducts()
        self.states, self.layers, self.readers, self._made, self._sources = [], [], {}, {}, {}
        self._given = self.fed = {tensor: self._symbols(tensor) for tensor in self.file.inputs}
