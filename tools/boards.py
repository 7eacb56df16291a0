"""Writes parts of docs/board-checks.md anew: what was checked of each chip's start, its errata, who saw what.

usage: python -m tools.boards [--check]      --check: change nothing, fail if the page is not up to date
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from crtgen.base.resources import boards_dir, templates_dir
from crtgen.boards import all_boards, all_steps
from tests.silicon.log import NO_SVD, SVD

PAGE = templates_dir().parent / "docs" / "board-checks.md"
SEEN = boards_dir() / "seen"
BEGIN, END = "<!-- written by tools/boards.py -->", "<!-- up to here -->"


def checked() -> Iterator[str]:
    """The table of what was checked."""
    against: dict[str, list[str]] = {}
    for board in all_boards():
        if board.name in SVD:
            file = f"{SVD[board.name]}.svd" if board.name not in NO_SVD else "the maker's header, by hand"
            steps = sum(1 for _ in all_steps(board.start))
            against.setdefault(file, []).append(f"{board.name} ({steps})")
    yield "| checked against | boards, and the steps of their start |"
    yield "|---|---|"
    yield from (f"| {file} | {', '.join(boards)} |" for file, boards in sorted(against.items()))


def errata() -> Iterator[str]:
    """Each erratum once, with the boards that have it, and each sheet with its boards."""
    listed: dict[tuple[str, str, str], list[str]] = {}
    sheets: dict[str, list[str]] = {}
    for board in all_boards():
        if board.errata is not None:
            sheets.setdefault(board.errata.sheet, []).append(board.name)
            for each in board.errata.listed:
                listed.setdefault((each.number, each.about, each.done), []).append(board.name)
    yield "| erratum | boards | about | what is done |"
    yield "|---|---|---|---|"
    for (number, about, done), boards in listed.items():
        yield f"| {number} | {', '.join(boards)} | {about} | {done} |"
    yield ""
    yield from _sheets(sheets)


def _sheets(sheets: Mapping[str, list[str]]) -> Iterator[str]:
    """List what was read for which boards; boards without a sheet are together, by what was read instead."""
    instead: dict[str, list[str]] = {}
    for sheet, boards in sheets.items():
        name, missing, source = sheet.partition("the sheet was not available: ")
        if missing:
            instead.setdefault(source, []).append(
                f"{', '.join(boards)} ({name.rstrip('; ')})".removesuffix(" ()")
            )
        else:
            yield f"- {', '.join(boards)}: {sheet}"
    for source, boards in instead.items():
        yield f"- without the maker's sheet, {source}: {', '.join(boards)}"


def seen(reports: Path = SEEN) -> Iterator[str]:
    """The reports of people with boards."""
    files = sorted(reports.glob("*.json"))
    if not files:
        yield "Nobody has sent a report yet."
        return
    yield "| board | seen by | on | network | clock | cycles to the model's | stack guard | watchdog |"
    yield "|---|---|---|---|---|---|---|---|"
    for file in files:
        report = json.loads(file.read_text(encoding="utf-8"))
        found = {check["name"]: check["value"] for check in report["checks"]}
        network = next(name for name in found if name.startswith("network "))
        names = (network, "clock", "network: cycles to the model's", "stack guard", "watchdog")
        values = [f"{v:.3f}" if isinstance(v := found[name], float) else str(v or "") for name in names]
        values[0] = f"{network.removeprefix('network ')}, {values[0]}"
        yield f"| {' | '.join((report['board'], report['seen_by'], report['date'], *values))} |"


def page(text: str) -> str:
    """The page with all parts in their places."""
    for lines in (checked(), seen(), errata()):
        before, _, rest = text.partition(f"{BEGIN}\n")
        _, _, after = rest.partition(END)
        text = f"{before}<!-- done -->\n" + "\n".join(lines).rstrip() + f"\n{END}{after}"
    return text.replace("<!-- done -->", BEGIN)


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        return int(page(text) != text)
    PAGE.write_text(page(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
