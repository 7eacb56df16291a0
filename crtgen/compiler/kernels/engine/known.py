"""What is found once, and kept for whoever asks again."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

__all__ = ["Known"]

_T = TypeVar("_T")


class Known:
    """Results by key, as long as this object lives: it belongs to what they are about."""

    def __init__(self) -> None:
        self._found: dict[Hashable, Any] = {}

    def once(self, key: Hashable, find: Callable[[], _T]) -> _T:
        """What was found for this key before, or is now."""
        if key not in self._found:
            self._found[key] = find()
        found: _T = self._found[key]
        return found
