"""The documentation against the code: commands, options, links and figures."""

import inspect
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import typer

from crtgen.cli.app import app
from crtgen.compiler.kernels.dsp.copy import copy
from crtgen.lab.measure.lock import read_lock
from tests.support import ROOT

PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("boards/*.md"), *ROOT.glob("crtgen/**/*.md")]
)
LOCKED = {e.key: e.figures for e in read_lock(ROOT / "benchmarks" / "crtgen.lock.json").entries}


def commands() -> dict[str, set[str]]:
    """The options of each command."""
    group = typer.main.get_command(app)
    found = getattr(group, "commands", {})
    return {
        name: {"--help", *(option for p in command.params for option in (*p.opts, *p.secondary_opts))}
        for name, command in found.items()
    }


def blocks(text: str) -> str:
    """What stands in blocks of code without a language, and in those of a terminal."""
    found = re.findall(r"^```(.*?)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return "\n".join(code for language, code in found if language in ("", "console"))


def rows(page: Path, first: str) -> dict[str, list[str]]:
    """The cells of the table whose head begins with ``first``, without what is in brackets, by model."""
    table = page.read_text().partition(first)[2]
    lines = table.partition("\n\n")[0].splitlines()[2:]
    cells = [re.sub(r" \(.*?\)", "", line).split("|")[1:-1] for line in lines]
    return {name.strip(): [cell.strip() for cell in rest] for name, *rest in cells}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_and_links_exist(page: Path) -> None:
    known, text = commands(), page.read_text()
    for name, arguments in re.findall(r"^(?:\$ )?crtgen ([a-z]+)(.*)", blocks(text), re.MULTILINE):
        options = re.findall(r"(?<=[ \[])--?[a-z][a-z-]*", arguments.partition("#")[0])
        assert set(options) <= known[name], f"crtgen {name}{arguments}"
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert link.startswith("http") or (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_paths_exist(page: Path) -> None:
    """What begins as a path from the root of the repository does; ``my_`` is of a reader's own file."""
    words = re.findall(r"(?<![\w./~-])\.?\w[\w.-]*+(?:/[\w.-]++)++(?![<*])", page.read_text())
    paths = [word.rstrip(".") for word in words if (ROOT / word.partition("/")[0]).exists()]
    assert [path for path in paths if not (ROOT / path).exists() and "/my_" not in path] == []


def test_the_readme_lists_every_command() -> None:
    listed = re.findall(r"^crtgen ([a-z]+)", blocks((ROOT / "README.md").read_text()), re.MULTILINE)
    assert set(listed) == set(commands())


@pytest.mark.parametrize("model", ["kws", "vww", "ic01", "ad01"])
def test_figures_are_those_of_the_lock(model: str) -> None:
    m4, m55 = (LOCKED[f"{model}_int8", board, "speed"] for board in ("mps2_an386", "mps3_an547"))
    assert rows(ROOT / "README.md", "| | M4 instructions")[model] == [
        *(_millions(m4), _millions(m55)),
        *(f"{m4['arena_bytes']:,}", f"{m4['image_flash_bytes']:,}"),
    ]


@pytest.mark.parametrize(("core", "board"), [("M4", "mps2_an386"), ("M55", "mps3_an547")])
@pytest.mark.parametrize("model", ["kws", "vww", "ic01", "ad01"])
def test_figures_of_levels_are_those_of_the_lock(model: str, core: str, board: str) -> None:
    cells = rows(ROOT / "docs" / "performance.md", f"| Cortex-{core} | `speed`")[model]
    for level, found in (("speed", cells[:2]), ("size", cells[4:])):
        figures = LOCKED[f"{model}_int8", board, level]
        assert found == [_millions(figures), f"{figures['image_flash_bytes']:,}"]


def _millions(figures: Mapping[str, int]) -> str:
    return f"{figures['instructions'] / 1e6:.3g} M"


def test_decisions_are_numbered_without_holes() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [page.name[:5] for page in pages] == [f"{i:04}-" for i in range(1, len(pages) + 1)]
    for number, page in enumerate(pages, start=1):
        assert page.read_text().startswith(f"# {number}. "), page.name


def test_the_writer_that_is_explained_is_the_code() -> None:
    """But for its docstring."""
    page = (ROOT / "docs" / "kernels.md").read_text().partition("## A writer, line by line")[2]
    shown = page.partition("```python\n")[2].partition("```")[0].splitlines()
    code = inspect.getsource(copy.__wrapped__).splitlines()
    assert shown == [line for line in code if not line.lstrip().startswith('"""')]


def test_a_test_stands_behind_each_promise() -> None:
    """SECURITY.md names tests, and files of tests, that exist; no promise is without one."""
    promises = (ROOT / "SECURITY.md").read_text().partition("## The promises")[2].partition("\n## ")[0]
    files = list((ROOT / "tests").rglob("test_*.py"))
    known = {name for file in files for name in re.findall(r"def (test_\w+)\(", file.read_text())}
    known |= {file.name for file in files}
    for promise in re.split(r"\n(?=- )", promises)[1:]:
        named = re.findall(r"`(test_\w+(?:\.py)?)`", promise)
        assert named, f"no test stands behind: {promise}"
        assert not {name for name in named if name not in known}, promise
