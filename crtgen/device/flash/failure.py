"""Turns the output of a failed runner into an error that says what to do."""

import re

from crtgen.base.errors import FlashError
from crtgen.boards import Board

__all__ = ["explain", "says_failed"]

_UDEV = (
    "you may not use the probe: install the udev rules of its maker (or of openocd: "
    "60-openocd.rules into /etc/udev/rules.d, then `udevadm control --reload`), and plug it in again"
)

_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"[Tt]arget type \S+ not recognized|is not a recognized target|[Uu]nknown target type",
        "pyOCD does not know the chip yet",
        "pyOCD needs the chip's pack: `pyocd pack update`, then `pyocd pack install {pyocd}`",
    ),
    (
        r"Can't find target/rp2350\.cfg",
        "this OpenOCD does not know the chip",
        "it needs OpenOCD of Raspberry Pi (or one later than 0.12); or use --runner uf2",
    ),
    (
        r"drives .+ are mounted",
        "the board shows no drive, or several do",
        "hold BOOTSEL while you plug the board in, or press reset twice; "
        "mount its drive; connect one board only",
    ),
    (
        r"No DFU capable USB device|No device found on \S+|No serial ports? available|SAM-BA operation",
        "no board waits in its boot loader",
        "start the boot loader (STM32: BOOT0 high, then reset; Arduino: reset twice); "
        "bossac takes the name of its serial port as --serial: ttyACM0",
    ),
    (
        r"LIBUSB_ERROR_ACCESS|[Pp]ermission denied|[Aa]ccess denied|[Ii]nsufficient permissions|\[Errno 13\]",
        "the probe cannot be opened: permission denied",
        _UDEV,
    ),
    (
        r"[Ss]everal probes|\d+ probes were found|[Mm]ore than one DFU|"
        r"[Mm]ultiple (?:\S+ )?(?:boards|probes|debuggers|devices|emulators)|"
        r"more than one (?:\S+ )?(?:board|probe|debugger|device|emulator)",
        "several probes are connected",
        "choose one with --serial and its number; `crtgen boards --connected` lists them",
    ),
    (
        r"UNEXPECTED idcode|expected 1 of 1|IDCODE mismatch|[Uu]nknown (?:target|device)|"
        r"device .* is unknown|The chip '.*' was not found|not recognized|[Ww]rong (?:target|device|family)|"
        r"does not match|not compatible|could not find core|Could not find core",
        "the chip is not the one that was expected",
        "check --board, and that the right board is connected",
    ),
    (
        r"[Nn]o probe|[Nn]o (?:available |connected )?(?:debug )?(?:probes?|debuggers?|emulators?|device)s? "
        r"(?:found|detected|connected|available|is connected|were)|[Nn]o available debug probes|open failed|"
        r"unable to (?:find|open)|Cannot connect to (?:J-Link|probe|the probe)|There is no debugger|"
        r"Connecting to J-Link.*FAILED|[Nn]o connected boards|"
        r"Connection (?:refused|timed out)|could not connect",
        "no probe answers",
        "check the cable and the power of the board; for gdb, that the gdb server runs at --gdb-server",
    ),
)
_SHOWN = 3


_FAILED = re.compile(
    r"\*\* (?:Programming|Verify) Failed \*\*|MIS-MATCHED|^Error: .*(?:failed|verif)|Flash download failed"
    r"|Programming failed|Verification failed",
    re.MULTILINE,
)


def says_failed(output: str) -> bool:
    """Return True if a runner's output reports a failure; some runners exit with 0 nevertheless."""
    return _FAILED.search(output) is not None


def explain(runner: str, board: Board, output: str, status: int) -> FlashError:
    """Return the error for a failed runner: the cause if its output is recognised, otherwise its last
    lines.
    """
    pack = "".join(board.flash_with.target("pyocd")) if board.flash_with else ""
    for pattern, message, hint in _CAUSES:
        if re.search(pattern, output):
            advice = hint.format(pyocd=pack)
            return FlashError(f"{runner}: {message}", where=board.name, hint=advice, log=output)
    last = "\n".join(line for line in output.splitlines() if line.strip()).splitlines()[-_SHOWN:]
    told = "\n".join([f"{runner} ended with code {status}", *last])
    return FlashError(told, where=board.name, hint="the runner's whole output is above", log=output)
