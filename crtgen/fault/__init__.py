"""Faults of a device: the report that it sends, what the words in it mean, and a core dump for a debugger."""

from crtgen.fault.core import core_dump
from crtgen.fault.describe import describe
from crtgen.fault.record import Fault, FaultReader
from crtgen.fault.symbols import Symbols

__all__ = ["Fault", "FaultReader", "Symbols", "core_dump", "describe"]
