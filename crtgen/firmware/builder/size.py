"""Flash and RAM of an image in bytes: in total, by group of files, by symbol."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from crtgen.base.errors import BuildError
from crtgen.firmware.builder.mapfile import Piece, find_piece, read_map

__all__ = ["GROUPS", "Group", "SizedSymbol", "Sizes", "read_sizes"]

GROUPS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "libc",
        re.compile(
            r"lib(c|c_nano|gcc|m|nosys|rdimon|compiler_rt|g|g_nano)\.(a|lib)|/crt[01in]\.o|crt(begin|end)"
        ),
    ),
    ("weights", re.compile(r"(^|[/_])weights\.[^/]*$")),
    ("registry", re.compile(r"(^|/)(crt_metadata|(?!crt_)\w+_registry)\.[^/]*$")),
    ("model", re.compile(r"(^|/)(model|models|kernels)/|(^|/)model[^/]*$")),
    ("runtime", re.compile(r"(^|/)(runtime|crt)/|(^|/)crt_[^/]*$")),
)
"""Groups by the paths of their object files; the first that matches. The rest is platform."""

_LIBRARY = ("model", "weights")

_ARENA = re.compile(r"(^|_)arena(_(?!state|recorded|image)\w+)?(\.\d+)?$")


@dataclass(frozen=True, slots=True)
class SizedSymbol:
    """A function or an object: ``section`` is text, rodata, data or bss; ``group`` as in ``GROUPS``."""

    name: str
    section: str
    size: int
    group: str
    file: str


@dataclass(frozen=True, slots=True)
class Group:
    flash: int
    ram: int


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """Bytes of an image.

    ``flash`` is text + rodata + data, ``ram`` is data + bss; ``arena`` is the part of bss with the arenas.
    ``stack`` is the linker script's reservation, which is not in ``ram``. ``groups`` adds up to flash and
    ram; bytes that belong to no object file are ``padding``. It is empty without a linker map.
    """

    text: int
    rodata: int
    data: int
    bss: int
    stack: int
    arena: int
    groups: Mapping[str, Group]
    symbols: tuple[SizedSymbol, ...]

    @property
    def flash(self) -> int:
        """Bytes of code, constants, and initial values of variables."""
        return self.text + self.rodata + self.data

    @property
    def library_flash(self) -> int | None:
        """The models' share of the flash, which is the size of a library of them; None if unknown."""
        return sum(self.groups[name].flash for name in _LIBRARY) if self.groups else None

    @property
    def ram(self) -> int:
        """Bytes of variables, including the arena but not the stack."""
        return self.data + self.bss

    def to_dict(self) -> dict[str, Any]:
        names = ("text", "rodata", "data", "bss", "arena")
        return {
            "flash": self.flash,
            "ram": self.ram,
            **{name: getattr(self, name) for name in names},
            "stack_reserved": self.stack,
            "groups": {name: asdict(group) for name, group in self.groups.items()},
            "symbols": [asdict(symbol) for symbol in self.symbols],
        }


@dataclass(frozen=True, slots=True)
class _Section:
    index: int
    kind: str
    address: int
    size: int


def read_sizes(path: Path, *, map_file: Path | None = None) -> Sizes:
    """Return the sizes of an ELF file, or of all members of an archive; ``BuildError`` if it is neither.

    Conversions between floats and integers do not count in an archive: they are linked if they are called.
    ``map_file`` is the linker's map. Symbols are sorted by size, the largest first.
    """
    pieces = read_map(map_file) if map_file else ()
    try:
        parts = [_read(name, content, pieces) for name, content in _members(path)]
    except (OSError, ELFError, ValueError) as error:
        raise BuildError(f"the file is not an ELF file: {error}", where=str(path)) from error
    symbols = [symbol for part in parts for symbol in part.symbols]
    total = {kind: sum(part.sections[kind] for part in parts) for kind in _KINDS}
    return Sizes(
        **total,
        arena=sum(s.size for s in symbols if s.section == "bss" and _ARENA.search(s.name)),
        groups=_sum_groups(part.groups for part in parts),
        symbols=tuple(sorted(symbols, key=lambda s: (-s.size, s.name, s.file))),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    sections: Mapping[str, int]
    groups: Mapping[str, Group]
    symbols: tuple[SizedSymbol, ...]


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    # The file itself with an empty name, or names and contents of an archive's members.
    content = path.read_bytes()
    if not content.startswith(b"!<arch>\n"):
        yield "", content
        return
    at, long_names = 8, b""
    while at + 60 <= len(content):
        name, size = content[at : at + 16].decode().strip(), int(content[at + 48 : at + 58])
        body = content[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
        if name == "//":
            long_names = body
        elif name not in ("/", "/SYM64/"):
            if name.startswith("/"):
                name = long_names[int(name[1:]) :].partition(b"\n")[0].decode()
            yield name.rstrip("/"), body


# Sections of what a library's header offers beside the model, in the object file of the model's own source.
_OFFERED = re.compile(r"\.text\.(\w+)_(?:de)?quantize_\w+")


def _read(name: str, content: bytes, pieces: tuple[Piece, ...]) -> _Part:
    elf = ELFFile(BytesIO(content))
    offered = {
        i
        for i, section in enumerate(elf.iter_sections())
        if (found := _OFFERED.fullmatch(section.name)) and name.partition(".")[0] == found[1]
    }
    sections = tuple(s for s in _sections(elf) if s.index not in offered)
    raw = tuple(_symbols(elf, sections))
    total = {kind: sum(s.size for s in sections if s.kind == kind) for kind in _KINDS}
    code = {section.index for section in sections if section.kind == "text"}
    inline = sum(symbol.size for symbol, _, index in raw if symbol.section == "rodata" and index in code)
    total["text"] -= inline
    total["rodata"] += inline
    symbols = tuple(_attribute(symbol, address, name, pieces) for symbol, address, _ in raw)
    return _Part(total, _groups(sections, pieces), symbols)


def _sum_groups(parts: Iterable[Mapping[str, Group]]) -> dict[str, Group]:
    result: dict[str, Group] = {}
    for groups in parts:
        for name, group in groups.items():
            known = result.get(name, Group(0, 0))
            result[name] = Group(known.flash + group.flash, known.ram + group.ram)
    return result


_KINDS = ("text", "rodata", "data", "bss", "stack")


def _sections(elf: ELFFile) -> Iterator[_Section]:
    # Sections that take memory; what is loaded elsewhere and copied at the start is data.
    copied = {
        section["sh_addr"]
        for segment in elf.iter_segments("PT_LOAD")
        if segment["p_paddr"] != segment["p_vaddr"] and segment["p_filesz"]
        for section in elf.iter_sections()
        if segment["p_vaddr"] <= section["sh_addr"] < segment["p_vaddr"] + segment["p_filesz"]
    }
    for index, section in enumerate(elf.iter_sections()):
        if section["sh_flags"] & SH_FLAGS.SHF_ALLOC and not section["sh_flags"] & SH_FLAGS.SHF_TLS:
            kind = "data" if section["sh_addr"] in copied else _kind(section)
            yield _Section(index, kind, section["sh_addr"], section["sh_size"])


def _kind(section: Any) -> str:
    if section.name == ".stack":
        return "stack"
    if section["sh_type"] == "SHT_NOBITS":
        return "bss"
    if section["sh_flags"] & SH_FLAGS.SHF_WRITE:
        return "data"
    return "text" if section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR else "rodata"


def _symbols(elf: ELFFile, sections: tuple[_Section, ...]) -> Iterator[tuple[SizedSymbol, int, int]]:
    # Functions and objects with address and section; an object between code counts as rodata.
    kinds = {section.index: section.kind for section in sections}
    table = elf.get_section_by_name(".symtab")
    seen: set[tuple[int, int, int]] = set()
    for entry in table.iter_symbols() if isinstance(table, SymbolTableSection) else ():
        kind = kinds.get(entry["st_shndx"])
        what = entry["st_info"]["type"]
        if kind is None or what not in ("STT_FUNC", "STT_OBJECT") or not entry["st_size"]:
            continue
        address = entry["st_value"] & ~1 if what == "STT_FUNC" else entry["st_value"]
        place = (entry["st_shndx"], address, entry["st_size"])
        if place in seen:
            continue
        seen.add(place)
        section = "rodata" if kind == "text" and what == "STT_OBJECT" else kind
        yield SizedSymbol(entry.name, section, entry["st_size"], "", ""), address, entry["st_shndx"]


def _attribute(symbol: SizedSymbol, address: int, member: str, pieces: tuple[Piece, ...]) -> SizedSymbol:
    piece = find_piece(pieces, address)
    file = piece.file if piece else member
    return SizedSymbol(symbol.name, symbol.section, symbol.size, _group(file) if file else "", file)


@lru_cache(10_000)
def _group(file: str) -> str:
    return next((name for name, pattern in GROUPS if pattern.search(file)), "platform")


def _groups(sections: tuple[_Section, ...], pieces: tuple[Piece, ...]) -> dict[str, Group]:
    # Bytes of the pieces by group; what is left of the sections is padding.
    if not pieces:
        return {}
    flash = dict.fromkeys((*(name for name, _ in GROUPS), "platform", "padding"), 0)
    ram = dict(flash)
    for section in sections:
        if section.kind == "stack":
            continue
        known = _known(section, pieces, flash)
        known["padding"] = section.size - sum(known.values())
        for name, size in known.items():
            flash[name] += size if section.kind != "bss" else 0
            ram[name] += size if section.kind in ("data", "bss") else 0
    return {name: Group(flash[name], ram[name]) for name in flash}


def _known(section: _Section, pieces: tuple[Piece, ...], names: Iterable[str]) -> dict[str, int]:
    # Bytes of the section's pieces by group; no byte counts twice, merged strings overlap in a map.
    known = dict.fromkeys(names, 0)
    at = section.address
    for piece in pieces:
        end = min(piece.address + piece.size, section.address + section.size)
        known[_group(piece.file)] += max(0, end - max(at, piece.address))
        at = max(at, end)
    return known
