"""Copies a UF2 file to a board that is a drive: ``python -m crtgen.flash.with_uf2 --board-id ID FILE``."""

import os
import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

__all__ = ["drives_of", "main"]

_MEDIA = ("/media", "/run/media", "/mnt", "/Volumes")


def main() -> int:
    """Copy the file; 0 if it went well."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--board-id", required=True, help="Board-ID in the drive's INFO_UF2.TXT")
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    drives = drives_of(arguments.board_id)
    if len(drives) != 1:
        print(f"{len(drives) or 'no'} drives {arguments.board_id} are mounted", file=sys.stderr)
        return 1
    target = drives[0] / arguments.file.name
    with arguments.file.open("rb") as source, target.open("wb") as copy:
        shutil.copyfileobj(source, copy)
        copy.flush()
        os.fsync(copy.fileno())
    print(f"copied to {target}")
    return 0


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


if __name__ == "__main__":
    sys.exit(main())
