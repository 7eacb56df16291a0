"""Names for addresses of an image: the function, its caller, and the layer of a model."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

__all__ = ["FunctionRange", "Symbols"]

_LONGEST_TEXT = 256


@dataclass(frozen=True, slots=True, order=True)
class FunctionRange:
    start: int
    end: int
    name: str


class Symbols:
    """The functions of an ELF file. A file that cannot be read gives no functions, so that a fault is still
    reported.

    ``layers`` are the layers of the models in order, each with the names of its functions.
    """

    def __init__(self, image: Path, layers: Sequence[tuple[str, Sequence[str]]] = ()) -> None:
        self.image = image
        self._layers = tuple(layers)

    def function_at(self, address: int) -> str:
        found = self._function(address)
        return found.name if found else ""

    def text_at(self, address: int) -> str:
        for base, data in self._memory:
            if base <= address < base + len(data):
                text = data[address - base :].partition(b"\0")[0][:_LONGEST_TEXT]
                return text.decode("ascii", "replace") if text.isascii() else ""
        return ""

    def is_return(self, value: int) -> bool:
        """Return True if a word is a return address, that is, if it follows a call."""
        address = value & ~1
        if not value & 1 or self._function(address) is None:
            return False
        long, short = self._halfwords(address - 4, 2), self._halfwords(address - 2, 1)
        if len(long) == 2 and _is_bl(*long):
            return True
        return len(short) == 1 and short[0] & 0xFF87 == 0x4780

    def layer_of(self, function: str, returns: Sequence[int]) -> str:
        """Return the layer that ``function`` computes, called from the addresses ``returns``.

        Layers that share a function are told apart by the calling instruction in their model's code; if that
        is not possible, all are named.
        """
        users = [name for name, functions in self._layers if functions and functions[0] == function]
        if len(users) > 1:
            for address in returns:
                caller = self._function(address & ~1)
                places = self._calls(caller, function) if caller else []
                if len(places) == len(users) and address & ~1 in places:
                    return users[places.index(address & ~1)]
        return ", ".join(users)

    def _calls(self, caller: FunctionRange, function: str) -> list[int]:
        # The return addresses of the calls of a function within another one, in order.
        return [at for at, target in self._branches(caller) if self.function_at(target) == function]

    def _branches(self, caller: FunctionRange) -> Iterator[tuple[int, int]]:
        # Return address and target of each BL (encoding T1, Armv8-M ARM C2.4.16).
        code = self._halfwords(caller.start, (caller.end - caller.start) // 2)
        for i, (high, low) in enumerate(pairwise(code)):
            if _is_bl(high, low):
                sign = high >> 10 & 1
                bits = (1 ^ (low >> 13 & 1) ^ sign, 1 ^ (low >> 11 & 1) ^ sign)
                offset = -(sign << 24) + (bits[0] << 23) + (bits[1] << 22)
                offset += ((high & 0x3FF) << 12) + ((low & 0x7FF) << 1)
                address = caller.start + 2 * i + 4
                yield address, address + offset

    def _function(self, address: int) -> FunctionRange | None:
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address >= self._functions[index].end:
            return None
        return self._functions[index]

    def _halfwords(self, start: int, count: int) -> list[int]:
        for base, data in self._memory:
            if base <= start and start + 2 * count <= base + len(data):
                part = data[start - base : start - base + 2 * count]
                return [int.from_bytes(part[i : i + 2], "little") for i in range(0, len(part), 2)]
        return []

    @cached_property
    def _functions(self) -> tuple[FunctionRange, ...]:
        return self._content[0]

    @cached_property
    def _starts(self) -> list[int]:
        return [function.start for function in self._functions]

    @cached_property
    def _memory(self) -> tuple[tuple[int, bytes], ...]:
        return self._content[1]

    @cached_property
    def _content(self) -> tuple[tuple[FunctionRange, ...], tuple[tuple[int, bytes], ...]]:
        try:
            with self.image.open("rb") as file:
                elf = ELFFile(file)
                return tuple(sorted(_functions(elf))), tuple(_memory(elf))
        except (OSError, ELFError, ValueError):
            return (), ()


def _functions(elf: ELFFile) -> Iterator[FunctionRange]:
    table = elf.get_section_by_name(".symtab")
    if isinstance(table, SymbolTableSection):
        for symbol in table.iter_symbols():
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_size"] > 0:
                start = symbol["st_value"] & ~1
                yield FunctionRange(start, start + symbol["st_size"], symbol.name)


def _memory(elf: ELFFile) -> Iterator[tuple[int, bytes]]:
    for section in elf.iter_sections():
        if section["sh_flags"] & SH_FLAGS.SHF_ALLOC and section["sh_type"] == "SHT_PROGBITS":
            yield section["sh_addr"], section.data()


def _is_bl(high: int, low: int) -> bool:
    # Encoding T1 of BL.
    return high & 0xF800 == 0xF000 and low & 0xD000 == 0xD000
