"""The NPU of a simulated board: executes the jobs that firmware in QEMU leaves in shared memory.

QEMU has no Ethos-U. ``npu_mailbox.c`` in a project copies a job (the stream and its regions) into a window
behind the mailbox and announces it; the model ``crtgen.npu`` executes it here, in the thread that waits for
the device's answer, and the device copies the results back. Nothing in the window is trusted: sizes and
addresses are checked against it.
"""

from dataclasses import dataclass
from struct import Struct

import numpy as np
import numpy.typing as npt

from crtgen.base.errors import LinkClosedError, UsageError
from crtgen.npu.config import config_of_word
from crtgen.npu.errors import StreamError
from crtgen.npu.model import Npu

__all__ = ["NpuWindow"]

_MARK = b"crtnpu01"
_ASKED, _ANSWERED, _ERROR, _OFFSET = (8 + 4 * n for n in range(4))
_REGIONS = 8
_JOB = Struct("<3I8I8I")
_JOB_AT = 24
_DATA = _JOB_AT + _JOB.size + 28

_ERR_CONFIG, _ERR_STREAM = -21, -25


@dataclass(frozen=True, slots=True)
class _NpuJob:
    config: int
    written: int
    stream: bytes
    regions: dict[int, npt.NDArray[np.uint8]]


class NpuWindow:
    """The window into shared memory, which begins at the start of ``memory``. ``failure`` is why the last job
    failed.
    """

    def __init__(self, memory: memoryview, name: str) -> None:
        self._memory = memory
        self._words = memory.cast("I")  # the device never sees a half of a count
        self._name = name
        self.failure: StreamError | UsageError | None = None
        memory[: len(_MARK)] = _MARK

    def serve(self) -> bool:
        asked = self._words[_ASKED // 4]
        if asked == self._words[_ANSWERED // 4]:
            return False
        job = self._job()
        error, offset = 0, 0
        try:
            Npu(config_of_word(job.config), job.regions, self._constant(job)).run(job.stream)
            self.failure = None
        except StreamError as failure:
            # Without its traceback, whose frames would keep the shared memory open.
            failure.__cause__ = failure.__context__ = None
            self.failure, error, offset = failure.with_traceback(None), _ERR_STREAM, failure.offset
        except UsageError as failure:
            self.failure, error = failure, _ERR_CONFIG
        self._words[_ERROR // 4] = error % (1 << 32)
        self._words[_OFFSET // 4] = offset
        self._words[_ANSWERED // 4] = asked
        return True

    def release(self) -> None:
        self._words.release()
        self._memory.release()

    def _constant(self, job: _NpuJob) -> frozenset[int]:
        return frozenset(region for region in job.regions if not job.written >> region & 1)

    def _job(self) -> _NpuJob:
        config, written, stream, *rest = _JOB.unpack_from(self._memory, _JOB_AT)
        sizes, places = rest[:_REGIONS], rest[_REGIONS:]
        data = np.frombuffer(self._memory, np.uint8)[_DATA:]
        regions = {
            region: self._piece(data, place, size)
            for region, (size, place) in enumerate(zip(sizes, places, strict=True))
            if size
        }
        return _NpuJob(config, written, self._piece(data, 0, stream).tobytes(), regions)

    def _piece(self, data: npt.NDArray[np.uint8], start: int, size: int) -> npt.NDArray[np.uint8]:
        if start + size > data.size:
            raise LinkClosedError(
                f"a job of the NPU has {size:,} bytes at {start:#x} of a window of {data.size:,} bytes",
                where=self._name,
                hint="its firmware writes where it should not",
            )
        return data[start : start + size]
