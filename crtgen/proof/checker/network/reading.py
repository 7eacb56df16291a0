"""Chooses the reader for a network's file format."""

from pathlib import Path

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
    try:
        network = Network(path, later)
        for layer in network.layers:
            network.prepared(layer)
    except UnsupportedError as error:
        return _uncompared(path, error.message)
    except Refusal as refusal:
        return _uncompared(path, str(refusal))
    return network


def _uncompared(path: Path, reason: str) -> Network:
    # A network of float32 from end to end has bounds of its error; any other none.
    file = ModelFile(path)
    if any(file.is_real(tensor) for tensor in (*file.inputs, *file.outputs)):
        return RealNetwork(path, "outputs of float32 are not compared")
    return Uncompared(path, f"outputs are not compared: {reason}")
