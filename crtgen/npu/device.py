"""The NPU as its driver sees it: registers on a bus, an interrupt, and memory that the NPU accesses directly.

A simulator of a core maps the registers and hands reads and writes to a ``NpuDevice``. Writing RUN to CMD
executes the stream at once, on the memories that ``Bus`` has; then the interrupt is raised, with the end or
the error in STATUS. The layout of the registers is from Arm's technical reference manuals.

Faults that a driver must cope with can be simulated: an interrupt that never comes (``is_silent``), a reset
that does not end (``is_stuck``).
"""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from crtgen.npu.config import Config
from crtgen.npu.errors import StreamError
from crtgen.npu.model import Npu

__all__ = ["Bus", "NpuDevice"]

_ID, _STATUS, _CMD, _RESET, _QREAD, _PROT, _CONFIG = 0x0, 0x4, 0x8, 0xC, 0x18, 0x24, 0x28
_QBASE, _QSIZE, _REGIONCFG, _BASEP = 0x10, 0x20, 0x3C, 0x80
_RUN, _CLEAR = 1 << 0, 1 << 1
_IRQ, _BUS_ERROR, _RESETTING, _PARSE_ERROR, _END = 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5
_REGIONS = 8
_VERSION = 0x1006_6001  # architecture 1.0.6


class Bus(Protocol):
    def view(self, address: int) -> npt.NDArray[np.uint8] | None:
        """Return the memory from an address to its end; None if there is no memory. Writes to the view reach
        the memory.
        """

    def written(self) -> None: ...


class NpuDevice:
    """An NPU of one configuration on a bus. ``failure`` says why the last stream failed."""

    def __init__(self, config: Config, bus: Bus, *, is_silent: bool = False, is_stuck: bool = False) -> None:
        self.config = config
        self.bus = bus
        self.is_silent = is_silent
        self.is_stuck = is_stuck
        self.failure: StreamError | None = None
        self.runs = 0
        self._registers: dict[int, int] = {}
        self._status = 0

    @property
    def interrupts(self) -> bool:
        return bool(self._status & _IRQ)

    def read(self, offset: int) -> int:
        fixed = {_ID: _VERSION, _CONFIG: self.config.word, _STATUS: self._status}
        return fixed.get(offset, self._registers.get(offset, 0))

    def write(self, offset: int, value: int) -> None:
        if offset == _RESET:
            self._registers = {_PROT: value & 3}
            self._status = _RESETTING if self.is_stuck else 0
        elif offset == _CMD:
            if value & _CLEAR:
                self._status &= ~_IRQ
            if value & _RUN:
                self._run()
        elif offset not in (_ID, _CONFIG, _STATUS, _QREAD, _PROT):
            self._registers[offset] = value

    def _address(self, offset: int) -> int:
        return self._registers.get(offset, 0) | self._registers.get(offset + 4, 0) << 32

    def _is_read_only(self, region: int) -> bool:
        # The second port of a U55 cannot write.
        port = self._registers.get(_REGIONCFG, 0) >> 2 * region & 3
        return not self.config.product and port >= 2

    def _run(self) -> None:
        self.runs += 1
        self.failure = None
        regions = {n: self.bus.view(self._address(_BASEP + 8 * n)) for n in range(_REGIONS)}
        stream = self.bus.view(self._address(_QBASE))
        size = self._registers.get(_QSIZE, 0)
        if stream is None or size > stream.size:
            self._status = _IRQ | _BUS_ERROR
            return
        there = {n: memory for n, memory in regions.items() if memory is not None}
        npu = Npu(self.config, there, frozenset(filter(self._is_read_only, there)))
        status, read = _END, size
        try:
            npu.run(stream[:size].tobytes())
        except StreamError as error:
            self.failure, read = error, error.offset
            status = _BUS_ERROR if error.is_bus else _PARSE_ERROR
        self.bus.written()
        self._registers[_QREAD] = read
        self._status = status | (0 if self.is_silent else _IRQ)
