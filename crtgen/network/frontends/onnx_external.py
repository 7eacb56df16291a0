"""Tensor data of an `.onnx` model in separate files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

from crtgen.base import budget, files
from crtgen.base.errors import CorruptModelError, UnsupportedError

__all__ = ["load_external"]

_HINT = "export or download the model again"


def load_external(graph: Any, where: str, folder: Path | None) -> None:
    """Read tensor data from files beside the model.

    Raises ``CorruptModelError`` for a file that is missing, too short, or outside of the folder.
    """
    contents: dict[Path, bytes] = {}
    for tensor in _tensors(graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _load_tensor(tensor, where, folder, contents)


def _tensors(graph: Any) -> Iterator[Any]:
    # Every constant of a graph and of its subgraphs.
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)


def _load_tensor(tensor: Any, where: str, folder: Path | None, contents: dict[Path, bytes]) -> None:
    # Read the data of a tensor; each file is read once.
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    label = f"the data of {tensor.name!r} in {location!r}"
    if folder is None:
        raise UnsupportedError(f"{label}, given without its folder", where=where)
    path, root = (folder / location).resolve(), folder.resolve()
    if not location or Path(location).is_absolute() or not path.is_relative_to(root):
        reason = f"{label}: the path leaves the folder of the model"
        raise CorruptModelError(reason, where=where, hint="keep a model and its data in one folder")
    if not path.is_file():
        hint = f"put {location} beside the model, or save it with its data"
        raise CorruptModelError(f"{label}: there is no such file", where=where, hint=hint)
    if path not in contents:
        contents[path] = files.read(path, "the model's data")
    content = contents[path]
    offset, length = (int(entries.get(key) or 0) for key in ("offset", "length"))
    length = length or len(content) - offset
    if min(offset, length) < 0 or offset + length > len(content):
        reason = f"{label}: {length} bytes at {offset} of a file of {len(content)}"
        raise CorruptModelError(reason, where=where, hint=_HINT)
    budget.current().take(length, label)
    tensor.raw_data = content[offset : offset + length]
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]
