"""Chips from CMSIS packs: core, clock and memories of thousands of chips, as their makers describe them.

The format is Open-CMSIS-Pack's ``.pdsc``, which is in every ``.pack``; sub-families, devices and variants
inherit the properties of their family. A pack does not describe clocks after reset, pins or serial ports.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.base.formats.xml_text import Element, parse_xml
from crtgen.base.formats.zips import opened_zip
from crtgen.boards.board import Board, Memory, ZephyrName
from crtgen.boards.core import CORES, Core
from crtgen.boards.families import complete_text
from crtgen.boards.units import size_text

__all__ = ["board_file", "board_text", "chip_board", "installed_packs"]

_CHIP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
VARIABLE = "CMSIS_PACK_ROOT"
"""Environment variable with the folder of installed packs, as used by the Open-CMSIS-Pack tools."""

_PLACES = ("~/.cache/arm/packs", "~/.arm/Packs", "~/.local/share/cmsis-pack-manager")
_LEVELS = ("subFamily", "device", "variant")
_NAMES = {"family": "Dfamily", "subFamily": "DsubFamily", "device": "Dname", "variant": "Dvariant"}
_NO_FPU, _DOUBLE = ("", "0", "NO_FPU"), "DP_FPU"
# Letters that a printed name has at least, and by how many it may differ from a pack's.
_SHORTEST, _SUFFIX = 8, 5
_NO_MVE = ("", "0", "NO_MVE")
# The graphics MMU's window, which ST's packs list as 16 MB of memory.
_NO_MEMORY = "GFXMM"


@dataclass(frozen=True, slots=True)
class _Chip:
    # Attributes of processors and memories by name, inherited from the levels above.
    name: str = ""
    processors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    memories: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def below(self, node: Element, level: str) -> "_Chip":
        processors = {name: dict(each) for name, each in self.processors.items()}
        for each in node.findall("processor"):
            name = each.get("Pname", "")
            processors[name] = {**self.processors.get("", {}), **processors.get(name, {}), **each.attrib}
        memories = dict(self.memories)
        for each in node.findall("memory"):
            memories[each.get("name") or each.get("id") or ""] = dict(each.attrib)
        return _Chip(node.get(_NAMES[level], ""), processors, memories)


def installed_packs() -> tuple[Path, ...]:
    """Find the descriptions of installed packs in ``CMSIS_PACK_ROOT``, or else in the usual folders."""
    named = os.environ.get(VARIABLE)
    folders = [Path(named)] if named else [Path(place).expanduser() for place in _PLACES]
    return tuple(sorted(file for folder in folders for file in folder.rglob("*.pdsc")))


def chip_board(name: str, pack: Path | None = None) -> Board:
    """Make a board from a chip of a pack; this is enough for a library, since its application knows the rest.

    ``name`` is a device or variant, or the text printed on the chip, which may have fewer or more letters for
    package and temperature; a suffix ``:CM7`` selects one of several cores. Raises ``UsageError``.
    """
    wanted, _, core = name.partition(":")
    known: dict[str, None] = {}
    printed: list[tuple[_Chip, Path]] = []
    for file in (pack,) if pack is not None else installed_packs():
        for chip in _chips(file):
            if chip.name.lower() == wanted.lower():
                if not _CHIP.fullmatch(chip.name):
                    raise UsageError(
                        f"no chip can be called {chip.name!r}",
                        where=str(file),
                        hint="a name has letters, digits, '-', '_' and '.'",
                    )
                return _board(chip, core, file)
            known[chip.name] = None
            if _CHIP.fullmatch(chip.name) and _is_printed(wanted, chip.name):
                printed.append((chip, file))
    if printed:
        return _only(wanted, [(chip, _board(chip, core, file)) for chip, file in printed])
    close = get_close_matches(wanted.upper(), known, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "name its CMSIS pack: --pack FILE"
    where = str(pack) if pack is not None else f"{len(known)} chips of installed packs"
    raise UsageError(f"unknown chip {wanted}", where=where, hint=hint)


def _is_printed(wanted: str, name: str) -> bool:
    # True if one is the beginning of the other, but for few letters; an x in a pack's name is any letter.
    rest = abs(len(wanted) - len(name))
    pairs = zip(wanted.lower(), name, strict=False)
    return len(wanted) >= _SHORTEST and rest <= _SUFFIX and all(n == "x" or w == n.lower() for w, n in pairs)


def _only(wanted: str, found: list[tuple[_Chip, Board]]) -> Board:
    # The board of chips that only differ in what nobody sees from code.
    kinds = {(board.core.name, board.memories): chip.name for chip, board in found}
    if len(kinds) > 1:
        names = sorted(kinds.values())
        shown = f"{', '.join(names[:4])}{' and others' if len(names) > 4 else ''}"
        raise UsageError(
            f"several chips begin with {wanted}: their memories differ", hint=f"name one: {shown}"
        )
    return found[0][1]


def _chips(file: Path) -> Iterator[_Chip]:
    # Every device and variant of a pack.
    root = parse_xml(_description(file), file, "the CMSIS pack")
    for family in root.iterfind("./devices/family"):
        yield from _below(_Chip().below(family, "family"), family, _LEVELS)


def _below(outer: _Chip, node: Element, levels: tuple[str, ...]) -> Iterator[_Chip]:
    for depth, level in enumerate(levels, 1):
        for each in node.findall(level):
            chip = outer.below(each, level)
            if level in ("device", "variant"):
                yield chip
            yield from _below(chip, each, levels[depth:])


def _description(file: Path) -> bytes:
    content = files.read(file, "the pack")
    if file.suffix.lower() != ".pack":
        return content
    with opened_zip(file, "the CMSIS pack", data=content) as members:
        found = [name for name in members.names if name.lower().endswith(".pdsc")]
        if not found:
            raise UsageError(
                "the pack contains no .pdsc file",
                where=str(file),
                hint="download the pack again from its maker",
            )
        return members.read(found[0])


def _board(chip: _Chip, core: str, file: Path) -> Board:
    where = f"{file}: {chip.name}"
    names = [name for name in chip.processors if name or len(chip.processors) == 1]
    if core and core not in names:
        raise UsageError(f"the chip has no core {core}", where=where, hint=f"it has {', '.join(names)}")
    if not core and len(names) != 1:
        hint = f"name one: {', '.join(f'{chip.name}:{name}' for name in names)}"
        raise UsageError("the chip has several cores" if names else "it has no core", where=where, hint=hint)
    processor = chip.processors[core or names[0]]
    memories = tuple(_joined(_memories(chip, core, where)))
    flash, ram = (_largest(memories, kind) for kind in ("flash", "ram"))
    flash = flash or ram  # a chip without flash is started from RAM, where something loads the image
    if flash is None or ram is None:
        raise UsageError(
            "the pack does not describe its flash or RAM",
            where=where,
            hint="write a board file by hand: docs/new-board.md",
        )
    found = _core(processor, where)
    return Board(
        name=chip.name.lower(),
        summary=f"a board with {chip.name}",
        core=found,
        clock=_number(processor.get("Dclock", "0"), where),
        memories=memories,
        vectors=flash.name,
        code=flash.name,
        data=ram.name,
        zephyr=(ZephyrName((3, 0), chip.name.lower()),),
        source=file.name,
    )


def _largest(memories: Iterable[Memory], kind: str) -> Memory | None:
    return max((m for m in memories if m.kind == kind), key=lambda m: m.size, default=None)


def _memories(chip: _Chip, core: str, where: str) -> Iterator[Memory]:
    taken: set[str] = set()
    for name, each in _without_aliases(chip.memories).items():
        if (core and each.get("Pname", core) != core) or _NO_MEMORY in name.upper():
            continue
        access = each.get("access", "rwx" if "RAM" in name.upper() else "rx")
        kind = "ram" if "w" in access else "flash"
        origin, size = (_number(each.get(key, "0"), where) for key in ("start", "size"))
        if size and origin + size <= 1 << 32:
            plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
            plain = f"{plain or kind}_{origin:08x}" if plain in ("", *taken) else plain
            taken.add(plain)
            yield Memory(plain, kind, origin, size)


def _without_aliases(memories: Mapping[str, Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    # A chip with TrustZone has each memory at two addresses; without the second, names need no _NS or _S.
    def is_alias(each: Mapping[str, str]) -> bool:
        other = memories.get(each["alias"]) if "alias" in each else None
        return other is not None and "alias" not in other

    kept = {name: each for name, each in memories.items() if not is_alias(each)}
    if len(kept) == len(memories):
        return kept
    plain = {name: re.sub(r"_N?S$", "", name) for name in kept}
    counts = Counter(plain.values())
    return {plain[name] if counts[plain[name]] == 1 else name: each for name, each in kept.items()}


def _joined(memories: Iterable[Memory]) -> Iterator[Memory]:
    # Banks of one kind that follow each other are one memory, which has the name of the first.
    last: Memory | None = None
    for each in sorted(memories, key=lambda each: each.origin):
        if last is not None and last.kind == each.kind and last.origin + last.size == each.origin:
            last = replace(last, size=last.size + each.size)
            continue
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last


def _number(text: str, where: str) -> int:
    try:
        return int(text, 0)
    except ValueError as error:
        raise UsageError(
            f'"{text}" is no number',
            where=where,
            hint="the pack's .pdsc file is damaged, or newer than this reader: report it",
        ) from error


def _core(processor: Mapping[str, str], where: str) -> Core:
    # The core with what the chip has of it.
    said = processor.get("Dcore", "")
    name = said.lower().replace("+", "plus")
    fpu, dsp, mve = (processor.get(key, "") for key in ("Dfpu", "Ddsp", "Dmve"))
    lacks = []
    if name == "cortex-m33" and dsp == "NO_DSP":
        lacks.append("nodsp")
    if name in ("cortex-m4", "cortex-m33", "cortex-m7") and fpu in _NO_FPU:
        lacks.append("nofp")
    elif name == "cortex-m7" and fpu != _DOUBLE:
        lacks.append("nofp.dp")
    if name in ("cortex-m52", "cortex-m55", "cortex-m85") and mve in _NO_MVE:
        lacks.append("nomve")
    found = CORES.get("+".join((name, *lacks)))
    if found is None:
        without = f" without {' and '.join(lacks)}" if lacks else ""
        raise UsageError(
            f"crtgen makes no code for a {said or 'core of no name'}{without}",
            where=where,
            hint="docs/boards.md lists the cores",
        )
    return found


def board_file(chip: Board, pins: str = "") -> str:
    """Write a whole board file for bare metal; ``pins`` are those of the UART, such as ``PA9,PA10``.

    Raises ``UsageError`` if the chip's family has no table of clocks and pins.
    """
    return complete_text(chip, board_text(chip), pins)


def _quoted(text: str) -> str:
    # A string of TOML, whatever a maker or a file is called.
    shown = "".join(each if each.isprintable() else "?" for each in text)
    return json.dumps(shown, ensure_ascii=False)


def board_text(board: Board) -> str:
    """Return the part of a board file that the pack describes; a serial port and a clock must be added."""
    lines = [f"summary = {_quoted(board.summary)}", f'core = "{board.core.name}"']
    lines += [f'clock = "{board.clock // 1000} kHz"'] if board.clock else []
    lines += [f"source = {_quoted(board.source)}", "start = [", "]"]
    for memory in board.memories:
        lines += ["", f"[memory.{memory.name}]", f'kind = "{memory.kind}"']
        lines += [f"origin = {memory.origin:#010x}", f'size = "{size_text(memory.size)}"']
    lines += ["", "[layout]"]
    lines += [f'{part} = "{getattr(board, part)}"' for part in ("vectors", "code", "data")]
    lines += ["", "# From the datasheet and the board: see boards/README.md", "# [uart]", "# [timer]"]
    lines += ["# [flash]", "# [serial]"]
    return "\n".join(lines) + "\n"
