"""Inputs and outputs of a stream in regions of their own."""

import numpy as np
import pytest

from crtgen.compiler.byoc.ethos_u.regions import RegionPiece, translated
from crtgen.npu.config import CONFIGS
from crtgen.npu.model import Npu
from crtgen.npu.stream import commands
from tests.npu.streams import add, stream

_PIECES = [RegionPiece(3, 0, 24, 2), RegionPiece(3, 32, 24, 3), RegionPiece(4, 16, 24, 4)]


def _shared() -> bytes:
    return add(IFM2_REGION=3, IFM2_BASE0=32, OFM_REGION=4, OFM_BASE0=16)


def test_the_result_is_the_same() -> None:
    config = CONFIGS["ethos-u55-128"]
    random = np.random.default_rng(0)
    inputs, output = random.integers(0, 256, 64, np.uint8), np.zeros(64, np.uint8)
    Npu(config, {3: inputs, 4: output}).run(_shared())
    apart = {2: inputs[:24].copy(), 3: inputs[32:56].copy(), 4: np.zeros(24, np.uint8)}
    Npu(config, apart).run(translated(_shared(), _PIECES))
    np.testing.assert_array_equal(apart[4], output[16:40])


def test_registers_are_set_before_each_operator_if_they_changed() -> None:
    twice = add(IFM2_REGION=3)[:-4] + stream(("IFM_BASE0", 32), ("ELEMENTWISE", 1))
    pieces = [*_PIECES, RegionPiece(5, 0, 24, 6)]
    read = [(c.name, c.value) for c in commands(translated(twice, pieces))]
    last = read[read.index(("ELEMENTWISE", 1)) + 1 :]
    assert last == [("IFM_REGION", 3), ("ELEMENTWISE", 1), ("STOP", 0xFFFF)]


def test_what_is_in_no_piece_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing is at 0x1c of region 3"):
        translated(add(IFM_BASE0=28), _PIECES)


def test_other_regions_and_the_tables_stay() -> None:
    registers = {
        "DMA0_SRC_REGION": 0,
        "DMA0_SRC": 48,
        "DMA0_DST_REGION": 0x103,
        "DMA0_DST": 0x5800,
        "DMA0_LEN": 16,
    }
    data = stream(*registers.items(), ("DMA_START", 0))
    read = {c.name: c.value for c in commands(translated(data, _PIECES))}
    assert (read["DMA0_SRC_REGION"], read["DMA0_DST_REGION"]) == (0, 0x103)
    assert (read["DMA0_SRC"], read["DMA0_DST"]) == (48, 0x5800)
