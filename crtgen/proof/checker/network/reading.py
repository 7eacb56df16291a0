"""Chooses the reader for a network's file format."""

from pathlib import Path

import tflite

from crtgen.base.errors import UnsupportedError
from crtgen.proof.checker.network.file import ModelFile
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.network.real_layers import RealNetwork
from crtgen.proof.checker.network.uncompared import Uncompared
from crtgen.proof.checker.refusal import Refusal

__all__ = ["read_network"]


def read_network(path: Path, later: bool = False) -> Network:
    """Read the network of a file. Raises ``Refusal`` for one that the checker does not follow."""
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
