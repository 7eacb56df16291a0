"""The window through which firmware in QEMU hands jobs to the model."""

import struct

import numpy as np
import pytest

from crtgen.base.errors import LinkClosedError
from crtgen.device.run.npu import NpuWindow
from crtgen.npu.config import CONFIGS
from tests.npu.streams import add

_SIZE = 4096


def _window(data: bytes, *, config: int = CONFIGS["ethos-u55-128"].word, size: int = 24) -> bytearray:
    """A window in which a job waits: the sum of regions 3 and 4."""
    sizes = [0, 0, 0, 24, 24, size, 0, 0]
    places = [0, 0, 0, 1024, 1088, 1152, 0, 0]
    memory = bytearray(_SIZE)
    struct.pack_into("<II", memory, 8, 1, 0)
    struct.pack_into("<3I8I8I", memory, 24, config, 1 << 5, len(data), *sizes, *places)
    start = 24 + 76 + 28
    memory[start : start + len(data)] = data
    memory[start + 1024 : start + 1048] = bytes(range(24))
    memory[start + 1088 : start + 1112] = bytes(range(24))
    return memory


def _served(memory: bytearray) -> tuple[int, int, int]:
    """Answered jobs, error and offset."""
    window = NpuWindow(memoryview(memory), "test")
    assert window.serve()
    window.release()
    answered, error, offset = struct.unpack_from("<IiI", memory, 12)
    return answered, error, offset


def test_a_job_is_executed_and_answered() -> None:
    memory = _window(add())
    assert memory[:8] == bytes(8)
    assert _served(memory) == (1, 0, 0)
    start = 24 + 76 + 28 + 1152
    np.testing.assert_array_equal(np.frombuffer(memory[start : start + 24], np.int8), 2 * np.arange(24))
    assert memory[:8] == b"crtnpu01"


def test_without_a_job_nothing_happens() -> None:
    memory = bytearray(_SIZE)
    window = NpuWindow(memoryview(memory), "test")
    assert not window.serve()
    window.release()


@pytest.mark.parametrize(
    ("memory", "error"),
    [
        (_window(add(ACTIVATION=5)), -25),
        (_window(add()[:-4]), -25),
        (_window(add(), config=0x1234), -21),
    ],
)
def test_a_job_that_fails_is_answered_with_its_error(memory: bytearray, error: int) -> None:
    answered, code, _ = _served(memory)
    assert (answered, code) == (1, error)


def test_why_it_failed_is_known() -> None:
    memory = _window(add(ACTIVATION=5))
    window = NpuWindow(memoryview(memory), "test")
    assert window.serve()
    assert "function 5, which is reserved" in str(window.failure)
    window.release()


def test_sizes_of_the_device_are_not_trusted() -> None:
    with pytest.raises(LinkClosedError, match="4,000 bytes at 0x480"):
        _served(_window(add(), size=4000))
