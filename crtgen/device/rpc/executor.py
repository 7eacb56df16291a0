"""The model on the device, through the standard functions of an AOT executor."""

import time
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from crtgen.base import endpoints
from crtgen.base.endpoints import Endpoint
from crtgen.base.errors import UsageError
from crtgen.device.rpc.connection import Connection, RemoteModule, RemoteTensor
from crtgen.device.rpc.values import Device

__all__ = ["AotExecutor"]

# Assumed seconds of the first run, in case its answer is lost.
_SECONDS = 0.5


class AotExecutor:
    """An AOT executor of the device; a context manager that frees it.

    Inputs are addressed by name or index, outputs by index.
    """

    def __init__(self, connection: Connection, module: RemoteModule) -> None:
        self.module = module
        self._connection = connection
        self._seconds = _SECONDS
        self._tensors: dict[tuple[str, int], RemoteTensor] = {}

    @classmethod
    def create(cls, connection: Connection, name: str) -> Self:
        """Create the executor of the model of that name. Raises ``RemoteError`` if the image has none."""
        create = connection.function(endpoints.AOT_EXECUTOR.name)
        library = connection.system_lib()
        module = connection.call(create, (library, Device(), name), again=0.0)
        library.close()
        if not isinstance(module, RemoteModule):
            raise UsageError(
                f"the device has no model {name}",
                hint="generate the firmware again with this model, and flash it",
            )
        return cls(connection, module)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def num_inputs(self) -> int:
        return self.module.call(endpoints.GET_NUM_INPUTS)

    @property
    def num_outputs(self) -> int:
        return self.module.call(endpoints.GET_NUM_OUTPUTS)

    def input_index(self, name: str) -> int:
        """Return the index of an input. Raises ``UsageError`` if no input has that name."""
        index = self.module.call(endpoints.GET_INPUT_INDEX, name)
        if index < 0:
            raise UsageError(f"the model has no input {name}", hint="crtgen inspect lists the inputs")
        return index

    def input_name(self, index: int) -> str:
        return self.module.call(endpoints.GET_INPUT_NAME, index)

    def input(self, key: int | str) -> RemoteTensor:
        return self._tensor(endpoints.GET_INPUT, self.input_index(key) if isinstance(key, str) else key)

    def output(self, index: int) -> RemoteTensor:
        return self._tensor(endpoints.GET_OUTPUT, index)

    def set_input(self, key: int | str, array: npt.ArrayLike) -> None:
        """Copy an array to an input. Raises ``UsageError`` unless shape and type are equal."""
        self.input(key).write(array)

    def run(self, *, timeout: float | None = None) -> None:
        """Run one inference and wait for at most ``timeout`` seconds. A repeated request runs it only
        once.
        """
        number = self._connection.run_number()
        if number is None:
            self.module.call(endpoints.RUN, timeout=timeout)
            return
        start = time.monotonic()
        self.module.call(endpoints.RUN, number, timeout=timeout, again=2 * self._seconds)
        self._seconds = time.monotonic() - start

    def reset(self) -> None:
        """Reset the model's states to their values before the first run."""
        self.module.call(endpoints.RESET)

    def get_output(self, index: int) -> "np.ndarray[Any, Any]":
        return self.output(index).read()

    def close(self) -> None:
        for tensor in self._tensors.values():
            tensor.close()
        self._tensors.clear()
        self.module.close()

    def _tensor(self, getter: Endpoint[object], index: int) -> RemoteTensor:
        # Asked for each time: the device then knows which model is used, and may refuse.
        found = self.module.call(getter, index)
        if not isinstance(found, RemoteTensor):
            raise UsageError(f"the model has no tensor {index} for {getter.name}", hint="count from 0")
        return self._tensors.setdefault((getter.name, index), found)
