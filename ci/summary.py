"""The result of ``crtgen check --json`` as a table for a job's summary, and as SARIF for code scanning."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_FIGURES = ("instructions", "flash_bytes", "ram_bytes", "arena_bytes", "stack_bytes", "accuracy")


def problems(data: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each figure above its limit, missing proof and poor result, or the command's error."""
    if "entries" not in data:
        yield data.get("message", "crtgen check gave no result")
    for excess in data.get("worse", ()):
        where = f"{excess['model']} on {excess['board']}"
        yield f"{where}: {excess['metric']} {excess['actual']:,}, allowed {excess['allowed']:,}"
    yield from (f"not proven: {line}" for line in data.get("unproven", ()))
    yield from data.get("poor", ())


def markdown(data: dict[str, Any]) -> str:
    """Return the summary: problems first, then a row for each model on each board."""
    lines = [f"- :x: {line}" for line in problems(data)] or [":white_check_mark: as it was locked, or better"]
    entries = data.get("entries", [])
    shown = [name for name in _FIGURES if any(name in entry for entry in entries)]
    if entries:
        head = ["model", "board", "level", *(name.removesuffix("_bytes") for name in shown), "code"]
        lines += ["", _row(head), _row(["---"] * 3 + ["--:"] * len(shown) + ["---"])]
    for entry in entries:
        code = f"locked by {entry['locked_by']}" if "locked_by" in entry else ""
        code = code or ("changed" if entry["changed"] else "as locked")
        figures = [_text(entry.get(name)) for name in shown]
        lines.append(_row([entry["model"], entry["board"], entry["optimize"], *figures, code]))
    return "\n".join(["### crtgen check", "", *lines, ""])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:,}"


def sarif(data: dict[str, Any]) -> dict[str, Any]:
    """Return the problems as SARIF 2.1.0, at the lock that names what was allowed."""
    place = {
        "physicalLocation": {"artifactLocation": {"uri": "crtgen.lock.json"}, "region": {"startLine": 1}}
    }
    results = [
        {"ruleId": "crtgen-check", "level": "error", "message": {"text": line}, "locations": [place]}
        for line in problems(data)
    ]
    rules = [{"id": "crtgen-check", "shortDescription": {"text": "A model costs more than it may."}}]
    return {
        "version": "2.1.0",
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "runs": [{"tool": {"driver": {"name": "crtgen", "rules": rules}}, "results": results}],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", type=Path)
    parser.add_argument("--sarif", type=Path)
    arguments = parser.parse_args()
    data = json.loads(arguments.result.read_text(encoding="utf-8") or "{}")
    if arguments.sarif:
        arguments.sarif.write_text(json.dumps(sarif(data), indent=1), encoding="utf-8")
    sys.stdout.write(markdown(data))


if __name__ == "__main__":
    main()
