"""The NPU itself: executes a command stream on regions of memory.

The problem. Ethos-U executes command streams that Arm's compiler Vela writes. No open tool computes their
results, so firmware for it could only be tested with Arm's simulator or a chip.

The idea. Such an NPU computes with integers only, and its sums do not depend on how the hardware splits them
into blocks. So a model needs no blocks, no pipelines and no time: it reads the registers that the stream
sets, and computes each operator at once, in numpy. The results are exact: decoded weights, accumulators of 32
or 40 bits, one of three roundings, limits and tables.

Not modelled. Dependencies (DMA_WAIT, KERNEL_WAIT, BLOCKDEP) are promises by the stream; here each command
ends before the next one begins. The NPU's internal buffers (IB_END, AB_START) are left out, apart from the
tables. Unpublished behaviour, such as an accumulator that overflows, is refused instead of guessed:
``StreamError`` with the offset of the command.

Sources: the register table and the meaning of the fields are from Arm's technical reference manuals and from
the listing that Vela prints of its streams; the arithmetic is from networks that Vela compiled, whose outputs
were compared with TFLite Micro's (docs/npu.md names them). None of it was checked on silicon.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from crtgen.npu.config import Config
from crtgen.npu.elementwise import elementwise
from crtgen.npu.state import TABLES, NpuMemory, NpuState
from crtgen.npu.stream import Command, commands
from crtgen.npu.windows import convolve, pool

__all__ = ["Npu"]

_SCALES = ("OFM_SCALE", "OPA_SCALE")
_INTERNAL, _STRIDES = 0x100, 0x600


class Npu:
    """An NPU of one configuration.

    ``regions`` has the memory behind each base pointer, which streams read and write; ``constant`` are the
    regions that must not be written.
    """

    def __init__(
        self,
        config: Config,
        regions: Mapping[int, npt.NDArray[np.uint8]],
        constant: frozenset[int] = frozenset({0}),
    ) -> None:
        self.state = NpuState(config, NpuMemory(regions, constant))

    def run(self, stream: bytes) -> int:
        """Execute a stream up to STOP, and return the number of operators.

        Raises ``StreamError`` with the offset of the first wrong command; the results of earlier commands are
        in memory.
        """
        return sum(1 for _ in self.steps(stream))

    def steps(self, stream: bytes) -> Iterator[Command]:
        """Execute a stream, and yield each command that started something after it is done."""
        for command in commands(stream):
            try:
                if self._execute(command):
                    yield command
            except (ValueError, OverflowError, IndexError) as error:
                raise self.state.refuse(command.offset, error) from error

    def _execute(self, command: Command) -> bool:
        # True if the command computed or moved something.
        name, state = command.name, self.state
        match name:
            case "CONV" | "DEPTHWISE":
                convolve(state, depthwise=name == "DEPTHWISE")
            case "POOL":
                pool(state, command.parameter)
            case "ELEMENTWISE":
                elementwise(state, command.parameter)
            case "DMA_START":
                self._move()
            case "STOP" | "IRQ" | "DMA_WAIT" | "KERNEL_WAIT" | "PMU_MASK":
                return False
            case _:
                state.registers[name] = command.value
                if name in _SCALES:
                    state.shifts[name] = command.parameter
                return False
        return True

    def _move(self) -> None:
        state = self.state
        source, target = state.get("DMA0_SRC_REGION"), state.get("DMA0_DST_REGION")
        if (source | target) & _STRIDES or source & _INTERNAL:
            raise ValueError("a DMA with strides, or from inside of the NPU, is not known")
        start, end, length = state.get("DMA0_SRC"), state.get("DMA0_DST"), state.get("DMA0_LEN")
        data = state.memory.piece(source & 7, start, length, "DMA0_SRC").copy()
        if target & _INTERNAL:
            at = end - (state.config.shram * 1024 // state.config.cores - TABLES)
            if at < 0 or at + length > TABLES:
                raise ValueError(
                    f"DMA0_DST {end:#x} is not in the tables at the end of the memory in the NPU"
                )
            state.tables[at : at + length] = data
        else:
            state.memory.piece(target & 7, end, length, "DMA0_DST", written=True)[:] = data
