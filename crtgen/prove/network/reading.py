"""Which kind of network a file is."""

from pathlib import Path

import tflite

from crtgen.errors import UnsupportedError
from crtgen.prove.network.file import ModelFile
from crtgen.prove.network.network import Network
from crtgen.prove.network.real_layers import RealNetwork
from crtgen.prove.network.uncompared import Uncompared
from crtgen.prove.refusal import Refusal

__all__ = ["read_network"]


def read_network(path: Path, later: bool = False) -> Network:
    """The network of a file. Raises ``Refusal`` for what is not followed."""
    if path.suffix.lower() == ".onnx":
        return Network(path, later)
    file = ModelFile(path)
    if any(file.type(tensor) == tflite.TensorType.FLOAT32 for tensor in (*file.inputs, *file.outputs)):
        return RealNetwork(path, "outputs of float32 are not compared")
    try:
        network = Network(path, later)
        for layer in network.layers:
            network.prepared(layer)
    except UnsupportedError as error:
        return Uncompared(path, f"outputs are not compared: {error.message}")
    except Refusal as refusal:
        return Uncompared(path, f"outputs are not compared: {refusal}")
    return network
