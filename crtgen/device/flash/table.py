"""The runners as data: command lines, files they read, arguments that select the probe, how to install them.

The command lines are from each program's manual; for programs that Zephyr's west knows, they are as west's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from crtgen.base.installing import how_to_install

__all__ = ["INSTALL", "TABLE", "Runner"]


@dataclass(frozen=True, slots=True)
class Runner:
    """Command lines of a program that writes an image; ``commands`` are run in turn.

    Words in them are templates: ``{image}`` is the image with the suffix ``file``, ``{address}`` its first
    address, ``{python}`` the Python that runs crtgen, ``{script}`` a file with the text ``script``. The word
    ``{target}`` expands to the words ``target``, once for each text that tells the runner which board it is.
    If a probe is named, the word ``{probe}`` expands to the words ``probe``, which name it by its serial
    number ``{serial}`` or by ``{selector}``, which puts its USB id before the number. A runner whose output
    contains ``done`` has written the image, whatever its exit code.
    """

    file: str
    commands: tuple[tuple[str, ...], ...]
    probe: tuple[str, ...]
    target: tuple[str, ...] = ("{}",)
    script: str = ""
    done: str = ""


TABLE: Mapping[str, Runner] = {
    # pyOCD as a library, in a process of its own that can be ended.
    "pyocd": Runner(
        ".elf",
        (
            (
                "{python}",
                "-P",
                "-m",
                "crtgen.device.flash.with_pyocd",
                "--target",
                "{target}",
                "{probe}",
                "{image}",
            ),
        ),
        ("--probe", "{serial}"),
    ),
    "openocd": Runner(
        ".elf",
        (("openocd", "{target}", "{probe}", "-c", "program {{{image}}} verify reset exit"),),
        ("-c", "adapter serial {serial}"),
        target=("-f", "{}"),
    ),
    "jlink": Runner(
        ".hex",
        (
            (
                *("JLinkExe", "-nogui", "1", "-if", "swd", "-speed", "4000", "-device", "{target}"),
                *("-autoconnect", "1", "{probe}", "-ExitOnError", "1", "-CommandFile", "{script}"),
            ),
        ),
        ("-SelectEmuBySN", "{serial}"),
        script="r\nh\nloadfile {image}\nr\ng\nq\n",
    ),
    "nrfjprog": Runner(
        ".hex",
        (
            (
                *("nrfjprog", "--family", "{target}", "--program", "{image}"),
                *("--sectorerase", "--verify", "--reset", "{probe}"),
            ),
        ),
        ("--snr", "{serial}"),
    ),
    "nrfutil": Runner(
        ".hex",
        (
            (
                *("nrfutil", "device", "program", "--firmware", "{image}", "--options"),
                "chip_erase_mode=ERASE_RANGES_TOUCHED_BY_FIRMWARE,verify=VERIFY_READ,reset=RESET_SYSTEM",
                "{probe}",
            ),
        ),
        ("--serial-number", "{serial}"),
    ),
    "stm32cubeprogrammer": Runner(
        ".hex",
        (
            (
                *("STM32_Programmer_CLI", "--connect", "port=swd", "reset=HWrst", "{probe}"),
                *("--download", "{image}", "--verify", "--start"),
            ),
        ),
        ("sn={serial}",),
    ),
    "linkserver": Runner(
        ".elf",
        (("LinkServer", "flash", "{probe}", "{target}", "load", "{image}"),),
        ("--probe", "{serial}"),
    ),
    "probe-rs": Runner(
        ".elf",
        (
            ("probe-rs", "download", "--chip", "{target}", "{probe}", "--verify", "{image}"),
            ("probe-rs", "reset", "--chip", "{target}", "{probe}"),
        ),
        ("--probe", "{selector}"),
    ),
    "bossac": Runner(
        ".bin",
        (("bossac", "{probe}", "-o", "{target}", "-e", "-w", "-v", "-b", "{image}", "-R"),),
        ("--port={serial}",),
    ),
    # The chip leaves its boot loader before dfu-util asks how it went, which some versions call an error.
    "dfu-util": Runner(
        ".bin",
        (("dfu-util", "-d", "{target}", "{probe}", "-a", "0", "-s", "{address}:leave", "-D", "{image}"),),
        ("-S", "{serial}"),
        done="File downloaded successfully",
    ),
    # In a process of its own that can be ended: the drive may go while the file is copied.
    "uf2": Runner(
        ".uf2",
        (("{python}", "-P", "-m", "crtgen.device.flash.with_uf2", "{target}", "{image}"),),
        (),
        target=("--board-id", "{}"),
    ),
    # To the boot loader over USB, whether or not its drive is mounted.
    "picotool": Runner(
        ".uf2", (("picotool", "load", "-x", "{probe}", "{image}"),), ("--ser", "{serial}"), target=()
    ),
}
"""Runners by name, except west and gdb, which need code."""

INSTALL: Mapping[str, str] = {
    "west": "pip install west",
    "pyocd": "pip install pyocd",
    "openocd": how_to_install("openocd"),
    "JLinkExe": "install SEGGER's J-Link Software",
    "nrfjprog": "install Nordic's nRF Command Line Tools",
    "nrfutil": "install Nordic's nRF Util, then `nrfutil install device`",
    "STM32_Programmer_CLI": "install ST's STM32CubeProgrammer, and put its bin folder into the PATH",
    "LinkServer": "install NXP's LinkServer, and put its folder into the PATH",
    "probe-rs": "install probe-rs: https://probe.rs",
    "picotool": "install picotool: https://github.com/raspberrypi/picotool",
    "bossac": "install BOSSA; Arduino's nRF52840 needs the bossac that comes with its core",
    "dfu-util": how_to_install("dfu-util"),
    "gdb-multiarch": how_to_install("gdb-multiarch"),
}
"""Command that installs each program."""
