"""The file that a network was read from, kept for archives."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.firmware.library import StoredNetwork
from crtgen.network.frontends import WRAPPINGS

__all__ = ["Source"]


@dataclass(frozen=True, slots=True)
class Source:
    """The file of a network, with its SHA-256 in hexadecimal, and the options of ``load``."""

    path: Path
    digest: str
    shapes: Mapping[str, tuple[int, ...]]
    io: str
    channels: str

    def stored(self, model: str) -> tuple[StoredNetwork, bytes]:
        """Return the network of an archive with a copy of its file. Raises ``UsageError`` if that file was
        changed.
        """
        data = files.read(self.path, "the model")
        if sha256(data).hexdigest() != self.digest:
            raise UsageError(
                "the file was changed since it was read", where=str(self.path), hint="read it again"
            )
        suffix = self.path.suffix.lower()
        file = f"{model}{suffix if suffix in ('.onnx', *WRAPPINGS) else '.tflite'}"
        return StoredNetwork(file, self.shapes, self.io, self.channels), data
