"""The command that installs a program with this system's package manager."""

import shutil
import sys
from collections.abc import Mapping

__all__ = ["how_to_install"]

_COMMANDS: Mapping[str, Mapping[str, str]] = {
    "arm-none-eabi-gcc": {
        "apt": "apt install gcc-arm-none-eabi libnewlib-arm-none-eabi",
        "dnf": "dnf install arm-none-eabi-gcc-cs arm-none-eabi-newlib",
        "brew": "brew install --cask gcc-arm-embedded",
        "winget": "winget install Arm.GnuArmEmbeddedToolchain",
    },
    "qemu-system-arm": {
        "apt": "apt install qemu-system-arm",
        "dnf": "dnf install qemu-system-arm-core",
        "brew": "brew install qemu",
        "winget": "winget install SoftwareFreedomConservancy.QEMU",
    },
    "cc": {
        "apt": "apt install gcc libc6-dev",
        "dnf": "dnf install gcc",
        "brew": "xcode-select --install",
        "winget": "pip install ziglang, and use --toolchain zig",
    },
    "node": {
        "apt": "apt install nodejs npm",
        "dnf": "dnf install nodejs npm",
        "brew": "brew install node",
        "winget": "winget install OpenJS.NodeJS",
    },
    "openocd": {
        "apt": "apt install openocd",
        "dnf": "dnf install openocd",
        "brew": "brew install open-ocd",
        "winget": "install OpenOCD and put it into the PATH",
    },
    "dfu-util": {
        "apt": "apt install dfu-util",
        "dnf": "dnf install dfu-util",
        "brew": "brew install dfu-util",
        "winget": "install dfu-util and put it into the PATH",
    },
    "gdb-multiarch": {
        "apt": "apt install gdb-multiarch",
        "dnf": "dnf install gdb",
        "brew": "brew install gdb",
        "winget": "winget install Arm.GnuArmEmbeddedToolchain",
    },
}


def how_to_install(program: str) -> str:
    """Return the command of this system's package manager, or apt's if none is known."""
    commands = _COMMANDS[program]
    return commands[_manager()]


def _manager() -> str:
    if sys.platform == "darwin":
        return "brew"
    if sys.platform == "win32":
        return "winget"
    return "dnf" if shutil.which("dnf") and not shutil.which("apt-get") else "apt"
