"""TOML files that users write. Every key is checked, and errors give the full name of the key."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from crtgen.base import files, trust
from crtgen.base.errors import UsageError
from crtgen.base.formats.toml_text import parse_toml

__all__ = ["TomlTable", "load_toml", "table", "text", "yes_or_no"]

T = TypeVar("T")
_ABSENT: Any = object()


class TomlTable:
    """A TOML table that remembers which keys were read; any other key is an error.

    ``digest`` is that of the whole file, in the form of ``trust.digest``.
    """

    def __init__(self, file: Path, path: str, content: Mapping[str, Any], digest: str) -> None:
        self.digest = digest
        self._file = file
        self._path = path
        self._content = content
        self._known: set[str] = set()

    def error(self, key: str, message: str) -> UsageError:
        return UsageError(message, where=f"{self._file}: {self._path}{key}")

    def get(self, key: str, parse: Callable[[Any], T], default: Any = _ABSENT) -> T:
        """Return the parsed value of a key; ``parse`` raises ``ValueError`` for a value that it cannot
        accept.
        """
        self._known.add(key)
        if key not in self._content:
            if default is _ABSENT:
                raise self.error(key, "the key is missing")
            return default  # type: ignore[no-any-return]
        try:
            return parse(self._content[key])
        except ValueError as error:
            raise self.error(key, str(error)) from error

    def has(self, key: str) -> bool:
        self._known.add(key)
        return key in self._content

    def section(self, key: str) -> "TomlTable | None":
        content = self.get(key, table, None)
        return None if content is None else TomlTable(self._file, f"{self._path}{key}.", content, self.digest)

    def sections(self, key: str) -> "list[tuple[str, TomlTable]]":
        outer = self.section(key)
        if outer is None:
            return []
        return [(name, inner) for name in outer._content if (inner := outer.section(name)) is not None]

    def tables(self, key: str) -> "list[TomlTable]":
        listed = self.get(key, _list, [])
        places = (f"{self._path}{key} {n}." for n in range(1, len(listed) + 1))
        return [
            TomlTable(self._file, place, each, self.digest)
            for place, each in zip(places, listed, strict=True)
        ]

    def rest(self) -> tuple[str, ...]:
        return tuple(key for key in self._content if key not in self._known)

    def finish(self) -> None:
        """Raise an error for the first key that was never read."""
        for key in self.rest():
            close = get_close_matches(key, sorted(self._known), n=1)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(sorted(self._known))}"
            raise UsageError("unknown key", where=f"{self._file}: {self._path}{key}", hint=hint)


def load_toml(file: Path, what: str) -> TomlTable:
    """Read a file; ``what`` names it in errors. Raises ``UsageError``."""
    content = files.read_text(file, what)
    return TomlTable(file, "", parse_toml(content, file, what), trust.digest(content.encode()))


def table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("expected a table")
    return value


def _list(value: Any) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ValueError("expected an array of tables")
    return value


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a text")
    return value


def yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value
