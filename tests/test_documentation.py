"""The documentation against the code: commands, options, links and figures."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
import typer

from crtgen.cli.app import app
from crtgen.lab.measure.lock import read_lock
from tests.support import ROOT
from tools import commands as command_page
from tools import index

PAGES = sorted(
    page
    for pattern in (
        "*.md",
        "*/README.md",
        "docs/**/*.md",
        "boards/*/*.md",
        "crtgen/**/*.md",
        "tests/*/**/*.md",
    )
    for page in ROOT.glob(pattern)
    if page.parts[len(ROOT.parts)] != "out"
)
LOCKED = {
    entry.key: entry.figures
    for entry in read_lock(ROOT / "benchmarks" / "crtgen.lock.json").entries
    if " 12.2." in entry.toolchain
}


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


def anchors(page: Path) -> set[str]:
    """The names of a page's headings in links."""
    headings = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def rows(page: Path, first: str) -> dict[str, list[str]]:
    """The cells of the table whose head begins with ``first``, without what is in brackets, by model."""
    table = page.read_text().partition(first)[2]
    lines = table.partition("\n\n")[0].splitlines()[2:]
    cells = [re.sub(r" \(.*?\)", "", line).split("|")[1:-1] for line in lines]
    return {name.strip(): [cell.strip() for cell in rest] for name, *rest in cells}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_commands_and_links_exist(page: Path) -> None:
    known, text = commands(), page.read_text()
    for name, arguments in re.findall(r"^(?:\$ )?crtgen ([a-z]+)(.*)", blocks(text), re.MULTILINE):
        options = re.findall(r"(?<=[ \[])--?[a-z][a-z-]*", arguments.partition("#")[0])
        assert set(options) <= known[name], f"crtgen {name}{arguments}"
    for link, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)]*)\)", text):
        if not link.startswith("http"):
            target = page.parent / link if link else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), f"{link}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_paths_exist(page: Path) -> None:
    """What begins as a path from the root of the repository does; ``my_`` is of a reader's own file."""
    words = re.findall(r"(?<![\w./~-])\.?\w[\w.-]*+(?:/[\w.-]++)++(?![<*])", page.read_text())
    paths = [word.rstrip(".") for word in words if (ROOT / word.partition("/")[0]).exists()]
    assert [path for path in paths if not (ROOT / path).exists() and "/my_" not in path] == []


@pytest.mark.parametrize("tool", [command_page, index], ids=["commands", "index"])
def test_pages_that_are_written_are_up_to_date(tool: ModuleType) -> None:
    """If this fails: ``python tools/commands.py`` or ``python tools/index.py``."""
    assert tool.PAGE.read_text() == tool.page()


def test_no_option_is_lost_in_the_page_of_commands() -> None:
    """Each is in the table of its command, or in one of the shared tables that the command names."""
    page = (ROOT / "docs" / "commands.md").read_text()
    sections = dict(re.findall(r"^## crtgen (\w+)\n(.*?)(?=^## )", page, re.DOTALL | re.MULTILINE))
    panels = dict(re.findall(r"^### (.*?)\n(.*?)(?=^### |\Z)", page, re.DOTALL | re.MULTILINE))
    for name, known in commands().items():
        own, _, taken = sections[name].partition("Shared options: ")
        rows = options_of_a_table(own)
        for part in taken.partition(".\n")[0].split("; ") if taken else []:
            options = set(re.findall(r"`(-[\w-]+)`", part))
            (panel,) = re.findall(r"\[(.*?)\]", part)
            are_listed = part.startswith("`")  # otherwise they are the exceptions
            rows += [row for row in options_of_a_table(panels[panel]) if bool(row & options) == are_listed]
        everywhere = {"--json", "--debug", "--help", "--help-all", "-h"}
        assert {option for row in rows for option in row} == {o for o in known if o[0] == "-"} - everywhere, (
            name
        )


def options_of_a_table(text: str) -> list[set[str]]:
    """The names of each option that has a row, in any of the tables of a text."""
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `-")]
    return [set(re.findall(r"`(-[\w-]+)`", cell)) for cell in cells]


def test_the_readme_is_short_and_begins_with_figures() -> None:
    words = (ROOT / "README.md").read_text().split()
    assert len(words) <= 600
    assert "30,640" in words[:100]  # instructions of the example


def test_pages_that_errors_and_help_name_exist() -> None:
    files = [*ROOT.glob("crtgen/**/*.py"), *ROOT.glob("templates/**/*.j2"), *ROOT.glob("tools/*.py")]
    named = {page for file in files for page in re.findall(r"docs/[\w/-]+\.md", file.read_text())}
    assert len(named) > 10
    assert [page for page in sorted(named) if not (ROOT / page).exists()] == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    pages = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}
    named = set(re.findall(r"[\w/.-]+\.md", navigation))
    assert {page for page in pages if not page.startswith("decisions/")} == named


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
