"""A cache of results that lives as long as the object to which it belongs."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

__all__ = ["Known"]

_T = TypeVar("_T")


class Known:
    """Results by key, kept as long as this object lives."""

    def __init__(self) -> None:
        self._found: dict[Hashable, Any] = {}

    def once(self, key: Hashable, find: Callable[[], _T]) -> _T:
        if key not in self._found:
            self._found[key] = find()
        found: _T = self._found[key]
        return found
