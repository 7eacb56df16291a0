"""Stack use and calls of the Thumb code in an image, function by function.

Calls are direct (BL), tail calls (a branch to another function) and indirect (BLX or BX of a register). A
function's frame is the sum of all instructions that lower the stack pointer, as if each ran once: an upper
bound unless a loop pushes, which neither compilers nor libraries do. Encodings: Armv8-M Architecture
Reference Manual, chapter C2.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

__all__ = ["ImageCode", "ThumbFunction", "read_code"]

_LR = 14


@dataclass(frozen=True, slots=True)
class ThumbFunction:
    """A function: the size of its ``frame`` in bytes, whether it calls through a pointer, and the names that
    it calls.

    A call to an address without a name is in ``calls`` as that address, ``0x1234``.
    """

    name: str
    frame: int
    indirect: bool
    calls: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class ImageCode:
    """The functions of an image by name, every alias included.

    ``declared`` are the values of absolute symbols by name, ``vectors`` the functions that the section
    ``.vectors`` names, in its order.
    """

    functions: Mapping[str, ThumbFunction]
    declared: Mapping[str, int]
    vectors: tuple[str, ...]


def read_code(path: Path) -> ImageCode:
    """Read the code of an ELF file; the result is empty if it is not for Arm."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".symtab")
        if elf["e_machine"] != "EM_ARM" or not isinstance(table, SymbolTableSection):
            return ImageCode({}, {}, ())
        symbols = list(table.iter_symbols())
        text = {s["sh_addr"]: s.data() for s in elf.iter_sections() if s["sh_flags"] & 4}
        section = elf.get_section_by_name(".vectors")
        vectors = section.data() if section is not None else b""
    names: dict[int, list[str]] = {}
    sizes: dict[int, int] = {}
    for symbol in symbols:
        if symbol["st_info"]["type"] == "STT_FUNC":
            names.setdefault(symbol["st_value"] & ~1, []).append(symbol.name)
            sizes[symbol["st_value"] & ~1] = symbol["st_size"]
    marks = sorted((s["st_value"], s.name[:2] == "$d") for s in symbols if s.name[:2] in ("$d", "$t"))
    scanner = _Scanner(names, sizes, text, marks)
    functions = {f.name: f for address in names for f in scanner.functions(address)}
    declared = {s.name: s["st_value"] for s in symbols if s["st_shndx"] == "SHN_ABS" and s.name}
    words = (int.from_bytes(vectors[i : i + 4], "little") for i in range(0, len(vectors), 4))
    pointed = dict.fromkeys(names[w & ~1][0] for w in words if w & 1 and w & ~1 in names)
    return ImageCode(functions, declared, tuple(pointed))


class _Scanner:
    def __init__(
        self,
        names: Mapping[int, list[str]],
        sizes: Mapping[int, int],
        text: Mapping[int, bytes],
        marks: list[tuple[int, bool]],
    ) -> None:
        self.names = names
        self.sizes = sizes
        self.starts = sorted(names)
        self.text = text
        self.marks = marks

    def functions(self, start: int) -> Iterator[ThumbFunction]:
        # The function at ``start``, once under each of its names.
        frame, indirect = 0, False
        calls = set()
        for address, first, second in self.instructions(start):
            frame += _lowered(first, second)
            indirect = indirect or _is_indirect(first)
            called, target = _target(address, first, second)
            if target is None or (target == start and not called):
                continue
            if target in self.names:
                calls.add(self.names[target][0])
            elif called:
                calls.add(f"{target:#x}")
        for name in self.names[start]:
            yield ThumbFunction(name, frame, indirect, frozenset(calls))

    def instructions(self, start: int) -> Iterator[tuple[int, int, int]]:
        # Address, first halfword and second one (0 if it is short) up to the next function; no data. What
        # follows a function of a known size may be constants, which not every compiler marks as data.
        section = max((a for a in self.text if a <= start), default=start)
        data = self.text.get(section, b"")
        after = bisect_right(self.starts, start)
        end = self.starts[after] if after < len(self.starts) else section + len(data)
        end = min(end, start + (self.sizes[start] or len(data)), section + len(data))
        address = start
        while address + 1 < end:
            if self.is_data(address):
                address += 2
                continue
            at = address - section
            first = int.from_bytes(data[at : at + 2], "little")
            wide = first >> 11 in (0b11101, 0b11110, 0b11111)
            yield address, first, int.from_bytes(data[at + 2 : at + 4], "little") if wide else 0
            address += 4 if wide else 2

    def is_data(self, address: int) -> bool:
        i = bisect_right(self.marks, (address, True))
        return bool(i) and self.marks[i - 1][1]


def _is_indirect(first: int) -> bool:
    # BLX Rm, or BX Rm other than the return through LR.
    return first & 0xFF87 == 0x4780 or (first & 0xFF87 == 0x4700 and first >> 3 & 15 != _LR)


def _lowered(first: int, second: int) -> int:
    # Bytes by which an instruction lowers the stack pointer.
    if first & 0xFE00 == 0xB400:  # PUSH
        return 4 * (first & 0x1FF).bit_count()
    if first & 0xFF80 == 0xB080:  # SUB SP, #imm7
        return 4 * (first & 0x7F)
    if first == 0xE92D:  # STMDB SP!
        return 4 * second.bit_count()
    if first == 0xF84D and second & 0x0F00 == 0x0D00:  # STR Rt, [SP, #-imm8]!
        return second & 0xFF
    if first == 0xE96D:  # STRD Rt, Rt2, [SP, #-imm8]!
        return 4 * (second & 0xFF)
    if first & 0xFFBF == 0xED2D and second & 0x0E00 == 0x0A00:  # VPUSH
        return 4 * (second & 0xFF)
    if first & 0xFBEF in (0xF1AD, 0xF2AD) and second & 0x0F00 == 0x0D00:  # SUB.W SP, SP, #imm
        return _immediate(first, second)
    return 0


def _immediate(first: int, second: int) -> int:
    # The constant of SUB.W (modified immediate) or SUBW (12 bits).
    imm12 = (first >> 10 & 1) << 11 | (second >> 12 & 7) << 8 | second & 0xFF
    if first & 0xFBFF == 0xF2AD or imm12 < 0x100:
        return imm12
    if imm12 >> 10:
        rotation = imm12 >> 7
        value = 0x80 | imm12 & 0x7F
        return (value >> rotation | value << 32 - rotation) & 0xFFFFFFFF
    byte = imm12 & 0xFF
    return {1: byte << 16 | byte, 2: byte << 24 | byte << 8, 3: byte * 0x01010101}[imm12 >> 8]


def _target(address: int, first: int, second: int) -> tuple[bool, int | None]:
    # Destination of a branch, and True for a call (BL).
    pc = address + 4
    if first & 0xF800 == 0xE000:  # B
        return False, pc + _signed(first & 0x7FF, 11) * 2
    if first & 0xF000 == 0xD000 and first & 0x0E00 != 0x0E00:  # B<cond>
        return False, pc + _signed(first & 0xFF, 8) * 2
    if first & 0xF800 != 0xF000 or not second & 0x8000:
        return False, None
    sign = first >> 10 & 1
    j1, j2 = second >> 13 & 1, second >> 11 & 1
    if second & 0x1000:  # BL, B.W
        high = sign << 23 | (1 - (j1 ^ sign)) << 22 | (1 - (j2 ^ sign)) << 21
        return bool(second & 0x4000), pc + _signed(high | (first & 0x3FF) << 11 | second & 0x7FF, 24) * 2
    if not second & 0x4000 and first >> 7 & 7 != 7:  # B<cond>.W
        high = sign << 19 | j2 << 18 | j1 << 17
        return False, pc + _signed(high | (first & 0x3F) << 11 | second & 0x7FF, 20) * 2
    return False, None


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value
