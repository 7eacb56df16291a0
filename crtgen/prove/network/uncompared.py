"""Networks of which no output is compared: what the code does with memory is proven of them.

They are those with ends of float32, with branches and loops, or with an operator that has no meaning here.
"""

from pathlib import Path

import tflite

from crtgen.errors import UnsupportedError
from crtgen.prove.network.file import Kind, ModelFile
from crtgen.prove.network.network import Network

__all__ = ["Uncompared", "read_network"]

_REAL = Kind(32, -(1 << 31), (1 << 31) - 1)


class _File(ModelFile):
    def kind(self, tensor: int) -> Kind:
        """Of float32, the bits of a number."""
        return _REAL if self.type(tensor) == tflite.TensorType.FLOAT32 else super().kind(tensor)


class Uncompared(Network):
    """Its inputs are symbols, and it has no layers: each output may be anything, and so is what it keeps."""

    slides = False

    def __init__(self, path: Path, why: str) -> None:
        self.file, self.path, self.uncompared = _File(path), path, why
        self.states, self.layers, self.readers, self._made, self._sources = [], [], {}, {}, {}
        self._given = self.fed = {tensor: self._symbols(tensor) for tensor in self.file.inputs}


def read_network(path: Path, later: bool = False) -> Network:
    """The network of a file. Raises ``Refusal`` for what is not followed."""
    if path.suffix.lower() == ".onnx":
        return Network(path, later)
    file = ModelFile(path)
    if any(file.type(tensor) == tflite.TensorType.FLOAT32 for tensor in (*file.inputs, *file.outputs)):
        return Uncompared(path, "outputs of float32 are not compared")
    try:
        return Network(path, later)
    except UnsupportedError as error:
        return Uncompared(path, f"outputs are not compared: {error.message}")
