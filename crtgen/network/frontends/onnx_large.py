"""Large constants of an `.onnx` model, which are removed before the onnx package copies the model."""

from collections.abc import Callable, Mapping
from typing import Any

import onnx
from onnx import checker

from crtgen.network.ir import Array

__all__ = ["check_model", "without_large"]

# Bytes from which on a constant is large: no shape, which the package would have to know, has as many.
_LARGE = 64 * 1024


def without_large(model: Any, read: Callable[[Any], Array]) -> tuple[Any, dict[str, Array]]:
    """Return a copy of the model without the data of large constants in its main graph, and these constants
    by name.
    """
    large: dict[str, Array] = {}
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) >= _LARGE and tensor.name not in large:
            large[tensor.name] = read(tensor)
            tensor.ClearField("raw_data")
    light = onnx.ModelProto()
    light.CopyFrom(model)
    return light, large


def check_model(model: Any, large: Mapping[str, Array]) -> None:
    """Run the onnx package's check, for which large constants without data count as empty ones."""
    taken = [tensor for tensor in model.graph.initializer if tensor.name in large]
    for tensor in taken:
        tensor.dims[:] = [0]
    try:
        checker.check_model(model)
    finally:
        for tensor in taken:
            tensor.dims[:] = large[tensor.name].shape
