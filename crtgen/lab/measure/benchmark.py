"""Figures of models on boards, and of the RPC, for ``crtgen bench``."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from crtgen import api
from crtgen.api.report import Report
from crtgen.api.slot import build_server, start_server
from crtgen.base import endpoints
from crtgen.base.errors import MismatchError
from crtgen.device.run import Site
from crtgen.device.session import Session
from crtgen.lab.measure.cases import random_inputs

__all__ = ["RpcFigures", "build_for", "measure_model", "measure_rpc", "profile_model"]

CALLS = 1000
BLOCK = 256 * 1024
"""Bytes copied to the device and back."""


@dataclass(frozen=True, slots=True)
class RpcFigures:
    """The RPC to a board: empty calls per second, and bytes per second of random data, both ways."""

    board: str
    calls_per_second: float
    up_bytes_per_second: float
    down_bytes_per_second: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure_model(
    compiled: api.Compiled,
    *,
    stack: int | None = None,
    toolchain: str | None = None,
    site: Site | None = None,
    check: Callable[[Session], object] = lambda session: None,
    layers: bool = True,
) -> Report:
    """Build a standalone image for its sizes, and servers to count instructions, with random input.

    ``compiled`` is one model; ``stack`` is as in ``Options``, ``site`` tells how to reach a real board.
    ``check`` is called with the device before anything is measured. If instructions can be counted, those of
    each layer are counted too, unless ``layers`` is false.
    """
    alone = compiled.generate("standalone", stack=stack).build(toolchain=toolchain)
    server = build_server(compiled, site, stack=stack, toolchain=toolchain)
    with start_server(server, site) as session:
        check(session)
        info = session.model()
        session.reset()
        session.infer(*random_inputs(info.inputs, seed=0))
        measured = session.measure()
    (report,), (served,) = alone.reports, server.reports
    if server.built.manifest.type == "server":
        report = replace(report, flash_bytes=served.flash_bytes)  # a standalone image may leave some out
    report = report.measured(measured.instructions, measured.seconds, measured.cycles)
    if measured.instructions is None or not layers:
        return report
    return _profiled(report, compiled, stack, toolchain, site)


def _profiled(
    report: Report, compiled: api.Compiled, stack: int | None, toolchain: str | None, site: Site | None
) -> Report:
    # With instructions of each layer, from an image that reads the timer around it.
    layers = profile_model(compiled, stack=stack, toolchain=toolchain, site=site).layers
    ticks = [layer.ticks for layer in layers if layer.ticks is not None]
    counts = [layer.instructions for layer in layers if layer.instructions is not None]
    return report.profiled(ticks, counts)


def build_for(compiled: api.Compiled, say: Callable[[str], None] = lambda text: None) -> api.Image:
    """Return the image of a board that is not connected, to show that it compiles and fits; without bare
    metal, a library.
    """
    kind = "standalone" if "baremetal" in compiled.board.platforms else "library"
    platform = "baremetal" if kind == "standalone" else ""
    return compiled.generate(kind, platform=platform).build(say=say)


def profile_model(
    compiled: api.Compiled,
    *,
    stack: int | None = None,
    toolchain: str | None = None,
    site: Site | None = None,
    check: Callable[[Session], object] = lambda session: None,
    runs: int = 1,
) -> Report:
    """Measure each layer as the mean of some runs, with an image that reads the timer before and after each
    layer.

    Other parameters are those of ``measure_model``. Sizes are those of this image, which is larger than an
    ordinary one.
    """
    image = build_server(compiled, site, stack=stack, profile=True, toolchain=toolchain)
    with start_server(image, site) as session:
        check(session)
        session.reset()
        session.infer(*random_inputs(session.model().inputs, seed=0))
        measured = session.measure()
        ticks = np.mean([session.profile() for _ in range(runs)], axis=0)
        per_tick = session.instructions_per_tick() if measured.instructions is not None else None
    (report,) = image.reports
    counts = None if per_tick is None else [round(n * per_tick) for n in ticks]
    report = report.measured(measured.instructions, measured.seconds, measured.cycles)
    return report.profiled([round(n) for n in ticks], counts)


def measure_rpc(
    compiled: api.Compiled, *, toolchain: str | None = None, site: Site | None = None
) -> RpcFigures:
    """Measure empty calls, and a block of random bytes that is copied to the device and back, and
    compared.
    """
    board = compiled.board.name
    image = compiled.generate("server", pool=2 * BLOCK).build(toolchain=toolchain)
    block = np.random.default_rng(0).integers(0, 256, BLOCK, dtype=np.uint8)
    with image.run(counting=False, site=site) as session:
        client = session.client
        trivial = client.function(endpoints.MAX_PACKET.name)
        calls = _seconds(lambda: [trivial() for _ in range(CALLS)])
        with client.allocate(block.shape, block.dtype) as tensor:
            up = _seconds(lambda: tensor.write(block))
            back: list[Any] = []
            down = _seconds(lambda: back.append(tensor.read()))
    if not np.array_equal(back[0], block):
        raise MismatchError("the block that came back is not the one that was sent", where=board)
    return RpcFigures(board, CALLS / calls, BLOCK / up, BLOCK / down)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
