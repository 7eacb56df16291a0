import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crtgen.base import files
from crtgen.base.errors import FlashError, UsageError
from crtgen.base.text import DeviceText
from crtgen.boards import RUNNERS, Board
from crtgen.device.flash.drives import drives_of
from crtgen.device.flash.table import TABLE, Runner
from crtgen.device.flash.vectors import read_vectors
from crtgen.firmware.builder import find_workspace, read_content

__all__ = ["GDB_SERVER", "FlashJob", "commands"]

GDB_SERVER = "localhost:3333"
"""Address at which OpenOCD and pyOCD serve gdb by default."""

# Options of west's runners that select a probe by number; taken from Zephyr's twister.
_WEST_PROBES: Mapping[str, tuple[str, ...]] = {
    "jlink": ("--dev-id", "{}"),
    "nrfjprog": ("--dev-id", "{}"),
    "nrfutil": ("--dev-id", "{}"),
    "pyocd": ("--dev-id", "{}"),
    "openocd": ("--cmd-pre-init", "adapter serial {}"),
    "stm32cubeprogrammer": ("--tool-opt=sn={}",),
    "linkserver": ("--probe={}",),
}

_THUMB = 0x01000000
_RESET = (
    "python",
    'for words in ("reset halt", "reset"):',
    "    try:",
    '        gdb.execute("monitor " + words)',
    "        break",
    "    except gdb.error:",
    "        pass",
    "end",
)
# Characters that no path may have: OpenOCD gets it in braces, J-Link in a line of a script.
_NEVER = frozenset("{}\n\r")


@dataclass(frozen=True, slots=True)
class FlashJob:
    """A job: an ELF file for a board, through the probe numbered ``serial`` (any if empty).

    ``usb`` is the probe's USB id (``0483:374b``), empty if unknown.
    """

    image: Path
    board: Board
    serial: DeviceText = field(default_factory=DeviceText)
    gdb_server: str = GDB_SERVER
    usb: str = ""

    @property
    def probe(self) -> str:
        """Serial number of the probe as an argument, empty for any. OpenOCD and others execute such words.

        Raises ``UsageError`` for text that could be more than a serial number.
        """
        return self.serial.argument("the number of the probe") if self.serial else ""

    @property
    def is_zephyr(self) -> bool:
        """True for an image that Zephyr's build made, ``build/zephyr/zephyr.elf``."""
        return self.image.parent.name == "zephyr"

    @property
    def build(self) -> Path:
        return self.image.parent.parent

    @property
    def runners(self) -> tuple[str, ...]:
        """Runners that can write the image, the preferred one first; west is only for images of Zephyr.

        If a boot loader's drive is mounted, the user has pressed the button for it, so copying the file is
        the only way.
        """
        listed = self.board.flash_with.runners if self.board.flash_with else ()
        if self.board.flash_with and any(map(drives_of, self.board.flash_with.target("uf2"))):
            listed = ("uf2", *(name for name in listed if name != "uf2"))
        return tuple(name for name in (*listed, "gdb") if name != "west" or self.is_zephyr)

    def file(self, suffix: str) -> Path:
        """Return the image in another format, which the build makes beside the ELF. Raises ``FlashError``."""
        file = self.image.with_suffix(suffix)
        if file != self.image and not file.is_file():
            hint = "build it again" + (
                "; only an image that one memory holds has one" if suffix == ".bin" else ""
            )
            raise FlashError(f"there is no {suffix} file of the image", where=str(file), hint=hint)
        if _NEVER & set(str(file)):
            hint = "move the project to a folder without braces and line ends in its path"
            raise FlashError(
                "runners would take a part of the path for a command", where=str(file), hint=hint
            )
        return file


def commands(runner: str, job: FlashJob) -> list[list[str]]:
    """Return the programs to run in order, with their arguments. Raises ``UsageError`` for a runner that the
    board does not have.
    """
    if runner not in RUNNERS:
        raise UsageError(f"unknown runner {runner}", hint=f"known: {', '.join(RUNNERS)}")
    if runner == "gdb":
        return [_gdb(job)]
    how = job.board.flash_with
    if how is None or runner not in job.runners:
        where, hint = job.board.name, f"use {' or '.join(job.runners)}"
        if how is not None and runner in how.runners:
            raise UsageError(f"{runner} writes images of Zephyr only", where=where, hint=hint)
        raise UsageError(f"{runner} does not know this board", where=where, hint=hint)
    return [_west(job)] if runner == "west" else _from_table(TABLE[runner], how.target(runner), job)


def _from_table(runner: Runner, targets: tuple[str, ...], job: FlashJob) -> list[list[str]]:
    image = job.file(runner.file)
    number = job.probe if runner.probe else ""
    values = {"python": sys.executable, "image": str(image), "serial": number}
    values["selector"] = f"{job.usb}:{number}" if job.usb else number
    if any("{address}" in word for line in runner.commands for word in line):
        values["address"] = f"{read_content(job.image).origin:#010x}"
    if runner.script:
        script = job.image.with_suffix(".script")
        script.write_text(runner.script.format(**values), encoding="utf-8")
        values["script"] = str(script)
    several = {
        "{target}": [word.format(text) for text in targets for word in runner.target],
        "{probe}": [word.format(**values) for word in runner.probe] if number else [],
    }
    return [list(_filled(line, values, several)) for line in runner.commands]


def _filled(
    line: tuple[str, ...], values: Mapping[str, str], several: Mapping[str, list[str]]
) -> Iterator[str]:
    for word in line:
        yield from several[word] if word in several else [word.format(**values)]


def _west(job: FlashJob) -> list[str]:
    probe = _WEST_PROBES.get(_west_runner(job.build), ()) if job.serial else ()
    zephyr = str(find_workspace().zephyr)
    chosen = [word.format(job.probe) for word in probe]
    return ["west", "-z", zephyr, "flash", "--skip-rebuild", "-d", str(job.build), *chosen]


def _west_runner(build: Path) -> str:
    # The runner that west takes by default, as the build says; empty if it does not.
    file = build / "zephyr" / "runners.yaml"
    if not file.is_file():
        return ""
    found = re.search(r"^flash-runner: *(\S+)", files.read_text(file, "the runners"), re.MULTILINE)
    return found[1] if found else ""


def _gdb(job: FlashJob) -> list[str]:
    # Reset, load, then start as a reset would: stack and program counter from the vector table. Servers call
    # a reset differently: the first word that one knows is taken. The server is a host with a port: gdb would
    # start a program that is named after a ``|``.
    if not re.fullmatch(r"[\w.-]+:\d{1,5}|\[[0-9a-f:]+\]:\d{1,5}", job.gdb_server, re.ASCII):
        raise UsageError(
            "the gdb server must be a host with a port", where=job.gdb_server, hint=f"as in {GDB_SERVER}"
        )
    table = read_vectors(job.image)
    lines = (
        f"target extended-remote {job.gdb_server}",
        *_RESET,
        "load",
        "compare-sections",
        f"set {{unsigned int}}0xe000ed08 = {table.address:#x}",
        f"set $sp = {table.stack:#x}",
        f"set $pc = {table.reset & ~1:#x}",
        f"set $xpsr = {_THUMB:#x}",
        "detach",
    )
    # A batch of gdb's ends with the first command that fails, unlike a list of -ex.
    script = job.image.with_suffix(".gdb")
    settings = ("set confirm off", "set tcp auto-retry off")  # a server that is not there is one at once
    script.write_text("\n".join((*settings, *lines, "")), encoding="utf-8")
    return ["gdb-multiarch", "--nx", "--batch", "-x", str(script), str(job.image)]
