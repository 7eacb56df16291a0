"""Boards that are connected to this computer: their serial ports, a bench's hardware map, a lock for each."""

from crtgen.attached.lock import board_lock
from crtgen.attached.power import power_cycle
from crtgen.attached.unit import Unit, choose_unit, connected_units, is_connected, read_hardware_map

__all__ = [
    "Unit",
    "board_lock",
    "choose_unit",
    "connected_units",
    "is_connected",
    "power_cycle",
    "read_hardware_map",
]
