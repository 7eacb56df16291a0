"""Starts an image in the right place: as a process, in a simulator, or on a real board."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crtgen.base.errors import LinkError, UsageError
from crtgen.base.text import DeviceText
from crtgen.boards import Board
from crtgen.device.fault import Symbols
from crtgen.device.local_boards import LocalBoard, choose_unit, connected_units
from crtgen.device.run.board import SerialDevice, connect_board, start_board, start_usb_board
from crtgen.device.run.device import Finished, RunningDevice
from crtgen.device.run.fvp import find_fvp, start_fvp, start_printing_fvp
from crtgen.device.run.host import run_on_host, start_host
from crtgen.device.run.printed import read_to_end
from crtgen.device.run.qemu import find_qemu, start_qemu
from crtgen.device.run.rp2040 import find_rp2040js, start_rp2040
from crtgen.device.run.rtt import start_rtt_board

__all__ = ["Device", "Site", "run_standalone", "start_device"]

Device = RunningDevice | SerialDevice


@dataclass(frozen=True, slots=True)
class Site:
    """Ways to reach a device, beyond what the board's file says.

    ``fvp`` is the program of its FVP. ``port`` is a serial port (a path, or a URL of pyserial) of a device
    that runs the image already, ``baud`` its rate if not the board's. A connected board is flashed with
    ``runner``; ``serial`` is the start of its probe's number. ``hardware_map`` is a file that lists connected
    boards. ``unit`` is the board itself, if known. ``simulate`` selects a simulator even if a board could be
    connected. ``rtt`` talks through the probe. With ``slot`` nothing is flashed: the board's firmware
    receives models in this slot.
    """

    fvp: Path | None = None
    port: str | None = None
    baud: int | None = None
    serial: str | None = None
    runner: str | None = None
    hardware_map: Path | None = None
    unit: LocalBoard | None = None
    simulate: bool = False
    rtt: bool = False
    slot: str = ""

    def check(self, board: Board) -> None:
        """Raise the error of a missing board, port or simulator, before anything is built."""
        if self.port is not None:
            if self.port.startswith("/") and not Path(self.port).exists():
                hint = "check the cable; `crtgen boards --connected` lists what is there"
                raise LinkError("there is no such port", where=self.port, hint=hint)
        elif self.slot and not board.is_real:
            raise UsageError("--push needs a running device", hint="name its line with --port")
        elif board.is_host or board.is_usb:
            return
        elif self.rtt:
            self._check_probe(board)
        elif not self.is_simulated(board):
            if self.unit is None:
                choose_unit(board, connected_units(self.hardware_map), self.serial)
        elif board.fvp is not None:
            find_fvp(board, self.fvp)
        elif board.rp2040js:
            find_rp2040js()
        else:
            find_qemu()

    def _check_probe(self, board: Board) -> None:
        # A probe need not have a serial port: whether there is one is seen when it is used.
        if self.is_simulated(board):
            hint = "leave --rtt out: the simulator has a serial port"
            raise UsageError(
                "RTT needs a debug probe, which a simulator does not have", where=board.name, hint=hint
            )

    def is_simulated(self, board: Board) -> bool:
        """Return True if the board is simulated on this computer.

        Raises ``UsageError`` if a simulator is requested and there is none.
        """
        if self.port is not None or board.is_host:
            return False
        if self.simulate and not board.simulator:
            later = board.later_qemu
            hint = f"QEMU {later.release} or later has {later.machine}" if later else "it needs the hardware"
            raise UsageError("no simulator supports this board", where=board.name, hint=hint)
        return self.simulate or not board.is_real


def start_device(image: Path, board: Board, *, counting: bool = True, site: Site | None = None) -> Device:
    """Start an image, or connect to the board that runs it; a real board is flashed first.

    If ``simulate`` is set, a simulator is used even if a board could be connected.
    """
    where = site or Site()
    if where.port is not None:
        return connect_board(board, where.port, where.baud, where.hardware_map)
    if board.is_host:
        return start_host(image)
    if where.slot:
        unit = _unit(board, where)
        return connect_board(board, unit.port, where.baud or unit.baud or None, where.hardware_map)
    if not where.is_simulated(board):
        return _start_real(image, board, where)
    if board.fvp is not None:
        return start_fvp(image, board, where.fvp)
    if board.rp2040js:
        return start_rp2040(image, board)
    return start_qemu(image, board, counting=counting)


def _start_real(image: Path, board: Board, site: Site) -> Device:
    # Write the image to the board, and connect to it.
    if site.rtt:
        return start_rtt_board(image, board, _probe(board, site), site.runner)
    if board.is_usb:
        return start_usb_board(
            image, board, serial=site.serial, runner=site.runner, hardware_map=site.hardware_map
        )
    return start_board(image, board, _unit(board, site), runner=site.runner, baud=site.baud)


def _unit(board: Board, site: Site) -> LocalBoard:
    return site.unit or choose_unit(board, connected_units(site.hardware_map), site.serial)


def _probe(board: Board, site: Site) -> LocalBoard:
    # The probe of a board: by its serial port where it has one that is seen, else by what was named.
    if site.unit is not None:
        return site.unit
    try:
        return choose_unit(board, connected_units(site.hardware_map), site.serial)
    except LinkError:
        return LocalBoard((board.name,), DeviceText(site.serial or ""), "")


def run_standalone(
    image: Path,
    board: Board,
    *,
    counting: bool = True,
    timeout: float = 60.0,
    site: Site | None = None,
    on_line: Callable[[str], None] = lambda line: None,
) -> Finished:
    """Run a standalone image to its end, which is marked by its last line.

    ``on_line`` is called with each line. Raises ``DeviceFault`` for a fault, ``LinkTimeoutError`` after
    ``timeout`` seconds.
    """
    if board.is_host:
        finished = run_on_host(image, timeout=timeout)
        for line in finished.output.splitlines():
            on_line(line)
        return finished
    with _start_printing(image, board, counting, site) as device:
        return read_to_end(device, Symbols(image), timeout, on_line)


def _start_printing(image: Path, board: Board, counting: bool, site: Site | None) -> Device:
    where = site or Site()
    if board.fvp is not None and where.is_simulated(board):
        return start_printing_fvp(image, board, where.fvp)
    return start_device(image, board, counting=counting, site=site)
