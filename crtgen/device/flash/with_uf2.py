"""Copy a UF2 file to a drive: ``python -m crtgen.device.flash.with_uf2 --board-id ID FILE``."""

import sys
from argparse import ArgumentParser
from pathlib import Path

from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.device.flash.drives import drives_of

__all__ = ["main"]


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument(
        "--board-id", required=True, action="append", help="a Board-ID that the drive's INFO_UF2.TXT may have"
    )
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    drives = [drive for board_id in arguments.board_id for drive in drives_of(board_id)]
    if len(drives) != 1:
        names = " or ".join(arguments.board_id)
        print(f"{len(drives) or 'no'} drives {names} are mounted", file=sys.stderr)
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
