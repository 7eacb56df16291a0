"""Networks with ends of float32: what the code does with memory is proven of them, and no output."""

from pathlib import Path

import tflite

from crtgen.prove.network.file import Kind, ModelFile
from crtgen.prove.network.network import Network
from crtgen.prove.refusal import Refusal

__all__ = ["RealNetwork", "read_network"]

_REAL = Kind(32, -(1 << 31), (1 << 31) - 1)


class _RealFile(ModelFile):
    def kind(self, tensor: int) -> Kind:
        """Of float32, the bits of a number."""
        return _REAL if self.type(tensor) == tflite.TensorType.FLOAT32 else super().kind(tensor)


class RealNetwork(Network):
    """Its inputs are symbols, and it has no layers: each output may be anything."""

    compared = slides = False

    def __init__(self, path: Path) -> None:
        self.file, self.path = _RealFile(path), path
        if self.file.variables():
            raise Refusal("states beside numbers of float32")
        self.states, self.layers, self.readers, self._made, self._sources = [], [], {}, {}, {}
        self._given = self.fed = {tensor: self._symbols(tensor) for tensor in self.file.inputs}


def read_network(path: Path, later: bool = False) -> Network:
    """The network of a file. Raises ``Refusal`` for what is not followed."""
    if path.suffix.lower() != ".onnx":
        file = ModelFile(path)
        ends = (*file.inputs, *file.outputs)
        if any(file.type(tensor) == tflite.TensorType.FLOAT32 for tensor in ends):
            return RealNetwork(path)
    return Network(path, later)
