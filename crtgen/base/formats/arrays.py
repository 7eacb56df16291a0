"""NumPy arrays: ``.npy``, and ``.npz``, which is a ZIP archive of them.

``numpy.load`` is not used: it allocates what a header claims before it reads, and can be told to run pickled
objects. Here the shape and type in the header must match the bytes that follow.
"""

from collections.abc import Sequence
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen.base import files
from crtgen.base.formats.foreign import foreign
from crtgen.base.formats.zips import opened_zip

__all__ = ["read_array", "read_arrays"]

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_KINDS = "biufc"
_TEXT = "S"
_SUFFIX = ".npy"

AnyArray = npt.NDArray[Any]


def read_array(path: Path, what: str, hint: str = "write it with numpy.save") -> AnyArray:
    """Read a ``.npy``. Raises ``UsageError`` for anything else."""
    with foreign(path, what, hint):
        return _array(files.read(path, what))


def read_arrays(
    path: Path,
    what: str,
    hint: str = "write it with numpy.save or numpy.savez",
    needed: Sequence[str] = (),
    only: Sequence[str] = (),
) -> dict[str, AnyArray]:
    """Read the arrays of a ``.npz`` by name. The array in a ``.npy`` has the name ``""``.

    With ``only``, the file's other arrays are skipped, and the named ones may be byte strings. Raises
    ``UsageError`` for any other file, and if one of the ``needed`` names is missing.
    """
    with foreign(path, what, hint):
        data = files.read(path, what)
        if data[:2] == b"PK":
            with opened_zip(path, what, hint, data) as members:
                wanted = [each for each in members.names if not only or _name(each) in only]
                kinds = _KINDS + _TEXT if only else _KINDS
                found = {_name(each): _array(members.read(each), kinds) for each in wanted}
        else:
            found = {"": _array(data)}
        if missing := [name for name in needed if name not in found]:
            raise ValueError(f"the file has no array {missing[0]}")
        return found


def _name(member: str) -> str:
    if not member.endswith(_SUFFIX):
        raise ValueError(f"{member} is not an array")
    return member.removesuffix(_SUFFIX)


def _array(data: bytes, kinds: str = _KINDS) -> AnyArray:
    # Raise ``ValueError`` for what is no array of plain numbers, or of another size than it says.
    stream = BytesIO(data)
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"version {version} of the format")
    try:
        shape, by_columns, dtype = _HEADERS[version](stream)
    except MemoryError:  # that of Python's own parser, which evaluates the header
        raise ValueError("the header of the array is nested too deeply") from None
    rest = len(data) - stream.tell()
    if dtype.kind not in kinds or dtype.names or dtype.subdtype or prod(shape) * dtype.itemsize != rest:
        raise ValueError(f"the file is not an array of numbers, or its shape does not fit its {rest} bytes")
    array = np.frombuffer(data, dtype, offset=stream.tell())
    return array.reshape(shape, order="F" if by_columns else "C")
