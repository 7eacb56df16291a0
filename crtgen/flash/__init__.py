"""Writes images to boards, with the programs that the boards' makers and others offer."""

from crtgen.flash.boot_loader import show_drive
from crtgen.flash.connected import write_connected
from crtgen.flash.flasher import Flashed, flash
from crtgen.flash.runners import GDB_SERVER, FlashJob, commands
from crtgen.flash.table import INSTALL

__all__ = [
    "GDB_SERVER",
    "INSTALL",
    "FlashJob",
    "Flashed",
    "commands",
    "flash",
    "show_drive",
    "write_connected",
]
