"""Row streaming in images: vww within 36,000 bytes of arena, its outputs unchanged."""

import pytest

import crtgen
from tests.support import model_path, require_tool

pytestmark = [pytest.mark.qemu, pytest.mark.models]


@pytest.mark.parametrize("optimize", ["speed", "size"])
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547"])
def test_vww(board: str, optimize: str) -> None:
    require_tool("qemu-system-arm")
    path = model_path("vww_int8")
    compiled = crtgen.compile([crtgen.load(path)], board, optimize=optimize)
    (plan,) = compiled.plans
    assert plan.arena <= 36_000
    assert [hit.node for hit in compiled.hits if hit.rule == "stream rows"] == ["conv2d_1+depthwise_conv2d_1"]
    with compiled.generate().build().run(counting=False) as session:
        verdicts = crtgen.verify(session, path, path.with_suffix(".npz"))
    assert len(verdicts) == 8
    assert [str(v.difference) for v in verdicts if v.difference] == []
