"""A connected board: found by its USB ids, or named by a hardware map in the format of Zephyr's twister."""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from serial.tools import list_ports

from crtgen.base import files, trust
from crtgen.base.errors import LinkError, UsageError
from crtgen.base.formats.yaml_text import parse_yaml
from crtgen.base.text import DeviceText
from crtgen.boards import Board, all_boards, find_board

__all__ = ["LocalBoard", "asks_of_map", "choose_unit", "connected_units", "is_connected", "read_hardware_map"]

# A serial port of this computer; anything else may be a URL of pyserial's, a file or a socket.
_PORT = re.compile(r"/dev/[\w./:+-]+|COM\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class LocalBoard:
    """A board on the bench.

    ``boards`` are its possible names, since several kinds of board share a USB id. ``serial`` is the serial
    number of its probe and ``port`` its serial port; each is empty if unknown. ``ports`` are all ports of a
    probe with several, if the right one is unknown. A hardware map gives the rest, which is otherwise empty
    or 0: ``gdb_server`` is the address of the board's debugger, ``reset`` a command that power-cycles it.
    """

    boards: tuple[str, ...]
    serial: DeviceText
    port: str
    usb: str = ""
    description: DeviceText = field(default_factory=DeviceText)
    runner: str = ""
    baud: int = 0
    gdb_server: str = ""
    reset: str = ""
    ports: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return str(self.serial) or self.port

    def to_dict(self) -> dict[str, Any]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {n: str(value) if isinstance(value, DeviceText) else value for n, value in values.items()}


def connected_units(hardware_map: Path | None = None) -> tuple[LocalBoard, ...]:
    """Return the boards of the hardware map, then every other serial port on USB."""
    mapped = read_hardware_map(hardware_map) if hardware_map else ()
    ports, serials = {unit.port for unit in mapped}, {unit.serial for unit in mapped if unit.serial}
    found = (unit for unit in _on_usb() if unit.port not in ports and unit.serial not in serials)
    return (*mapped, *found)


def is_connected(board: Board, hardware_map: Path | None = None) -> bool:
    return any(board.name in unit.boards for unit in connected_units(hardware_map))


def choose_unit(board: Board, units: tuple[LocalBoard, ...], serial: str | None = None) -> LocalBoard:
    """Return the only connected unit that can be such a board, and whose probe's serial number starts with
    ``serial``.

    Raises ``UsageError`` if there are several, ``LinkError`` if there is none.
    """
    fitting = [unit for unit in units if board.name in unit.boards]
    chosen = [unit for unit in fitting if unit.serial.startswith(serial or "")]
    if len({unit.key for unit in chosen}) == 1:
        ports = tuple(dict.fromkeys(unit.port for unit in chosen))
        return chosen[0] if len(ports) == 1 else replace(chosen[0], port="", ports=ports)
    if chosen:
        numbers = ", ".join(unit.key for unit in chosen)
        hint = "choose one with --serial and the first characters of its number"
        raise UsageError(f"several such boards are connected: {numbers}", where=board.name, hint=hint)
    if fitting:
        numbers = ", ".join(unit.key for unit in fitting)
        raise UsageError(
            f"no probe's number starts with {serial}", where=board.name, hint=f"there is {numbers}"
        )
    hint = "check the cable; `crtgen boards --connected` lists what is there"
    hint += f"; in its simulator: --simulate ({board.simulator})" if board.simulator else ""
    raise LinkError("no such board is connected", where=board.name, hint=hint)


def read_hardware_map(file: Path) -> tuple[LocalBoard, ...]:
    """Read the connected boards of a hardware map.

    Raises ``UsageError`` that names file and entry, also if the map needs consent that was not given: see
    ``asks_of_map``.
    """
    units, content = _read(file)
    trust.require(file, content, _asks(units))
    return units


def asks_of_map(file: Path) -> tuple[tuple[str, ...], str]:
    """Return the permissions that a hardware map needs, apart from naming boards at serial ports, and its
    digest.
    """
    units, content = _read(file)
    return _asks(units), content


def _read(file: Path) -> tuple[tuple[LocalBoard, ...], str]:
    # The boards of a map, and the digest of its content.
    text = files.read_text(file, "the hardware map")
    entries = parse_yaml(text, file, "the hardware map")
    if not isinstance(entries, list):
        raise UsageError(
            "a hardware map is a list of boards", where=str(file), hint="docs/flashing.md has an example"
        )
    units = (_unit(entry, f"{file}: entry {number}") for number, entry in enumerate(entries, 1))
    return tuple(unit for unit in units if unit is not None), trust.digest(text.encode())


def _asks(units: Iterable[LocalBoard]) -> tuple[str, ...]:
    asks = []
    for unit in units:
        asks += [f"runs `{unit.reset}`"] if unit.reset else []
        asks += [f"connects to {unit.gdb_server}"] if unit.gdb_server else []
        asks += [f"opens the line {unit.port}"] if unit.port and not _PORT.fullmatch(unit.port) else []
    return tuple(dict.fromkeys(asks))


def _unit(entry: Any, where: str) -> LocalBoard | None:
    if not isinstance(entry, dict):
        raise UsageError(
            "an entry is a table with platform, id and serial",
            where=where,
            hint="docs/flashing.md has an example",
        )
    if not entry.get("connected", False):
        return None
    try:
        board = find_board(str(entry.get("platform")))
    except UsageError as error:
        raise UsageError(f"platform: {error.message}", where=where, hint=error.hint) from error
    baud = entry.get("baud", 0)
    if not isinstance(baud, int):
        raise UsageError("baud: expected an integer", where=where, hint="for example baud: 115200")
    return LocalBoard(
        boards=(board.name,),
        serial=DeviceText(str(entry.get("id") or "")),
        port=str(entry.get("serial") or ""),
        description=DeviceText(str(entry.get("product") or "")),
        runner=str(entry.get("runner") or ""),
        baud=baud,
        gdb_server=str(entry.get("gdb_server") or ""),
        reset=_command(entry.get("reset", ""), where),
    )


def _command(value: Any, where: str) -> str:
    try:
        if isinstance(value, str) and (not value or shlex.split(value)):
            return value
        reason = "expected the words of a command"
    except ValueError as error:
        reason = str(error)
    raise UsageError(
        f"reset: {reason}", where=where, hint="quote it as a shell would, for example: openocd -f board.cfg"
    )


def _natural(text: str) -> list[tuple[int, str]]:
    # Sort key: ttyACM2 before ttyACM10.
    return [(int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", text)]


def _on_usb() -> list[LocalBoard]:
    units = []
    for port in sorted(list_ports.comports(), key=lambda port: _natural(str(port.device))):
        if port.vid is None:
            continue
        usb = f"{port.vid:04x}:{port.pid:04x}"
        boards = tuple(b.name for b in all_boards() if b.serial is not None and usb in b.serial.usb)
        number, description = DeviceText(port.serial_number or ""), DeviceText(port.description or "")
        units.append(LocalBoard(boards, number, port.device, usb, description))
    return units
