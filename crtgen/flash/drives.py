"""Boot loaders that are drives: https://github.com/microsoft/uf2"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["drives_of"]

_MEDIA = ("/media", "/run/media", "/mnt", "/Volumes")


def drives_of(board_id: str) -> list[Path]:
    """The mounted drives of boot loaders with that Board-ID."""
    return [drive for drive in _drives() if _board_id(drive) == board_id]


def _drives() -> Iterator[Path]:
    """Where drives are mounted: directly in a folder for media, or in one of the user's there."""
    if sys.platform == "win32":
        yield from (Path(f"{letter}:\\") for letter in "DEFGHIJKLMNOPQRSTUVWXYZ")
        return
    for media in map(Path, os.environ.get("CRTGEN_MEDIA", os.pathsep.join(_MEDIA)).split(os.pathsep)):
        yield from media.glob("*")
        yield from media.glob("*/*")


def _board_id(drive: Path) -> str:
    try:
        text = (drive / "INFO_UF2.TXT").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in lines if key == "Board-ID"), "")
