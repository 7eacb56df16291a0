"""Values with a unit in board files: ``"4 MiB"``, ``"25 MHz"``."""

import re

__all__ = ["parse_frequency", "parse_size", "size_text"]

_SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SHORT = {"K": "KiB", "M": "MiB", "G": "GiB"}
_FREQUENCIES = {"Hz": 1, "kHz": 1_000, "MHz": 1_000_000, "GHz": 1_000_000_000}


def parse_size(text: str) -> int:
    """Parse ``"512 KiB"`` or ``"512K"`` as bytes. Raises ``ValueError`` with the reason."""
    unit = _SHORT.get(text[-1:].upper())
    return _parse(f"{text[:-1]}{unit}" if unit else text, _SIZES, "a size")


def parse_frequency(text: str) -> int:
    """Parse ``"25 MHz"`` as hertz. Raises ``ValueError`` with the reason."""
    return _parse(text, _FREQUENCIES, "a frequency")


def size_text(size: int) -> str:
    """Return a byte count in the largest unit that divides it: ``4 MiB``, ``1000 B``."""
    unit = max((u for u in _SIZES if size % _SIZES[u] == 0 and size), key=_SIZES.__getitem__, default="B")
    return f"{size // _SIZES[unit]} {unit}"


def _parse(text: str, units: dict[str, int], what: str) -> int:
    match = re.fullmatch(r"(\d{1,18}) ?([A-Za-z]+)", text)
    if match is None or match[2] not in units:
        example = f"4 {list(units)[2]}"
        raise ValueError(f'"{text}" is not {what}: write a whole number and {_one_of(units)}, as "{example}"')
    return int(match[1]) * units[match[2]]


def _one_of(units: dict[str, int]) -> str:
    *most, last = units
    return f"{', '.join(most)} or {last}"
