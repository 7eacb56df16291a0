"""Checked access to parsed JSON: a ``CorruptModelError`` names the missing or wrong value."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

from crtgen.base.errors import CorruptModelError

__all__ = ["Checker"]

_T = TypeVar("_T")


class Checker:
    """Checks and converts; ``where`` goes into every error."""

    def __init__(self, where: str) -> None:
        self.where = where

    def fail(self, reason: str) -> NoReturn:
        raise CorruptModelError(reason, where=self.where)

    def keys(
        self, value: Any, what: str, required: frozenset[str], optional: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return an object that has all required keys, and no keys other than the required and optional
        ones.
        """
        if not isinstance(value, dict):
            self.fail(f"{what} is not an object")
        for key in sorted(required - value.keys()):
            self.fail(f"{what} has no key {key!r}")
        for key in sorted(value.keys() - required - set(optional)):
            self.fail(f"{what} has the unknown key {key!r}")
        return value

    def items(self, value: Any, what: str, kind: type) -> list[Any]:
        """Return a list of values of one type; a boolean is not an integer."""
        if not isinstance(value, list) or any(type(item) is not kind for item in value):
            self.fail(f"{what} is not a list of {kind.__name__}")
        return value

    def naturals(self, value: Any, what: str) -> tuple[int, ...]:
        numbers = self.items(value, what, int)
        if any(n < 0 for n in numbers):
            self.fail(f"{what} has a negative number")
        return tuple(numbers)

    def value(self, table: dict[str, Any], key: str, kind: type[_T], what: str) -> _T:
        """Return the value of a required key, which must have this type; a boolean is not an integer."""
        if key not in table:
            self.fail(f"{what} has no key {key!r}")
        value = table[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.fail(f"{key!r} of {what} is not of type {kind.__name__}")
        return value

    def natural(self, table: dict[str, Any], key: str, what: str) -> int:
        """Return the value of a required key, which must be a non-negative integer."""
        number = self.value(table, key, int, what)
        if number < 0:
            self.fail(f"{key!r} of {what} is negative")
        return number

    def document(self, text: str) -> Any:
        """Parse JSON; duplicate keys in an object and unpaired surrogates are errors."""
        try:
            document = json.loads(text, object_pairs_hook=self._object)
            if "\\ud" in text.lower():
                json.dumps(document, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise CorruptModelError(f"the content is not JSON: {error}", where=self.where) from error
        return document

    def _object(self, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        twice = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
        if twice:
            self.fail(f"the key {twice[0]!r} occurs twice")
        return dict(pairs)
