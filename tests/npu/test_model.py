"""The model on streams written by hand: what it computes, and what it refuses."""

import numpy as np
import numpy.typing as npt
import pytest

from crtgen.npu.config import CONFIGS
from crtgen.npu.errors import StreamError
from crtgen.npu.model import Npu
from tests.npu.streams import add, stream

_CONFIG = CONFIGS["ethos-u55-128"]
_Bytes = npt.NDArray[np.uint8]


def _regions() -> dict[int, _Bytes]:
    a, b = np.arange(24, dtype=np.int8) - 12, np.arange(24, dtype=np.int8) * 3
    return {0: np.zeros(16, np.uint8), 3: a.view(np.uint8), 4: b.view(np.uint8), 5: np.zeros(24, np.uint8)}


def _run(data: bytes, regions: dict[int, _Bytes] | None = None) -> dict[int, _Bytes]:
    memory = _regions() if regions is None else regions
    Npu(_CONFIG, memory).run(data)
    return memory


def test_a_sum() -> None:
    memory = _run(add())
    expected = memory[3].view(np.int8).astype(int) + memory[4].view(np.int8)
    np.testing.assert_array_equal(memory[5].view(np.int8), expected)


def test_limits_and_zero_points() -> None:
    memory = _run(add(OFM_ZERO_POINT=0xFFFF, IFM_ZERO_POINT=2, ACTIVATION_MAX=20))
    wide = memory[3].view(np.int8).astype(int) - 2 + memory[4].view(np.int8) - 1
    np.testing.assert_array_equal(memory[5].view(np.int8), np.clip(wide, -128, 20))


def test_tiles_meet_at_a_row_and_a_column() -> None:
    """The map's second row and third column are elsewhere; the sum is the same."""
    memory = _regions()
    image = memory[3].reshape(2, 3, 4)
    parts = [image[:1, :2], image[:1, 2:], image[1:, :2], image[1:, 2:]]
    tiled, bases = np.zeros(256, np.uint8), [0, 64, 128, 192]
    for base, part in zip(bases, parts, strict=True):
        for y, row in enumerate(part):
            tiled[base + 12 * y : base + 12 * y + row.size] = row.reshape(-1)
    expected = _run(add())[5]
    changed = {f"IFM_BASE{tile}": base for tile, base in enumerate(bases)}
    memory[3] = tiled
    got = _run(add(IFM_WIDTH0_M1=1, IFM_HEIGHT0_M1=0, IFM_HEIGHT1_M1=0, **changed), memory)[5]
    np.testing.assert_array_equal(got, expected)


def test_bricks() -> None:
    memory = _regions()
    bricks = np.zeros((2, 3, 16), np.uint8)
    bricks[..., :4] = memory[3].reshape(2, 3, 4)
    memory[3] = bricks.reshape(-1)
    got = _run(add(IFM_PRECISION=0x41, IFM_STRIDE_Y=48, IFM_STRIDE_C=48), memory)[5]
    np.testing.assert_array_equal(got, _run(add())[5])


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"IFM_REGION": 6}, "the IFM is in region 6, which has no memory"),
        ({"OFM_REGION": 0}, "the OFM is in region 0, which is constant"),
        ({"IFM_BASE0": 1}, "region 3, which has 24 bytes"),
        ({"OFM_STRIDE_Y": 13}, "the OFM of 2x3x4 has bytes 0x0 to 0x19 of region 5, which has 24 bytes"),
        ({"IFM_PRECISION": 0xD}, "has no such element type"),
        ({"OFM_PRECISION": 0xC101}, "rounding mode 3, which is reserved"),
        ({"IFM_PRECISION": 0x81}, "layout 2, which is reserved"),
        ({"IFM_PRECISION": 0x301}, "scale mode 3, which is reserved"),
        ({"ACTIVATION": 3}, "last bits are not published"),
        ({"ACTIVATION": 5}, "function 5, which is reserved"),
    ],
    ids=str,
)
def test_what_an_operator_cannot_do_is_said(changed: dict[str, int], text: str) -> None:
    with pytest.raises(StreamError, match=text) as caught:
        _run(add(**changed))
    assert caught.value.offset == len(add(**changed)) - 8


def test_a_register_that_was_never_set() -> None:
    with pytest.raises(StreamError, match="OFM_HEIGHT_M1 was never set"):
        _run(stream(("ELEMENTWISE", 1)))


def test_modes_that_are_reserved() -> None:
    with pytest.raises(StreamError, match="ELEMENTWISE has the mode 12"):
        _run(stream(("ELEMENTWISE", 12)))


def _dma(**changed: int) -> bytes:
    registers = {"DMA0_SRC_REGION": 3, "DMA0_DST_REGION": 5, "DMA0_SRC": 0, "DMA0_DST": 0, "DMA0_LEN": 24}
    return stream(*(registers | changed).items(), ("DMA_START", 0))


def test_memory_is_moved() -> None:
    memory = _run(_dma())
    np.testing.assert_array_equal(memory[5], memory[3])


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"DMA0_LEN": 25}, "DMA0_SRC: 25 bytes at 0x0 of region 3"),
        ({"DMA0_DST": 1}, "DMA0_DST: 24 bytes at 0x1 of region 5"),
        ({"DMA0_DST_REGION": 0}, "which is constant"),
        ({"DMA0_SRC_REGION": 7}, "which has no memory"),
        ({"DMA0_SRC_REGION": 0x203}, "strides"),
        ({"DMA0_DST_REGION": 0x103}, "not in the tables"),
    ],
    ids=str,
)
def test_what_cannot_be_moved_is_said(changed: dict[str, int], text: str) -> None:
    with pytest.raises(StreamError, match=text):
        _run(_dma(**changed))


def test_steps_end_where_the_stream_is_wrong() -> None:
    """The operators before the error have run; a whole stream says how many it has."""
    memory = _regions()
    good = add()[:-4]
    with pytest.raises(StreamError, match="without STOP"):
        _run(good, memory)
    np.testing.assert_array_equal(memory[5], _run(add())[5])
    assert Npu(_CONFIG, _regions()).run(add()) == 1
