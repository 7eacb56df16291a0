"""A linked image: what it loads, the names in it, and its instructions as text.

Bytes come only from the loaded segments, which is what a programmer writes to a chip; sections just tell
objdump where code is. A segment that is not writable holds constants. After a reset it is at its load
address, and it must be at its link address by the time the network is called.

The text is that of ``arm-none-eabi-objdump``. It need not be trusted: every instruction that is run is also
assembled again (``decoders.py``). An instruction that objdump cannot decode has no text and is refused.
"""

import hashlib
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from elftools.elf.segments import Segment as ELFSegment

from crtgen.base.child import run_to_end
from crtgen.base.errors import ToolMissingError, UsageError
from crtgen.proof.checker.algebra.meaning import NEGATED
from crtgen.proof.checker.refusal import Refusal

__all__ = ["DecodedImage", "DecodedInstruction", "Segment", "image_bytes", "read_image", "tool"]

_SECONDS = 120
# Bytes that no gap between two segments with variables reaches.
_ALIGNED = 32

# Tag_CPU_arch of the build attributes (Addenda to the ABI for the Arm Architecture, 3.3.5.2).
_ARCHITECTURES = {
    11: "armv6-m",
    12: "armv6-m",
    10: "armv7-m",
    13: "armv7e-m",
    16: "armv8-m.base",
    17: "armv8-m.main",
    21: "armv8.1-m.main",
}


@dataclass(frozen=True, slots=True)
class DecodedInstruction:
    """An instruction: ``name`` without condition and width, ``kind`` from after the dot (``s8``), operands as
    text.
    """

    address: int
    name: str
    kind: str
    operands: tuple[str, ...]
    condition: str
    following: int
    """The address of the next one, by the encoding."""
    text: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of ``size`` bytes at ``address``; the first of them are ``data``, stored at ``load``."""

    address: int
    load: int
    size: int
    is_written: bool
    data: bytes

    @property
    def end(self) -> int:
        return self.address + self.size


@dataclass(frozen=True, eq=False)
class DecodedImage:
    """A linked image: ``segments`` in ascending order of address; ``zeros`` is the start and the end of
    .bss.
    """

    path: Path
    architecture: str
    segments: tuple[Segment, ...]
    zeros: tuple[tuple[int, int], ...]
    entry: int
    symbols: Mapping[str, int]
    sizes: Mapping[str, int]
    instructions: Mapping[int, DecodedInstruction]
    functions: tuple[tuple[int, int, str], ...] = field(default=())
    """First address, end and name of each function."""

    @property
    def constant(self) -> tuple[tuple[int, bytes], ...]:
        """Constant bytes, by start address; no store may reach them."""
        return tuple((s.address, s.data) for s in self.segments if s.data and not s.is_written)

    @property
    def loaded(self) -> tuple[tuple[int, bytes], ...]:
        return tuple((s.load, s.data) for s in self.segments if s.data)

    @property
    def variable(self) -> tuple[tuple[int, int], ...]:
        """Start and end of writable memory, and of its initial contents in flash."""
        moved = [s for s in self.segments if s.load != s.address or (s.is_written and not s.data)]
        ends = [0, *(s.end for s in moved)]
        gaps = [s.address - end for s, end in zip(moved, ends, strict=False)]  # of alignment
        return tuple(
            (s.address - (gap if gap < _ALIGNED else 0), s.end) for s, gap in zip(moved, gaps, strict=True)
        )

    @property
    def initial(self) -> tuple[tuple[int, bytes], ...]:
        """Bytes that start-up code must have put into memory before main is called."""
        copied = tuple((s.address, s.data) for s in self.segments if s.data and s.load != s.address)
        return copied + tuple((first, bytes(end - first)) for first, end in self.zeros)

    def is_variable(self, first: int, end: int) -> bool:
        return any(s.is_written and s.address <= first <= end <= s.end for s in self.segments)

    @property
    def unaligned(self) -> bool:
        """True if loads and stores of words and halfwords may be unaligned."""
        return self.architecture not in ("armv6-m", "armv8-m.base")

    @property
    def sha256(self) -> str:
        """SHA-256 of the loaded segments: address, load address, size, length and bytes of each."""
        digest = hashlib.sha256()
        for s in self.segments:
            for number in (s.address, s.load, s.size, s.is_written, len(s.data)):
                digest.update(number.to_bytes(4, "little"))
            digest.update(s.data)
        return digest.hexdigest()

    def function_of(self, address: int) -> str:
        return next((n for first, end, n in self.functions if first <= address < end), f"{address:#x}")

    def arena(self, name: str) -> tuple[int, int]:
        """Return the start and end of a model's arena: its own, or the one that all models share."""
        return self.span("crt_shared_arena" if "crt_shared_arena" in self.symbols else f"{name}_arena")

    def arenas(self, name: str) -> dict[str, tuple[int, int]]:
        """Return a model's arena, and its parts in other memories by the part's name."""
        first = f"{name}_arena_"
        parts = sorted(symbol for symbol in self.symbols if symbol.startswith(first) and self.sizes[symbol])
        return {"": self.arena(name), **{part.removeprefix(first): self.span(part) for part in parts}}

    def span(self, name: str) -> tuple[int, int]:
        if name not in self.symbols:
            raise Refusal(f"the image has no symbol {name}")
        return self.symbols[name], self.symbols[name] + self.sizes[name]


def read_image(path: Path) -> DecodedImage:
    """Read an ELF file for Arm.

    Raises ``UsageError`` for any other file, ``ToolMissingError`` without binutils.
    """
    try:
        with path.open("rb") as file:
            return _read(path, ELFFile(file))
    except OSError as error:
        raise UsageError(
            str(error.strerror), where=str(path), hint="check the path and the permissions"
        ) from None
    except (ELFError, UnicodeDecodeError, KeyError, ValueError) as error:
        raise UsageError(
            f"the file is not a readable ELF file: {error}", where=str(path), hint="name the .elf of a build"
        ) from None


def _read(path: Path, elf: ELFFile) -> DecodedImage:
    table = elf.get_section_by_name(".symtab")
    attributes = elf.get_section_by_name(".ARM.attributes")
    if elf["e_machine"] != "EM_ARM" or not isinstance(table, SymbolTableSection) or attributes is None:
        raise UsageError(
            "the file is not a Cortex-M image with symbols",
            where=str(path),
            hint="name the .elf of a build, not stripped",
        )
    tags = _attributes(attributes)
    architecture = _ARCHITECTURES.get(tags.get("TAG_CPU_ARCH", -1))
    if architecture is None:
        raise UsageError(
            "the build attributes of the image name no core that the checker knows",
            where=str(path),
            hint="docs/prove.md lists the cores",
        )
    segments = _segments(path, elf)
    _compare_sections(path, elf, segments)
    constant = tuple((s.address, s.data) for s in segments if s.data and not s.is_written)
    bss = [s for s in elf.iter_sections() if s.name == ".bss" and s["sh_size"]]
    zeros = tuple((s["sh_addr"], s["sh_addr"] + s["sh_size"]) for s in bss)
    symbols: dict[str, int] = {}
    sizes: dict[str, int] = {}
    functions = []
    for symbol in table.iter_symbols():
        if not symbol.name or symbol.name[0] == "$":
            continue
        is_function = symbol["st_info"]["type"] == "STT_FUNC"
        address = symbol["st_value"] & ~1 if is_function else symbol["st_value"]
        symbols[symbol.name], sizes[symbol.name] = address, symbol["st_size"]
        if is_function and symbol["st_size"]:
            functions.append((address, address + symbol["st_size"], symbol.name))
    instructions = _decode(path, architecture, constant)
    ordered = tuple(sorted(functions))
    return DecodedImage(
        path,
        architecture,
        segments,
        zeros,
        elf["e_entry"],
        symbols,
        sizes,
        instructions,
        functions=ordered,
    )


def _compare_sections(path: Path, elf: ELFFile, segments: Iterable[Segment]) -> None:
    # Look that sections, of which objdump reads code, hold what is loaded there.
    for section in elf.iter_sections():
        if not section["sh_flags"] & 2 or section["sh_type"] == "SHT_NOBITS" or not section["sh_size"]:
            continue
        first, data = section["sh_addr"], section.data()
        if not any(
            s.address <= first and s.data[first - s.address : first - s.address + len(data)] == data
            for s in segments
        ):
            said = f"its section {section.name} at {first:#x} does not hold what its segments load there"
            raise UsageError(
                said,
                where=str(path),
                hint="link the image again; a tool that changes sections alone makes such files",
            )


# PF_W, of a segment that may be written.
_WRITTEN = 2


def _is_written(segment: ELFSegment) -> bool:
    # What has no bytes in the file is for variables, too: LLD calls the section of a stack read-only.
    return bool(segment["p_flags"] & _WRITTEN) or not segment["p_filesz"]


def _segments(path: Path, elf: ELFFile) -> tuple[Segment, ...]:
    # Loaded segments by address. No two overlap, neither at their load addresses nor at their run addresses.
    found = [
        Segment(s["p_vaddr"], s["p_paddr"], s["p_memsz"], _is_written(s), s.data())
        for s in elf.iter_segments()
        if s["p_type"] == "PT_LOAD" and s["p_memsz"]
    ]
    found.sort(key=lambda s: s.address)
    stored = sorted((s.load, s.load + len(s.data)) for s in found if s.data)
    used = [(s.address, s.end) for s in found]
    for spans in (stored, used):
        for (_, end), (first, _) in pairwise(spans):
            if first < end:
                raise UsageError(
                    f"two of its segments have bytes at {first:#x}",
                    where=str(path),
                    hint="mend the linker script",
                )
    for s in found:
        if len(s.data) > s.size or max(s.end, s.load + len(s.data)) > 1 << 32:
            raise UsageError(
                f"the segment at {s.address:#x} is larger than it says",
                where=str(path),
                hint="link the image again",
            )
    return tuple(found)


def _attributes(section: Any) -> dict[str, Any]:
    return {a.tag: a.value for s in section.subsections for ss in s.subsubsections for a in ss.attributes}


def tool(name: str) -> str:
    found = shutil.which(f"arm-none-eabi-{name}")
    if found is None:
        raise ToolMissingError(f"arm-none-eabi-{name} is not there", hint="install binutils-arm-none-eabi")
    return found


_LINE = re.compile(r"\s*([0-9a-f]+):\t(\S+)\s*(.*)")
_SPLIT = re.compile(r",(?![^\[{]*[\]}])")


def _decode(
    path: Path, architecture: str, constant: Iterable[tuple[int, bytes]]
) -> dict[int, DecodedInstruction]:
    # Every instruction that objdump finds; the conditions of IT blocks go to those within.
    known = "armv7e-m" if architecture == "armv7-m" else architecture  # objdump has no name for the former
    command = [tool("objdump"), "-d", "-z", "--no-show-raw-insn", "-m", known, str(path.resolve())]
    code, output = run_to_end(command, time_limit=_SECONDS)
    if code != 0:
        raise UsageError("objdump cannot read the image", where=str(path), hint="build the image again")
    data = tuple(constant)
    block: list[str] = []
    found = {}
    for line in output.splitlines():
        match = _LINE.match(line)
        if not match or match[2][0] == "." or "UNDEFINED" in line:
            continue
        address, name = int(match[1], 16), match[2]
        text = re.split(r"\s*[;@]|\s*<", match[3])[0].strip()
        base, _, kind = name.partition(".")
        condition = ""
        if re.fullmatch(r"it[te]{0,3}", base):
            block = [text, *(text if c == "t" else NEGATED[text] for c in base[2:])]
        elif block:
            condition = block.pop(0)
            base = base.removesuffix(condition)
        halfword = _halfword(data, address)
        following = address + (4 if halfword >> 11 in (0x1D, 0x1E, 0x1F) else 2)
        kind = "" if kind in ("n", "w") else kind
        if base.startswith("vqrshrn") and kind in ("s16", "s32"):  # binutils 2.40 prints the shift wrongly
            bits = int(kind[1:]) // 2
            text = f"{text[: text.rindex('#')]}#{bits - (halfword & (bits - 1))}"
        operands = tuple(part.strip() for part in _SPLIT.split(text)) if text else ()
        found[address] = DecodedInstruction(
            address, base, kind, operands, condition, following, f"{name} {text}"
        )
    return found


def _halfword(data: Iterable[tuple[int, bytes]], address: int) -> int:
    for first, content in data:
        if first <= address < first + len(content) - 1:
            return int.from_bytes(content[address - first : address - first + 2], "little")
    return 0


def image_bytes(image: DecodedImage, address: int, count: int) -> bytes:
    for first, content in image.constant:
        if first <= address and address + count <= first + len(content):
            return content[address - first : address - first + count]
    raise Refusal(f"no instruction at {address:#x}")
