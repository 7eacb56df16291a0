"""Write docs/index.md: the README with its links as the site needs them, and a list of all pages.

usage: python tools/index.py [--check]      --check: change nothing, fail if the page is not up to date
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGE = DOCS / "index.md"

_LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
_LAST = "[docs/index.md](docs/index.md) lists every page. "


def page() -> str:
    readme = _LINK.sub(
        lambda link: f"]({_from_docs(link[1])}", (ROOT / "README.md").read_text().replace(_LAST, "")
    )
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    decisions = [
        "",
        "**Decisions**",
        "",
        *(_line(file) for file in sorted((DOCS / "decisions").glob("*.md"))),
    ]
    return "\n".join([readme, "## All pages", *_listed(navigation), *decisions, ""])


def _from_docs(link: str) -> str:
    """A link of the README, seen from docs/."""
    return link.removeprefix("docs/") if link.startswith("docs/") else f"../{link}"


def _listed(entries: list[Any]) -> Iterator[str]:
    """Titles of sections, and links to the pages in them; sections within a section are one list."""
    for section in entries:
        ((title, content),) = section.items()
        if isinstance(content, str) and content != PAGE.name:
            yield from ("", _line(DOCS / content))
        if isinstance(content, list):
            yield from ("", f"**{title}**", "")
            yield from (_line(DOCS / name) for name in _pages(content))


def _pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
            continue
        for content in entry.values():
            yield from _pages(content) if isinstance(content, list) else [content]


def _line(file: Path) -> str:
    title = file.read_text().partition("\n")[0].removeprefix("# ")
    return f"- [{title}]({file.relative_to(DOCS).as_posix()})"


def main() -> None:
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text() != page() and f"{PAGE} is not up to date: run python tools/index.py")
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
