"""Faults of a device: the report that it sends, its meaning in words, and a core dump for a debugger."""

from crtgen.device.fault.core import core_dump
from crtgen.device.fault.describe import describe
from crtgen.device.fault.record import Fault, FaultReader
from crtgen.device.fault.symbols import Symbols

__all__ = ["Fault", "FaultReader", "Symbols", "core_dump", "describe"]
