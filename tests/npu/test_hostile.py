"""Streams that were changed at random: the model refuses them, or computes something within bounds."""

import numpy as np
import pytest

from crtgen.compiler.byoc.ethos_u.network import network_of
from crtgen.compiler.byoc.ethos_u.vela import compile_network
from crtgen.network.frontends import load
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from crtgen.npu.config import CONFIGS
from crtgen.npu.errors import StreamError
from crtgen.npu.model import Npu
from tests.npu.networks import regions_of
from tests.npu.streams import add, stream
from tests.support import ROOT, nightly

pytest.importorskip("ethosu")

_CONFIG = CONFIGS["ethos-u55-128"]


@pytest.mark.parametrize(("first", "count"), [(0, 60), nightly(60, 3000)])
def test_a_changed_stream_raises_nothing_else(first: int, count: int) -> None:
    graph, _ = run_passes(load(ROOT / "demo" / "digits.tflite"), DEFAULT_PASSES)
    compiled = compile_network(network_of(graph), _CONFIG)
    offsets = []
    for seed in range(first, first + count):
        random = np.random.default_rng(seed)
        data = bytearray(compiled.stream)
        for _ in range(int(random.integers(1, 4))):
            data[int(random.integers(len(data)))] = int(random.integers(256))
        regions = regions_of(graph, compiled, {graph.inputs[0]: np.zeros((1, 8, 8, 1), np.int8)})
        try:
            Npu(_CONFIG, regions, frozenset({0, *compiled.inputs})).run(bytes(data))
        except StreamError as error:
            offsets.append(error.offset)
    assert len(offsets) > count // 4
    assert all(0 <= offset <= len(compiled.stream) for offset in offsets)


def test_a_map_that_no_memory_holds_is_refused_before_it_is_allocated() -> None:
    regions = {n: np.zeros(64, np.uint8) for n in (3, 4, 5)}
    huge = add(OFM_HEIGHT_M1=0xFFFF, OFM_WIDTH_M1=0xFFF, OFM_DEPTH_M1=0)
    with pytest.raises(StreamError, match="of 65536x4096x1 has more than 16,777,216 elements"):
        Npu(_CONFIG, regions).run(huge)


def test_a_stream_that_would_run_for_hours_is_refused() -> None:
    """Maps whose strides are 0 need no memory."""
    strides = {f"{name}_STRIDE_{axis}": 0 for name in ("IFM", "IFM2", "OFM") for axis in "YX"}
    one = add(OFM_HEIGHT_M1=255, OFM_WIDTH_M1=255, OFM_DEPTH_M1=0, **strides)
    again = stream(("ELEMENTWISE", 1))[:-4]
    regions = {n: np.zeros(64, np.uint8) for n in (3, 4, 5)}
    npu = Npu(_CONFIG, regions)
    npu.state.work = (1 << 34) - (1 << 16)
    with pytest.raises(StreamError, match="more than 17,179,869,184 multiplications"):
        npu.run(one[:-4] + again + stream())
