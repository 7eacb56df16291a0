"""The vector table of an image."""

from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from crtgen.base.errors import FlashError

__all__ = ["Vectors", "read_vectors"]

# Names of the vector table in crtgen's bare-metal start-up and in Zephyr.
_SYMBOLS = ("crt_vectors", "_vector_start")


@dataclass(frozen=True, slots=True)
class Vectors:
    """Address of the vector table and its first two words: stack pointer and reset handler."""

    address: int
    stack: int
    reset: int


def read_vectors(image: Path) -> Vectors:
    """Read the vector table of an ELF file. Raises ``FlashError`` if it has none."""
    try:
        with image.open("rb") as file:
            elf = ELFFile(file)
            address = _address(elf)
            for segment in elf.iter_segments("PT_LOAD"):
                offset = address - segment["p_vaddr"]
                if offset >= 0 and offset + 8 <= segment["p_filesz"]:
                    words = segment.data()[offset : offset + 8]
                    return Vectors(address, *(int.from_bytes(words[i : i + 4], "little") for i in (0, 4)))
    except (OSError, ELFError) as error:
        raise FlashError(f"the file is not an ELF file: {error}", where=str(image)) from error
    raise FlashError("the image has no vector table", where=str(image))


def _address(elf: ELFFile) -> int:
    table = elf.get_section_by_name(".symtab")
    if isinstance(table, SymbolTableSection):
        for name in _SYMBOLS:
            for symbol in table.get_symbol_by_name(name) or ():
                return int(symbol["st_value"])
    return -1
