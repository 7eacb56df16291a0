"""Projects built with picolibc, a package of its own: CI's machines need not have it."""

import pytest

import crtgen
from crtgen.base.errors import ToolMissingError
from crtgen.firmware.builder import find_toolchain
from tests.support import ROOT, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2_an385", "mps3_an547"])
def test_results_are_those_of_the_reference(board: str) -> None:
    require_tool("qemu-system-arm")
    try:
        found = find_toolchain("picolibc")
    except ToolMissingError as error:
        pytest.skip(f"picolibc is not there: {error.hint}")
    image = crtgen.load(DIGITS).compile(board).generate().build(toolchain="picolibc")
    with image.run(counting=False) as session:
        verdicts = crtgen.verify(session, DIGITS, DIGITS.with_suffix(".npz"))
    assert [v.difference for v in verdicts] == [None] * len(verdicts)
    assert verdicts
    libraries = (image.path.parent / "firmware.map").read_text()
    assert f"/{found.name}/" in libraries
    assert "libc_nano" not in libraries
