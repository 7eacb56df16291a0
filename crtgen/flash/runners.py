"""The command line of each runner."""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from crtgen import files
from crtgen.boards import Board, Flash
from crtgen.build import find_workspace
from crtgen.errors import FlashError, UsageError
from crtgen.flash.vectors import read_vectors
from crtgen.installing import how_to_install

__all__ = ["GDB_SERVER", "INSTALL", "Job", "command"]

GDB_SERVER = "localhost:3333"
"""Where OpenOCD and pyOCD serve gdb unless they are told otherwise."""

INSTALL = {
    "west": "pip install west",
    "pyocd": "pip install pyocd",
    "openocd": how_to_install("openocd"),
    "JLinkExe": "install SEGGER's J-Link Software",
    "nrfjprog": "install Nordic's nRF Command Line Tools",
    "gdb-multiarch": how_to_install("gdb-multiarch"),
}
"""By program."""

_WEST_PROBES: Mapping[str, tuple[str, ...]] = {
    "jlink": ("--dev-id", "{}"),
    "nrfjprog": ("--dev-id", "{}"),
    "nrfutil": ("--dev-id", "{}"),
    "pyocd": ("--dev-id", "{}"),
    "openocd": ("--cmd-pre-init", "adapter serial {}"),
    "stm32cubeprogrammer": ("--tool-opt=sn={}",),
    "linkserver": ("--probe={}",),
}
"""How west's runners are told the number of the probe, as Zephyr's twister does it; the others take none."""

_SCRIPT = "r\nh\nloadfile {image}\nr\ng\nq\n"
_THUMB = 0x01000000


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be written: the ELF, for a board, through the probe numbered ``serial`` (any if empty)."""

    image: Path
    board: Board
    serial: str = ""
    gdb_server: str = GDB_SERVER

    @property
    def build(self) -> Path:
        """Zephyr's build directory."""
        return self.image.parent.parent

    @property
    def hex(self) -> Path:
        """The image as Intel hex, which the build makes beside the ELF. Raises ``FlashError``."""
        return self._beside(".hex", "Intel hex")

    @property
    def uf2(self) -> Path:
        """The image as UF2, which the build makes beside the ELF. Raises ``FlashError``."""
        return self._beside(".uf2", "UF2")

    def _beside(self, suffix: str, kind: str) -> Path:
        file = self.image.with_suffix(suffix)
        if not file.is_file():
            raise FlashError(f"there is no {kind} file of the image", where=str(file), hint="build it again")
        return file


def command(runner: str, job: Job) -> list[str]:
    """The program and its arguments. Raises ``UsageError`` for a runner that the board has not."""
    if runner not in _COMMANDS:
        raise UsageError(f"unknown runner {runner}", hint=f"known: {', '.join(_COMMANDS)}")
    if runner == "gdb":
        return _gdb(job)
    how = job.board.flash_with
    if how is None or runner not in how.runners:
        names = (*(how.runners if how else ()), "gdb")
        raise UsageError(
            f"{runner} does not know this board", where=job.board.name, hint=f"use {' or '.join(names)}"
        )
    return _COMMANDS[runner](job, how)


def _west(job: Job, how: Flash) -> list[str]:
    probe = _WEST_PROBES.get(_west_runner(job.build), ()) if job.serial else ()
    zephyr = str(find_workspace().zephyr)
    chosen = [word.format(job.serial) for word in probe]
    return ["west", "-z", zephyr, "flash", "--skip-rebuild", "-d", str(job.build), *chosen]


def _west_runner(build: Path) -> str:
    """The runner that west takes by default, as the build says; empty if it does not."""
    file = build / "zephyr" / "runners.yaml"
    if not file.is_file():
        return ""
    found = re.search(r"^flash-runner: *(\S+)", files.read_text(file, "the runners"), re.MULTILINE)
    return found[1] if found else ""


def _pyocd(job: Job, how: Flash) -> list[str]:
    """pyOCD as a library, in a process of its own that can be ended."""
    probe = ["--probe", job.serial] if job.serial else []
    program = [sys.executable, "-m", "crtgen.flash.with_pyocd"]
    return [*program, "--target", how.pyocd, *probe, str(job.image)]


def _openocd(job: Job, how: Flash) -> list[str]:
    files = [word for file in how.openocd for word in ("-f", file)]
    probe = ["-c", f"adapter serial {job.serial}"] if job.serial else []
    return ["openocd", *files, *probe, "-c", f"program {{{job.image}}} verify reset exit"]


def _jlink(job: Job, how: Flash) -> list[str]:
    script = job.image.with_suffix(".jlink")
    script.write_text(_SCRIPT.format(image=job.hex), encoding="utf-8")
    probe = ["-SelectEmuBySN", job.serial] if job.serial else []
    options = ["-nogui", "1", "-if", "swd", "-speed", "4000", "-device", how.jlink, "-autoconnect", "1"]
    return ["JLinkExe", *options, *probe, "-ExitOnError", "1", "-CommandFile", str(script)]


def _uf2(job: Job, how: Flash) -> list[str]:
    """In a process of its own that can be ended: the drive may go while the file is copied."""
    return [sys.executable, "-m", "crtgen.flash.with_uf2", "--board-id", how.uf2, str(job.uf2)]


def _nrfjprog(job: Job, how: Flash) -> list[str]:
    probe = ["--snr", job.serial] if job.serial else []
    options = ["--family", how.nrfjprog, "--program", str(job.hex), "--sectorerase", "--verify", "--reset"]
    return ["nrfjprog", *options, *probe]


def _gdb(job: Job) -> list[str]:
    """Load, then start as a reset would: stack and program counter from the vector table."""
    table = read_vectors(job.image)
    lines = (
        f"target extended-remote {job.gdb_server}",
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
    script.write_text("set confirm off\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return ["gdb-multiarch", "--nx", "--batch", "-x", str(script), str(job.image)]


_COMMANDS: Mapping[str, Callable[[Job, Flash], list[str]]] = {
    "west": _west,
    "pyocd": _pyocd,
    "openocd": _openocd,
    "jlink": _jlink,
    "nrfjprog": _nrfjprog,
    "uf2": _uf2,
    "gdb": lambda job, _: _gdb(job),
}
