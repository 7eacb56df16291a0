"""Writes what other modules repeat of ``Request`` and ``ProjectOptions``, so that types are checked.

usage: python tools/options.py [--check]      --check: change nothing, fail if a file is not up to date

Each part is between two comments. Text, a number or a switch goes through them to the commands and
to sweeps; its help is in ``crtgen/cli/options.py``.
"""

import ast
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_FIRST, _LAST = "# written by tools/options.py", "# end"
_PLAIN = ("str", "int", "bool")
_NO_KEYWORDS = ("board", "type", "spreads_library")
"""Fields that are given by position, and those that the request sets itself."""
_NOT_SWEPT = ("keep_inputs",)
"""Options in which the jobs of a sweep cannot differ."""


@dataclass(frozen=True)
class Declared:
    """A field of a dataclass as its source has it; the default is empty if there is none."""

    name: str
    annotation: str
    default: str

    @property
    def option(self) -> str:
        """Name of its annotation in ``crtgen/cli/options.py``."""
        return "".join(word.capitalize() for word in self.name.split("_"))


def declared(source: str, name: str) -> list[Declared]:
    """Return the fields of a class, in their order."""
    (found,) = (n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == name)
    lines = [each for each in found.body if isinstance(each, ast.AnnAssign)]
    return [Declared(ast.unparse(n.target), ast.unparse(n.annotation), _text(n.value)) for n in lines]


def _text(value: ast.expr | None) -> str:
    text = "" if value is None else ast.unparse(value)
    return f'"{text[1:-1]}"' if text.startswith("'") else text


_Line = Callable[[Declared], str]
_REQUEST, _PROJECT = "crtgen/compiler/request.py", "crtgen/firmware/project/options.py"


def _fields() -> dict[str, list[Declared]]:
    sources = {name: (ROOT / name).read_text(encoding="utf-8") for name in (_REQUEST, _PROJECT)}
    request = [each for each in declared(sources[_REQUEST], "Request") if each.name not in _NO_KEYWORDS]
    project = [
        each for each in declared(sources[_PROJECT], "ProjectOptions") if each.name not in _NO_KEYWORDS
    ]
    plain = [each for each in request if each.annotation in _PLAIN]
    swept = [each for each in plain if each.name not in _NOT_SWEPT]
    return {"request": request, "project": project, "plain": plain, "swept": swept}


PARTS: Sequence[tuple[str, Sequence[tuple[str, _Line]]]] = (
    (_REQUEST, [("request", lambda f: f"{f.name}: {f.annotation}")]),
    (_PROJECT, [("project", lambda f: f"{f.name}: {f.annotation}")]),
    (
        "crtgen/cli/groups.py",
        [
            ("plain", lambda f: f"{f.name}: options.{f.option} = {f.default}"),
            ("plain", lambda f: f'"{f.name}": self.{f.name},'),
        ],
    ),
    (
        "crtgen/lab/sweep/job.py",
        [
            ("swept", lambda f: f"{f.name}: {f.annotation} = {f.default}"),
            ("swept", lambda f: f"{f.name}=options.{f.name},"),
        ],
    ),
)
"""A file, and for each of its parts the fields that it has, and the line of a field."""


def updated(text: str, parts: Iterable[Iterable[str]]) -> str:
    """Return a file's text with each part between two comments replaced, in their order."""
    lines, found, rest = text.split("\n"), list[str](), 0
    for part in parts:
        first = _find(lines, _FIRST, rest)
        last = _find(lines, _LAST, first)
        indent = lines[first].partition("#")[0]
        found += [*lines[rest : first + 1], *(indent + line for line in part)]
        rest = last
    return "\n".join([*found, *lines[rest:]])


def _find(lines: Sequence[str], comment: str, start: int) -> int:
    found = next((n for n in range(start, len(lines)) if lines[n].strip() == comment), None)
    if found is None:
        raise ValueError(f"no line '{comment}' after line {start}")
    return found


def stale() -> dict[Path, str]:
    """Return the files that are not up to date, with the text that they should have."""
    known, found = _fields(), dict[Path, str]()
    for name, parts in PARTS:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        wanted = updated(text, [map(line, known[fields]) for fields, line in parts])
        if wanted != text:
            found[path] = wanted
    return found


def main() -> str | None:
    found = stale()
    if "--check" in sys.argv:
        names = ", ".join(str(path.relative_to(ROOT)) for path in found)
        return f"not up to date: {names}; run python tools/options.py" if found else None
    for path, text in found.items():
        path.write_text(text, encoding="utf-8")
    return None


if __name__ == "__main__":
    sys.exit(main())
