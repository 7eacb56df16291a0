"""The front ends, which read a model file as a graph."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from crtgen.base import budget, files
from crtgen.base.errors import UsageError
from crtgen.network.frontends.tflite import load_tflite
from crtgen.network.frontends.wrapped import WRAPPINGS, Wrapped, unwrap
from crtgen.network.ir import Array, Graph

__all__ = ["WRAPPINGS", "Wrapped", "load", "load_onnx", "load_tflite", "unwrap"]

_NO_SHAPES: Mapping[str, tuple[int, ...]] = MappingProxyType({})
_NOTHING: Mapping[str, Array] = MappingProxyType({})


def load_onnx(
    source: str | Path | bytes,
    name: str | None = None,
    shapes: Mapping[str, tuple[int, ...]] = _NO_SHAPES,
    fixed: Mapping[str, Array] = _NOTHING,
) -> Graph:
    """Load an `.onnx` file; the slow import of the onnx package happens only here."""
    from crtgen.network.frontends import onnx

    return onnx.load_onnx(source, name, shapes, fixed)


_BY_SUFFIX = {".tflite": load_tflite, ".onnx": load_onnx}

_KERAS = (
    "tf.lite.TFLiteConverter.from_keras_model(keras.models.load_model(FILE)).convert() gives a .tflite file"
)
_TORCH = "torch.onnx.export(model, example_inputs, 'model.onnx') writes a file for crtgen"
_EXPORTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        ".keras": ("a Keras model", _KERAS),
        ".h5": ("a Keras model", _KERAS),
        ".hdf5": ("a Keras model", _KERAS),
        ".pb": (
            "a TensorFlow graph",
            "tf.lite.TFLiteConverter.from_saved_model(FOLDER).convert() gives a .tflite file",
        ),
        ".pt": ("a PyTorch model or its weights", _TORCH),
        ".pth": ("a PyTorch model or its weights", _TORCH),
        ".pt2": ("an exported program of PyTorch", _TORCH),
        ".pte": ("a program of ExecuTorch", _TORCH),
        ".safetensors": ("weights without their network", _TORCH),
        ".pkl": (
            "a pickled object",
            "skl2onnx.to_onnx(model, inputs[:1], options={'zipmap': False}) gives an ONNX model",
        ),
        ".joblib": (
            "a pickled object",
            "skl2onnx.to_onnx(model, inputs[:1], options={'zipmap': False}) gives an ONNX model",
        ),
    }
)
"""Formats of frameworks: what such a file is, and the line that exports it."""

_BY_IDENTIFIER = {b"TFL3": load_tflite}


def load(
    path: str | Path,
    name: str | None = None,
    shapes: Mapping[str, tuple[int, ...]] = _NO_SHAPES,
) -> Graph:
    """Read the graph of a model file, whose format is recognised by its suffix or else by its first bytes.

    A C source, a zip archive or a bundle must hold exactly one model. ``shapes`` sets input shapes by name.
    Raises ``UsageError`` for a missing file or an unknown format, and ``ModelError`` if the model cannot be
    used.
    """
    with budget.spending(str(path)):
        return _load(Path(path), name, shapes)


def _load(file: Path, name: str | None, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    if file.suffix.lower() in WRAPPINGS:
        inside = unwrap(file)
        return _BY_SUFFIX[inside.kind](inside.data, name or file.stem, shapes)
    by_content = _BY_IDENTIFIER.get(_identifier(file))
    front_end = _BY_SUFFIX.get(file.suffix.lower()) or by_content
    if by_content is not None and front_end is not by_content:
        raise UsageError("the content of the file is a TFLite model", where=str(file), hint="call it .tflite")
    if front_end is None and file.suffix.lower() in _EXPORTS:
        what, how = _EXPORTS[file.suffix.lower()]
        raise UsageError(f"{what} has to be exported for crtgen", where=str(file), hint=how)
    if front_end is None:
        known = ", ".join(_BY_SUFFIX)
        raise UsageError(
            "the file has no model format that crtgen knows",
            where=str(file),
            hint=f"known: {known}, C arrays and .zip or .task with one, archives (.tar) of crtgen and TVM,"
            " libraries that TVM exported",
        )
    return front_end(file, name, shapes)


def _identifier(file: Path) -> bytes:
    # The format identifier at offset 4 of a flatbuffer.
    return files.read(file, "the model")[4:8]
