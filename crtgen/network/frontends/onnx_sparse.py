"""Sparse constants of an `.onnx` file as dense ones, since kernels read all weights, including zeros."""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import numpy_helper

from crtgen.base.errors import CorruptModelError
from crtgen.network.ir import Array, shape_text

__all__ = ["make_dense"]

Places: TypeAlias = npt.NDArray[np.int64]


def make_dense(
    graph: Any, where: str, constant: Callable[[Any], Array], check: Callable[[str, Any], None]
) -> None:
    """Replace the sparse initialisers of a graph.

    ``constant`` reads the values of a tensor; ``check`` raises an error if a named tensor's shape is too
    large.
    """
    for sparse in graph.sparse_initializer:
        name, shape = sparse.values.name, tuple(sparse.dims)
        check(name, shape)
        values = constant(sparse.values).reshape(-1)
        places: Places = constant(sparse.indices).astype(np.int64)
        flat = places if places.ndim == 1 else _counted(places, shape)
        fits = flat is not None and flat.shape == values.shape
        if flat is None or not fits or not bool(((flat >= 0) & (flat < math.prod(shape))).all()):
            text = f"the sparse constant {name!r} has indices that do not fit {shape_text(shape)}"
            raise CorruptModelError(text, where=where, hint="export or download the model again")
        dense = np.zeros(math.prod(shape), values.dtype)
        dense[flat] = values
        graph.initializer.append(numpy_helper.from_array(dense.reshape(shape), name))
    graph.ClearField("sparse_initializer")


def _counted(places: Places, shape: tuple[int, ...]) -> Places | None:
    # Coordinates ``[values, dimensions]`` as places in the flat array; None if they do not fit.
    if places.ndim != 2 or places.shape[1] != len(shape):
        return None
    inside: npt.NDArray[np.bool_] = (places >= 0) & (places < np.array(shape, np.int64))
    if not inside.all():
        return None
    return np.asarray(np.ravel_multi_index(tuple(places.T), shape), np.int64)
