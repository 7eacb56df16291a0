"""The front ends: a model file as a graph."""

from pathlib import Path

from crtgen.errors import UsageError
from crtgen.frontends.tflite import load_tflite
from crtgen.ir import Graph

__all__ = ["load", "load_tflite"]

_BY_SUFFIX = {".tflite": load_tflite}


def load(path: str | Path, name: str | None = None) -> Graph:
    """The graph of a model file of any known format, told by its suffix."""
    file = Path(path)
    front_end = _BY_SUFFIX.get(file.suffix.lower())
    if not file.exists():
        raise UsageError("there is no such file", where=str(path))
    if front_end is None:
        known = ", ".join(_BY_SUFFIX)
        raise UsageError(
            f"the suffix {file.suffix!r} names no model format", where=str(path), hint=f"known: {known}"
        )
    return front_end(file, name)
