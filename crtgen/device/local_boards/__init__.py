"""Boards that are connected to this computer: their serial ports, a bench's hardware map, a lock for each."""

from crtgen.device.local_boards.lock import board_lock
from crtgen.device.local_boards.power import power_cycle
from crtgen.device.local_boards.unit import (
    LocalBoard,
    asks_of_map,
    choose_unit,
    connected_units,
    is_connected,
    read_hardware_map,
)

__all__ = [
    "LocalBoard",
    "asks_of_map",
    "board_lock",
    "choose_unit",
    "connected_units",
    "is_connected",
    "power_cycle",
    "read_hardware_map",
]
