"""Writes images to boards, with the programs that chip makers and others offer."""

from crtgen.device.flash.boot_loader import show_drive
from crtgen.device.flash.connected import write_connected
from crtgen.device.flash.flasher import Flashed, flash
from crtgen.device.flash.runners import GDB_SERVER, FlashJob, commands
from crtgen.device.flash.table import INSTALL

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
