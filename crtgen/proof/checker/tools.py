"""Versions and digests of what a proof rests on: decoders, Python, libraries, the checker's own files."""

import hashlib
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from crtgen import npu
from crtgen.proof.checker.binary.decoders import decoders

__all__ = ["checker_digest", "checker_tools"]

_LIBRARIES = ("numpy", "pyelftools", "tflite", "onnx", "protobuf", "flatbuffers")


def checker_tools() -> dict[str, str]:
    """Return the versions and digests of everything that the checker runs on: decoders, Python, libraries."""
    libraries = ", ".join(f"{name} {_version_of(name)}" for name in _LIBRARIES)
    return {**decoders(), "python": sys.version, "libraries": libraries}


def _version_of(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


def checker_digest() -> str:
    """SHA-256 of the checker's own files, and of those of the NPU's model."""
    checker = hashlib.sha256()
    for room in (Path(__file__).parent, Path(npu.__file__).parent):
        for file in sorted(room.rglob("*.py")):
            checker.update(file.relative_to(room).as_posix().encode() + b"\0" + file.read_bytes())
    return checker.hexdigest()
