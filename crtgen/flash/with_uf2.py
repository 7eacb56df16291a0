"""Copies a UF2 file to a board that is a drive: ``python -m crtgen.flash.with_uf2 --board-id ID FILE``."""

import sys
from argparse import ArgumentParser
from pathlib import Path

from crtgen import files
from crtgen.errors import UsageError
from crtgen.flash.drives import drives_of

__all__ = ["main"]


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
    try:
        files.write_new(target, files.read(arguments.file))
    except UsageError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"copied to {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
