"""Parsers of values in board files. Each raises ``ValueError`` for values that it does not accept."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, TypeVar

from crtgen.base.toml import TomlTable, text

__all__ = ["address", "each", "one_of", "optional", "units"]

T = TypeVar("T")


def optional(table: TomlTable | None, parse: Callable[[TomlTable], T]) -> T | None:
    if table is None:
        return None
    result = parse(table)
    table.finish()
    return result


def each(parse: Callable[[Any], str]) -> Callable[[Any], tuple[str, ...]]:
    def parse_list(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise ValueError("expected a list of texts")
        return tuple(parse(item) for item in value)

    return parse_list


def address(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise ValueError("expected an integer from 0 to 0xffffffff")
    return value


def units(parse: Callable[[str], int]) -> Callable[[Any], int]:
    return lambda value: parse(text(value))


def one_of(what: str, *choices: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value in choices:
            return str(value)
        close = get_close_matches(str(value), choices, n=1)
        advice = f"did you mean {close[0]}?" if close else f"known: {', '.join(choices)}"
        raise ValueError(f"unknown {what} {value}: {advice}")

    return parse
