"""Draw the house: its wings, what each may import, and the tests that a change in one of them needs.

    python -m tools.house                                # write the picture into docs/architecture.md
    python -m tools.house --affected tests/proof --since "25 hours ago"

The contracts of import-linter in ``pyproject.toml`` are the one table of wings and rooms. The first lines of
the packages' docstrings say what each is for. A wing imports only wings below it, so a change in one cannot
break the tests of a wing beside or below it; ``--affected`` exits with 0 if a commit since then touched
something that the tests in a folder depend on, and with 1 if none did.
"""

import argparse
import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- written by tools/house.py -->", "<!-- end -->"
FACES = ("byoc", "errors", "features", "ops", "tvm")
"""Modules at the top that only pass on names which users' code imports."""


def contracts() -> Mapping[str, list[list[str]]]:
    """Map each package with layers to its layers, highest first; a layer is a list of modules."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        rules = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    found = {}
    for rule in rules:
        if rule["name"].startswith("the house:") or rule["name"].endswith(": rooms"):
            parent = rule.get("containers", ["crtgen"])[0]
            floors = [[name.strip() for name in layer.split("|")] for layer in rule["layers"]]
            found[parent] = [[name.removeprefix(f"{parent}.") for name in floor] for floor in floors]
    return found


def purpose(module: str) -> str:
    """Return the first paragraph of a module's docstring, or its first sentence if that is long."""
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    assert text, f"{file} has no docstring"
    first = " ".join(text.partition("\n\n")[0].split())
    return (first if len(first) < 110 else first.partition(". ")[0]).rstrip(".")


def picture() -> str:
    """Draw the wings, highest first, and below each its rooms."""
    house = contracts()
    lines = ["", "```"]
    width = max(len(wing) for floor in house["crtgen"] for wing in floor)
    for floor in house["crtgen"]:
        wings = [wing for wing in floor if wing not in FACES]
        lines += [f"{wing:{width}}  {purpose(f'crtgen.{wing}')}" for wing in wings]
    lines += ["```", ""]
    order = [f"crtgen.{wing}" for floor in house["crtgen"] for wing in floor]
    for package in sorted(house.keys() - {"crtgen"}, key=lambda name: _place(order, name)):
        lines += [f"Rooms of `{package.replace('.', '/')}`:", ""]
        rooms = [room for floor in house[package] for room in floor]
        lines += [f"- `{room}`: {purpose(f'{package}.{room}')}" for room in rooms]
        lines.append("")
    return "\n".join(lines)


def _place(order: Sequence[str], package: str) -> tuple[int, str]:
    return order.index(".".join(package.split(".")[:2])), package


def page() -> str:
    """Return docs/architecture.md with the picture of today."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{picture()}\n{END}{after}"


def below(wing: str) -> set[str]:
    """Return the wings that a wing may import, itself among them; all if it is no wing."""
    floors = contracts()["crtgen"]
    for level, floor in enumerate(floors):
        if wing in floor:
            return {wing, *(name for lower in floors[level + 1 :] for name in lower)}
    return {name for floor in floors for name in floor}


def is_affected(tests: str, changed: Iterable[str]) -> bool:
    """Return whether one of the changed files can change a result of the tests in a folder.

    Pages and other wings' tests cannot. What is outside of ``crtgen`` and ``tests`` may be used by any wing.
    """
    wing = Path(tests).parts[1]
    used = below(wing)
    for file in map(Path, changed):
        top, *rest = file.parts
        inner = rest[0].removesuffix(".py") if rest else ""
        if top == "crtgen":
            found = inner in used or inner == "runtime"
        elif top == "tests":
            found = inner == wing or len(rest) == 1
        else:
            found = top != "docs" and file.suffix != ".md"
        if found:
            return True
    return False


def main() -> None:
    """Write the picture, or answer whether tests are affected."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--affected", metavar="FOLDER")
    parser.add_argument("--since", default="25 hours ago")
    given = parser.parse_args()
    if given.affected is None:
        PAGE.write_text(page(), encoding="utf-8")
        return
    log = ["git", "log", f"--since={given.since}", "--name-only", "--format="]
    changed = subprocess.run(log, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    sys.exit(0 if is_affected(given.affected, changed) else 1)


if __name__ == "__main__":
    main()
