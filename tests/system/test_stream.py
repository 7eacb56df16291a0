"""Row streaming in images: vww within 36,000 bytes of arena, ic01 within 27,000, their outputs unchanged."""

import pytest

import crtgen
from tests.support import model_path, nightly, require_tool

pytestmark = [pytest.mark.qemu, pytest.mark.models]


@pytest.mark.parametrize(
    ("board", "optimize"),
    [
        nightly("mps2_an386", "speed"),
        nightly("mps2_an386", "size"),
        nightly("mps3_an547", "speed"),
        ("mps3_an547", "size"),
    ],
)
def test_vww(board: str, optimize: str) -> None:
    _check("vww_int8", board, optimize, 36_000, ["conv2d_1+depthwise_conv2d_1"])


@pytest.mark.parametrize(
    ("board", "optimize", "blocks", "arena"),
    [
        ("mps2_an386", "speed", 0, 37_568),
        nightly("mps2_an386", "size", 2, 27_000),
        nightly("mps3_an547", "balanced", 2, 27_000),
        nightly("mps2_an385", "balanced", 2, 27_000),
    ],
)
def test_ic01(board: str, optimize: str, blocks: int, arena: int) -> None:
    """For speed Winograd's tiles are worth more than what loops over rows save."""
    names = ["conv2d_1+conv2d_2+add", "conv2d_3+conv2d_4+conv2d_5+add_1"]
    _check("ic01_int8", board, optimize, arena, names[:blocks])


def _check(model: str, board: str, optimize: str, arena: int, streams: list[str]) -> None:
    require_tool("qemu-system-arm")
    path = model_path(model)
    compiled = crtgen.compile([crtgen.load(path)], board, optimize=optimize)
    (plan,) = compiled.plans
    assert plan.arena <= arena
    assert [found.node for found in compiled.rewrites if found.rule == "loop over rows"] == streams
    with compiled.generate().build().run(counting=False) as session:
        verdicts = crtgen.verify(session, path, path.with_suffix(".npz"))
    assert len(verdicts) == 8
    assert [str(v.difference) for v in verdicts if v.difference] == []
