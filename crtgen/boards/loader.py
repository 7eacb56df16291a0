"""Reads board files. This module checks each key by itself; ``checks`` checks how keys agree.

Board files are data and need not be trusted: the words that they pass to programs on this computer (QEMU, an
FVP, a runner, west) can only name a board.
"""

import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from crtgen.base.toml import TomlTable, load_toml, text, yes_or_no
from crtgen.base.toml import table as table_of
from crtgen.boards.board import (
    FVP_BOARDS,
    RUNNERS,
    WATCHDOGS,
    Board,
    BoardNpu,
    Flash,
    FlashReads,
    Fvp,
    Memory,
    Qemu,
    Serial,
    Timer,
    Uart,
    Watchdog,
    ZephyrName,
)
from crtgen.boards.checks import check_board
from crtgen.boards.chip import BOOTS, SECOND_CORES
from crtgen.boards.core import ALIASES, CORES, HOST, find_core
from crtgen.boards.energy import Energy
from crtgen.boards.slots import FLASH_DRIVERS, Slot, Slots
from crtgen.boards.steps import parse_errata, parse_step
from crtgen.boards.uart import UARTS
from crtgen.boards.units import parse_frequency, parse_size
from crtgen.boards.values import address, each, one_of, optional, units

__all__ = ["installed_qemu", "load_board", "parse_slots"]

_SECONDS = 20
"""Limit of a program that says its version."""

# QEMU options that a board may set, and the pattern of their values.
_QEMU_ARGS = {
    "-cpu": r"[a-z0-9-]+(,[a-z0-9-]+=(on|off|\d+))*",
    "-global": r"[\w-]+\.[\w-]+=(on|off|\d+|0x[0-9a-f]+)",
    "-m": r"\d+[KMG]?",
    "-seed": r"\d+",
    "-serial": "null",
    "-smp": r"\d+",
}


def load_board(file: Path, name: str = "") -> Board:
    """Load a board, named ``name`` or after its file. Raises ``UsageError`` naming file and key."""
    board = replace(_board(name or file.stem, load_toml(file, "the board")), file=file)
    check_board(board, str(file))
    return board


def _board(name: str, table: TomlTable) -> Board:
    memories = tuple(_memory(n, t) for n, t in table.sections("memory"))
    layout = table.section("layout")
    places = {place: _place(place, layout, memories) for place in ("vectors", "code", "data")}
    if layout is not None:
        layout.finish()
    timer = optional(table.section("timer"), _timer)
    qemu = optional(table.section("qemu"), _qemu)
    has_it = qemu is not None and (not qemu.since or installed_qemu() >= qemu.since)
    board = Board(
        name=name,
        summary=table.get("summary", text),
        core=table.get("core", _core),
        clock=table.get("clock", units(parse_frequency), timer.clock if timer else 0),
        memories=memories,
        vectors=places["vectors"],
        code=places["code"],
        data=places["data"],
        uart=optional(table.section("uart"), _uart),
        timer=timer,
        start=tuple(parse_step(t) for t in table.tables("start")),
        errata=optional(table.section("errata"), parse_errata),
        boot=table.get("boot", one_of("boot header", *BOOTS), ""),
        second_core=table.get("second_core", one_of("second core", *SECOND_CORES), ""),
        watchdog=optional(table.section("watchdog"), _watchdog),
        npu=optional(table.section("npu"), _npu),
        qemu=qemu if has_it else None,
        later_qemu=None if has_it else qemu,
        fvp=optional(table.section("fvp"), _fvp),
        rp2040js=optional(table.section("rp2040js"), lambda table: True) or False,
        zephyr=table.get("zephyr", _zephyr, ()),
        flash_with=optional(table.section("flash"), _flash),
        serial=optional(table.section("serial"), _serial),
        energy=optional(table.section("energy"), _energy),
        slots=parse_slots(table),
        source=table.get("source", text, ""),
    )
    table.finish()
    return board


def _place(place: str, layout: TomlTable | None, memories: tuple[Memory, ...]) -> str:
    # The memory of a part of the image: what the layout says, else the first one of the right kind.
    kind = "ram" if place == "data" else "flash"
    default = next((m.name for m in memories if m.kind == kind), "")
    if layout is None:
        return default
    return layout.get(place, one_of("memory", *(m.name for m in memories)), default)


def _memory(name: str, table: TomlTable) -> Memory:
    memory = Memory(
        name=name,
        kind=table.get("kind", one_of("kind", "flash", "ram")),
        origin=table.get("origin", address),
        size=table.get("size", units(parse_size)),
        reads=optional(table.section("reads"), _reads),
        reached_by=table.get("reached_by", each(text), ()),
    )
    table.finish()
    return memory


def _reads(table: TomlTable) -> FlashReads:
    return FlashReads(
        wait_states=table.get("wait_states", address),
        width=table.get("width", _width),
        code_cache=table.get("code_cache", units(parse_size), 0),
        data_cache=table.get("data_cache", units(parse_size), 0),
        ahead=table.get("ahead", yes_or_no, False),
        write_back=table.get("write_back", address, 0),
    )


def _uart(table: TomlTable) -> Uart:
    return Uart(
        kind=table.get("kind", one_of("UART", *UARTS)),
        base=table.get("base", address),
        clock=table.get("clock", units(parse_frequency)),
        irq=table.get("irq", address),
        baud=table.get("baud", address, 115200),
        tx=table.get("tx", address, None),
        rx=table.get("rx", address, None),
    )


def _timer(table: TomlTable) -> Timer:
    kind = table.get("kind", one_of("timer", "systick", "nrf_timer"))
    clock = table.get("clock", units(parse_frequency))
    if kind == "systick":
        return Timer(kind, clock)
    return Timer(kind, clock, table.get("base", address), table.get("irq", address))


def _watchdog(table: TomlTable) -> Watchdog:
    return Watchdog(
        kind=table.get("kind", one_of("watchdog", *WATCHDOGS)),
        base=table.get("base", address),
        clock=table.get("clock", units(parse_frequency)),
        seconds=table.get("seconds", address, 60),
    )


def _npu(table: TomlTable) -> BoardNpu:
    return BoardNpu(
        config=table.get("config", _npu_name),
        base=table.get("base", address),
        irq=table.get("irq", address),
        seconds=table.get("seconds", address, 10),
        reaches=table.get("reaches", each(text), ()),
    )


def _npu_name(value: Any) -> str:
    if not re.fullmatch(r"ethos-u[56]5-\d{2,3}", text(value), re.ASCII):
        raise ValueError(f'"{value}" is no name of an NPU: write "ethos-u55-128", for example')
    return str(value)


def _qemu(table: TomlTable) -> Qemu:
    return Qemu(
        machine=table.get("machine", _word),
        args=table.get("args", _qemu_args, ()),
        memory=optional(table.section("memory"), _shared),
        since=table.get("since", partial(_release, "QEMU", "9.0"), ()),
        counts=table.get("counts", yes_or_no, False),
    )


@cache
def installed_qemu() -> tuple[int, ...]:
    """Return the release of QEMU on this computer; () if there is none."""
    program = shutil.which("qemu-system-arm")
    if program is None:
        return ()
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_SECONDS).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.search(r"version (\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else ()


def _qemu_args(value: Any) -> tuple[str, ...]:
    # Options that describe the machine; those that open files or lines are for nobody's file to say.
    words = each(text)(value)
    for option, given in zip_longest(words[::2], words[1::2], fillvalue=""):
        if option not in _QEMU_ARGS:
            raise ValueError(f"{option} is not allowed here: {', '.join(_QEMU_ARGS)} are, each with a value")
        if not re.fullmatch(_QEMU_ARGS[option], given, re.ASCII):
            raise ValueError(f'"{given}" is no value of {option}')
    return words


def _shared(table: TomlTable) -> Memory:
    origin, size = table.get("origin", address), table.get("size", units(parse_size))
    return Memory("mailbox", "ram", origin, size)


def _fvp(table: TomlTable) -> Fvp:
    kind = one_of("board of an FVP", *FVP_BOARDS)
    return Fvp(table.get("program", _fvp_name), table.get("board", kind, FVP_BOARDS[0]))


def _fvp_name(value: Any) -> str:
    if not re.fullmatch(r"FVP_[\w-]+", text(value), re.ASCII):
        raise ValueError(
            f'"{value}" is not the name of an FVP: say where the program is by --fvp-path or CRTGEN_FVP'
        )
    return str(value)


def _zephyr(value: Any) -> tuple[ZephyrName, ...]:
    # Names by the release that introduced them, the oldest first.
    names = (
        ZephyrName(_release("Zephyr", "3.7", since), _word(name)) for since, name in table_of(value).items()
    )
    return tuple(sorted(names, key=lambda entry: entry.since))


def _release(program: str, example: str, value: Any) -> tuple[int, ...]:
    if not re.fullmatch(r"\d{1,4}\.\d{1,4}", text(value), re.ASCII):
        raise ValueError(f'"{value}" is not a release of {program}: write "{example}"')
    return tuple(map(int, value.split(".")))


def _flash(table: TomlTable) -> Flash:
    named = [(name, table.get(name, _TARGETS.get(name, _alone), ())) for name in RUNNERS if RUNNERS[name]]
    return Flash(
        runners=table.get("runners", each(one_of("runner", *RUNNERS))),
        targets=tuple((runner, words) for runner, words in named if words),
        uf2_family=table.get("uf2_family", address, 0),
    )


def _alone(value: Any) -> tuple[str, ...]:
    return (_word(value),)


def _one_or_several(value: Any) -> tuple[str, ...]:
    return each(_word)(value) if isinstance(value, list) else _alone(value)


def _script(value: Any) -> str:
    # A configuration file that is part of OpenOCD: others are programs, in Tcl.
    if not re.fullmatch(r"(board|interface|target)/([\w+-]+/)*[\w.+-]+\.cfg", text(value), re.ASCII):
        hint = 'expected one of OpenOCD\'s own, as "target/stm32l4x.cfg"; your own go into ~/.config/openocd'
        raise ValueError(f'"{value}": {hint}')
    return str(value)


_TARGETS = {"openocd": each(_script), "uf2": _one_or_several}


def _word(value: Any) -> str:
    # A name that a program is told: no option, no path that leads out, nothing that separates words.
    name = text(value)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:/@+-]*", name) or ".." in name:
        raise ValueError(f'"{name}" is no name: letters, digits and _ . : / @ + - are allowed')
    return name


def _serial(table: TomlTable) -> Serial:
    return Serial(baud=table.get("baud", address, 115200), usb=table.get("usb", each(_usb_id), ()))


def parse_slots(table: TomlTable) -> Slots | None:
    about = table.section("slots")
    places = tuple(_slot(name, section) for name, section in table.sections("slot"))
    if about is None:
        if places:
            raise table.error("slots", "the section is missing: it says how slots are written")
        return None
    slots = Slots(
        driver=about.get("driver", one_of("flash driver", *FLASH_DRIVERS)),
        places=places,
        work=about.get("work", address),
        work_size=about.get("work_size", units(parse_size)),
        log=about.get("log", address, 0),
        log_size=about.get("log_size", units(parse_size), 0),
        tries=about.get("tries", address, 3),
    )
    about.finish()
    return slots


def _slot(name: str, table: TomlTable) -> Slot:
    slot = Slot(
        name, table.get("memory", _word), table.get("origin", address), table.get("size", units(parse_size))
    )
    table.finish()
    return slot


def _energy(table: TomlTable) -> Energy:
    return Energy(
        pj_per_cycle=table.get("pj_per_cycle", _positive),
        sleep_uw=table.get("sleep_uw", _positive, None),
        source=table.get("source", text),
    )


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ValueError("expected a number above 0")
    return float(value)


def _usb_id(value: Any) -> str:
    usb = text(value)
    if not re.fullmatch("[0-9a-f]{4}:[0-9a-f]{4}", usb):
        raise ValueError(f'"{usb}" is not a USB id: write vendor and product as "0483:374b"')
    return usb


def _width(value: Any) -> int:
    size = parse_size(text(value))
    if size % 4 or not size:
        raise ValueError("expected a multiple of 4 bytes")
    return size


def _core(value: Any) -> Any:
    name = one_of("core", *CORES, *ALIASES, HOST.name)(value)
    return find_core(name)
