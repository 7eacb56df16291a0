"""Boot loaders that appear as drives: https://github.com/microsoft/uf2"""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from crtgen.base import files
from crtgen.base.errors import UsageError

__all__ = ["drives_of"]

_MEDIA = ("/media", "/run/media", "/mnt", "/Volumes")
# Bytes of INFO_UF2.TXT that are read; boot loaders have a hundred.
_LONGEST = 4096


def drives_of(board_id: str) -> list[Path]:
    """Return the mounted boot loader drives with that Board-ID. Links on a drive are ignored."""
    return [drive for drive in _drives() if not drive.is_symlink() and _board_id(drive) == board_id]


def _drives() -> Iterator[Path]:
    # Mounted drives: directly in a folder for media, or in a folder of the user's there.
    if sys.platform == "win32":
        yield from (Path(f"{letter}:\\") for letter in "DEFGHIJKLMNOPQRSTUVWXYZ")
        return
    for media in map(Path, os.environ.get("CRTGEN_MEDIA", os.pathsep.join(_MEDIA)).split(os.pathsep)):
        yield from media.glob("*")
        yield from media.glob("*/*")


def _board_id(drive: Path) -> str:
    text = b""
    with suppress(UsageError):
        text = files.read_start(drive / "INFO_UF2.TXT", _LONGEST)
    lines = (line.partition(b":") for line in text.splitlines())
    return next(
        (value.strip().decode("ascii", "replace") for key, _, value in lines if key == b"Board-ID"), ""
    )
