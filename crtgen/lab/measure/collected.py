"""Samples of a running device as files for ``crtgen eval`` and for training: a folder for each label.

The device sends ``crt take`` lines (``crt_field_capture``) with byte offsets into a stream. A pipeline's
stream is cut into clips of a given length; after missing bytes a new clip begins, so no clip has a gap. A
network without a pipeline gets a file for each complete input.
"""

from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np

from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.compiler.codegen.module import Interface
from crtgen.lab.measure.field_log import FieldLine
from crtgen.network.ir import Array

__all__ = ["Collector", "check_label", "write_clip"]

_WORD = 1 << 32
_MOST = 1 << 28  # bytes of a clip


def check_label(label: str) -> None:
    """Raise ``UsageError`` for a label that cannot be the name of a folder."""
    if not label or label != Path(label).name or label.startswith("."):
        raise UsageError(
            f'--label "{label}" cannot name a folder', hint="name what is heard or seen: --label yes"
        )


class Collector:
    """Makes clips from lines. ``length`` is in samples, or None for all consecutive samples.

    ``streams``: the model has a pipeline, which takes samples of the sensor; without one, a clip is an input.
    """

    def __init__(self, model: str, interface: Interface, streams: bool, length: int | None = None) -> None:
        self.model, self.dtype = model, interface.dtype.numpy
        self.shape = interface.shape[1:] if streams else interface.shape
        sample = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        self.nbytes = sample * (length or 0) if streams else sample
        self.sample, self.streams = sample, streams
        self.gaps = 0
        self._held = bytearray()
        self._next: int | None = None
        if self.nbytes > _MOST:
            raise UsageError(
                f"a clip of {self.nbytes:,} bytes is too long",
                hint=f"give a --length up to {_MOST // sample:,}",
            )

    def add(self, lines: Sequence[FieldLine]) -> Iterator[Array]:
        for line in lines:
            if (line.kind, line.model) != ("take", self.model):
                continue
            if line.offset != self._next:
                self.gaps += self._next is not None and line.offset != 0
                yield from self.rest()
            self._held += line.data
            self._next = (line.offset + len(line.data)) % _WORD
            while self.nbytes and len(self._held) >= self.nbytes:
                yield self._array(self.nbytes)
            if len(self._held) > _MOST:
                yield self._array(_MOST // self.sample * self.sample)

    def rest(self) -> Iterator[Array]:
        """Yield the unfinished clip if clips may have any length; bytes of an incomplete sample are
        dropped.
        """
        whole = len(self._held) // self.sample * self.sample
        if whole and not self.nbytes:
            yield self._array(whole)
        self._held.clear()

    def _array(self, nbytes: int) -> Array:
        data = bytes(self._held[:nbytes])
        del self._held[:nbytes]
        shape = (-1, *self.shape) if self.streams else self.shape
        return np.frombuffer(data, self.dtype).reshape(shape)


def write_clip(folder: Path, array: Array) -> Path:
    """Write a clip as the next ``NNNN.npy`` of a folder, after the existing ones."""
    taken = [int(path.stem) for path in folder.glob("*.npy") if path.stem.isdecimal()]
    path = folder / f"{max(taken, default=0) + 1:04}.npy"
    buffer = BytesIO()
    np.save(buffer, array, allow_pickle=False)
    files.make_directory(folder)
    files.write(path, buffer.getvalue())
    return path
