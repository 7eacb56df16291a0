"""TOML files that users write."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crtgen.base.formats.foreign import foreign

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

__all__ = ["parse_toml", "parse_toml_to_edit"]


def parse_toml(text: str, path: Path, what: str) -> dict[str, Any]:
    with foreign(path, what):
        return tomllib.loads(text)


def parse_toml_to_edit(text: str, path: Path, what: str) -> "TOMLDocument":
    """Parse a document that keeps its comments when it is written back. Raises ``UsageError``."""
    import tomlkit  # takes a while, and few commands write

    with foreign(path, what):
        return tomlkit.parse(text)
