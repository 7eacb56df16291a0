"""Reader of objects and shared libraries: symbols and their data."""

import io
from collections.abc import Iterator
from dataclasses import dataclass

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import ARMAttributesSection, SymbolTableSection
from elftools.elf.sections import Symbol as ElfSymbol

from crtgen.base.errors import CorruptModelError

__all__ = ["ElfFile", "ObjectSymbol", "read_elf"]


@dataclass(frozen=True, slots=True)
class ObjectSymbol:
    """A global or weak symbol; ``kind`` is ``func``, ``object`` or another type of ELF, in lower case."""

    name: str
    kind: str
    is_weak: bool
    is_defined: bool
    data: bytes
    """Content of a defined object; empty if the file stores none."""


@dataclass(frozen=True, slots=True)
class ElfFile:
    """``machine`` as ELF names it (``ARM``, ``X86_64``); ``is_shared`` for a linked shared library.

    ``is_hard_float``: its functions take floats in FPU registers.
    """

    machine: str
    is_shared: bool
    symbols: tuple[ObjectSymbol, ...]
    is_hard_float: bool = False

    @property
    def functions(self) -> tuple[str, ...]:
        return tuple(
            s.name for s in self.symbols if s.is_defined and s.kind == "func" and not s.name.startswith("__")
        )

    @property
    def undefined(self) -> tuple[str, ...]:
        return tuple(s.name for s in self.symbols if not s.is_defined and not s.is_weak)

    @property
    def context(self) -> tuple[str, ...]:
        """Functions of the runtime that it calls through ``__TVM...`` pointers, which a loader normally
        sets.
        """
        pointers = (s.name for s in self.symbols if s.is_defined and s.is_weak and s.kind == "object")
        return tuple(name.removeprefix("__") for name in pointers if name.startswith("__TVM"))

    def data(self, name: str) -> bytes | None:
        return next((s.data for s in self.symbols if s.name == name and s.is_defined), None)


def read_elf(data: bytes, where: str) -> ElfFile:
    """Read the file's symbols. Raises ``CorruptModelError`` for a damaged ELF file."""
    try:
        elf = ELFFile(io.BytesIO(data))
        kind = elf.header["e_type"]
        name = ".dynsym" if kind == "ET_DYN" else ".symtab"
        table = elf.get_section_by_name(name)
        symbols = tuple(_symbols(elf, table)) if isinstance(table, SymbolTableSection) else ()
        machine = str(elf.header["e_machine"]).removeprefix("EM_")
        hard_float = _is_hard_float(elf)
    except CorruptModelError as error:
        raise CorruptModelError(error.message, where=where) from error
    except (ELFError, ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise CorruptModelError(
            f"the file is not an ELF file, or it is damaged: {error}", where=where
        ) from error
    if kind not in ("ET_REL", "ET_DYN"):
        raise CorruptModelError("the file is neither an object nor a shared library", where=where)
    return ElfFile(machine, kind == "ET_DYN", symbols, hard_float)


def _is_hard_float(elf: ELFFile) -> bool:
    # The calling convention, from Arm's build attributes.
    section = elf.get_section_by_name(".ARM.attributes")
    if not isinstance(section, ARMAttributesSection):
        return False
    return any(
        attribute.tag == "TAG_ABI_VFP_ARGS" and attribute.value == 1
        for vendor in section.iter_subsections()
        for part in vendor.iter_subsubsections()
        for attribute in part.iter_attributes()
    )


def _symbols(elf: ELFFile, table: SymbolTableSection) -> Iterator[ObjectSymbol]:
    for symbol in table.iter_symbols():
        binding = symbol["st_info"]["bind"]
        if symbol.name and binding in ("STB_GLOBAL", "STB_WEAK"):
            kind = str(symbol["st_info"]["type"]).removeprefix("STT_").lower()
            defined = symbol["st_shndx"] != "SHN_UNDEF"
            data = _data(elf, symbol) if defined and kind == "object" else b""
            yield ObjectSymbol(symbol.name, kind, binding == "STB_WEAK", defined, data)


def _data(elf: ELFFile, symbol: ElfSymbol) -> bytes:
    index = symbol["st_shndx"]
    if not isinstance(index, int):
        return b""
    section = elf.get_section(index)
    if section["sh_type"] == "SHT_NOBITS":
        return b""
    if section.compressed:
        raise CorruptModelError("a section with data is compressed")
    start = symbol["st_value"] - section["sh_addr"]
    data: bytes = section.data()[start : start + symbol["st_size"]]
    if start < 0 or len(data) != symbol["st_size"]:
        raise CorruptModelError("a symbol is outside of its section")
    return data
