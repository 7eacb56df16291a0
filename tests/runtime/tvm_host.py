"""How the Python classes of TVM 0.9 to 0.18 use a device, written anew over crtgen's client."""

from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen.device.rpc.client import Client
from crtgen.device.rpc.connection import RemoteFunction, RemoteModule
from crtgen.device.rpc.values import Device

__all__ = ["GraphModule", "create"]

LOOKED_UP = (
    "set_input",
    "run",
    "get_output",
    "get_input",
    "get_num_outputs",
    "get_input_index",
    "get_input_info",
    "get_num_inputs",
    "load_params",
    "share_params",
)
"""What a ``GraphModule`` looks up when it is made since 0.9: one that is missing is an error."""

OPTIONAL = ("set_input_zero_copy", "set_output_zero_copy")
"""What they look up since 0.12, and do without."""


class GraphModule:
    """A module of the device that has the functions of a graph executor."""

    def __init__(self, module: RemoteModule) -> None:
        self._module = module
        for name in LOOKED_UP:
            self.function(name)
        self.optional = [name for name in OPTIONAL if module.get_function(name) is not None]

    def function(self, name: str) -> RemoteFunction:
        found = self._module.get_function(name)
        if found is None:
            raise AttributeError(f"Module has no function '{name}'")
        return found

    def set_input(self, key: str | int, value: npt.ArrayLike) -> None:
        """TVM fetches the input's tensor and copies to it: ``set_input`` of the device is not called."""
        self.function("get_input")(key).write(value)

    def run(self) -> None:
        self.function("run")()

    def get_output(self, index: int) -> "np.ndarray[Any, Any]":
        array: np.ndarray[Any, Any] = self.function("get_output")(index).read()
        return array


def create(client: Client, graph_json: str, library: RemoteModule) -> GraphModule:
    """``tvm.contrib.graph_executor.create(graph_json, library, device)``."""
    device = Device()
    make = client.function("tvm.graph_executor.create")
    module = make(graph_json, library, device.type, device.id)
    assert isinstance(module, RemoteModule)
    return GraphModule(module)
