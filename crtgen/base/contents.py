"""File contents by name. Long contents are generated piece by piece while they are read."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias, TypeVar

__all__ = ["Contents", "Maker"]

T = TypeVar("T", str, bytes)

Maker: TypeAlias = Callable[[], Iterable[T]]
"""Makes a content anew, in one piece or more."""


class Contents(Mapping[str, T]):
    """File contents by name. A long content is generated anew each time it is read, and never held as a
    whole.

    ``entries`` maps a name to its content, or to the function that generates it.
    """

    def __init__(self, entries: Mapping[str, T | Maker[T]]) -> None:
        self.entries: dict[str, T | Maker[T]] = dict(entries)

    @classmethod
    def of(cls, contents: Mapping[str, T]) -> "Contents[T]":
        return contents if isinstance(contents, Contents) else cls(contents)

    def pieces(self, name: str) -> Iterator[T]:
        entry = self.entries[name]
        if callable(entry):
            yield from entry()
        else:
            yield entry

    def __getitem__(self, name: str) -> T:
        first, *others = self.pieces(name)
        return first[:0].join((first, *others)) if others else first

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)
