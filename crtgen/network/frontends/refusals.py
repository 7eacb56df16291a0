"""Refusals collected by a front end, grouped by cause and reported together."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from crtgen.base.errors import UnsupportedError

__all__ = ["NotConstant", "NotFixed", "Refusals", "RefusedOperator"]

_MOST_CAUSES = 18
_MOST_PLACES = 3


class RefusedOperator(Exception):
    """An operator, option or type that crtgen lacks. The text names it, and the supported alternatives.

    ``hint`` says what to do about it.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


class NotConstant(RefusedOperator):
    """An operand must be constant but is computed at run time; not reported if its producer was refused."""


class NotFixed(RefusedOperator):
    """A tensor has an open length (-1 in ``shape``); not reported if its producer was refused."""

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        hint: str = "fix the shapes of the inputs with --shape name=1,96,96,3",
    ) -> None:
        lengths = "x".join("?" if length == -1 else str(length) for length in shape)
        super().__init__(f"{name!r} has the shape {lengths}: lengths are not fixed", hint)


@dataclass(slots=True)
class Refusals:
    """Refusals by cause. ``where`` is the file's name in errors."""

    where: str
    _places: dict[str, list[str]] = field(default_factory=dict)
    _hints: dict[str, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._places)

    def add(self, place: str, subject: str, refusal: RefusedOperator) -> None:
        self._places.setdefault(f"{subject}: {refusal}", []).append(place)
        if refusal.hint:
            self._hints[refusal.hint] = None

    def raise_any(self) -> None:
        """Raise ``UnsupportedError`` that names every cause, in at most twenty lines."""
        if not self._places:
            return
        lines = list(_lines(self._places))
        if len(lines) > 1:
            lines[0] = f"{len(lines)} things are not supported:\n  {lines[0]}"
        if len(lines) > _MOST_CAUSES:
            lines[_MOST_CAUSES:] = [f"and {len(lines) - _MOST_CAUSES} more"]
        raise UnsupportedError("\n  ".join(lines), where=self.where, hint="; ".join(self._hints))


def _lines(places: Mapping[str, list[str]]) -> Iterable[str]:
    for cause, found in places.items():
        rest = len(found) - _MOST_PLACES
        named = [*found[:_MOST_PLACES], *([f"and {rest} more"] if rest > 0 else [])]
        yield f"{cause} ({'; '.join(named)})"
