"""Inputs in common file formats: pictures, sound, tables. They become the real values that a model reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crtgen.base.errors import UsageError
from crtgen.base.files import PICTURES
from crtgen.base.formats.pictures import read_picture
from crtgen.base.formats.sounds import read_sound
from crtgen.base.formats.tables import read_table
from crtgen.compiler.codegen.module import Interface
from crtgen.network.ir import Array, shape_text

__all__ = ["MEDIA", "Scaling", "read_media"]

_SOUNDS = (".wav", ".flac", ".ogg")
MEDIA = (*PICTURES, *_SOUNDS, ".csv")
"""The suffixes of files that are not arrays."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Conversion of a pixel to a real value: (pixel - ``mean``) / ``std``; None means to suit the input."""

    mean: float | None = None
    std: float | None = None

    def of(self, interface: Interface) -> tuple[float, float]:
        """Return mean and deviation: the given ones, or those with which pixels fill the range of a quantised
        input.

        Other inputs have the range 0 to 1.
        """
        mean, std = 0.0, 255.0
        quant = interface.quant
        if quant is not None and quant.axis is None and interface.dtype.value in ("int8", "uint8"):
            least = np.iinfo(interface.dtype.value).min - quant.zero_point
            mean, std = float(-least), 1 / quant.scale
        return (mean if self.mean is None else self.mean, std if self.std is None else self.std)


def read_media(path: Path, interface: Interface, scaling: Scaling) -> tuple[list[Array], str]:
    """Read float32 arrays for one or several runs; also return a sentence on how they were converted.

    A picture is resized to the input, in grey for one channel. Sound is mixed to one channel and cut into
    runs as long as the input; it is int16 for a plain int16 input. Each row of a table is a run, or the whole
    table is one. Raises ``UsageError``.
    """
    if path.suffix.lower() == ".csv":
        return _table(path, interface)
    return _picture(path, interface, scaling) if path.suffix.lower() in PICTURES else _sound(path, interface)


def _picture(path: Path, interface: Interface, scaling: Scaling) -> tuple[list[Array], str]:
    height, width, channels, first = _image_of(interface, path)
    mean, std = scaling.of(interface)
    if not std:
        raise UsageError(
            "--std is 0", where=str(path), hint="name the divisor that training used, or leave it out"
        )
    picture, size = read_picture(path, (width, height), grey=channels == 1)
    real = ((picture.astype(np.float32) - np.float32(mean)) / np.float32(std)).reshape(
        height, width, channels
    )
    real = real.transpose(2, 0, 1) if first else real
    says = f"{path}, {size[0]}x{size[1]} to {width}x{height}, (pixel - {mean:g}) / {std:g}"
    return [real.reshape(interface.shape).astype(np.float32)], says


def _image_of(interface: Interface, path: Path) -> tuple[int, int, int, bool]:
    # Height, width, channels, and whether these come first.
    shape = interface.shape
    if len(shape) == 4 and shape[0] == 1 and shape[3] in (1, 3):
        return shape[1], shape[2], shape[3], False
    if len(shape) == 4 and shape[0] == 1 and shape[1] in (1, 3):
        return shape[2], shape[3], shape[1], True
    if len(shape) == 3 and shape[0] == 1:
        return shape[1], shape[2], 1, False
    raise UsageError(
        f"{interface.name} is {shape_text(shape)}: which is not the shape of a picture",
        where=str(path),
        hint="give an array (.npy, .npz) for this input",
    )


def _sound(path: Path, interface: Interface) -> tuple[list[Array], str]:
    count = int(np.prod(interface.shape))
    if max(interface.shape) != count:
        raise UsageError(
            f"{interface.name} is {shape_text(interface.shape)}: it reads features, not samples",
            where=str(path),
            hint="compute them as in training, and give them as .npy",
        )
    mono, rate = read_sound(path)
    if interface.dtype.value in ("int8", "uint8"):
        raise UsageError(
            f"{interface.name} is {interface.dtype.value}: it reads features of sound, not samples",
            where=str(path),
            hint="describe which ones in a pipeline (docs/pipelines.md), or give them as .npy",
        )
    if not len(mono):
        raise UsageError("the recording has no samples", where=str(path), hint="record it again")
    runs = -(-len(mono) // count)
    padded = np.zeros(runs * count, np.float32)
    padded[: len(mono)] = mono
    says = f"{path}, {len(mono):,} samples at {rate:,} Hz" + (
        f" and {len(padded) - len(mono):,} zeros" if len(padded) > len(mono) else ""
    )
    parts = padded.reshape(runs, count)
    if interface.dtype.value == "int16" and interface.quant is None:
        parts = np.clip(np.rint(parts * 32768), -32768, 32767).astype(np.int16)
    return [part.reshape(interface.shape) for part in parts], says


def _table(path: Path, interface: Interface) -> tuple[list[Array], str]:
    rows = [row for row in read_table(path, "the table") if any(cell.strip() for cell in row)]
    if rows and not _numbers(rows[0]):
        rows = rows[1:]
    count = int(np.prod(interface.shape))
    lines = []
    for number, row in enumerate(rows, 1):
        values = _numbers(row)
        if values is None or len(values) != len(rows[0]):
            raise UsageError(
                f"row {number} does not have {len(rows[0])} numbers",
                where=str(path),
                hint="every row has the same number of values, separated by commas",
            )
        lines.append(values)
    table = np.array(lines, np.float32)
    if table.size == count:
        return [table.reshape(interface.shape)], str(path)
    if table.ndim == 2 and table.shape[1] == count:
        return [row.reshape(interface.shape) for row in table], f"{path}, {len(table)} rows"
    shape = f"{table.shape[0]} rows of {table.shape[1]}" if table.ndim == 2 else "no numbers"
    raise UsageError(
        f"the table has {shape}, but {interface.name} has {count:,} elements",
        where=str(path),
        hint="write one row per run, or a single run in all rows together",
    )


def _numbers(row: Sequence[str]) -> list[float] | None:
    try:
        return [float(cell) for cell in row]
    except ValueError:
        return None
