"""Arena, weights and kernels in memories of their own."""

from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

import crtgen
from crtgen.base.errors import UsageError
from tests.support import ROOT, require_tool, symbol_table

DIGITS = ROOT / "demo" / "digits.tflite"


def addresses(path: Path) -> dict[str, int]:
    with path.open("rb") as file:
        return {s.name: s["st_value"] & ~1 for s in symbol_table(ELFFile(file)).iter_symbols()}


@pytest.mark.qemu
def test_parts_lie_where_they_were_placed_and_compute_the_same() -> None:
    require_tool("qemu-system-arm")
    place = {"arena": "dtcm", "weights": "dtcm", "kernels": "itcm"}
    compiled = crtgen.load(DIGITS).compile("mps3_an547", place=place)
    image = compiled.generate().build()
    plain = crtgen.load(DIGITS).compile("mps3_an547").generate().build()
    found = addresses(image.path)
    weights = [v for n, v in found.items() if n.startswith("__tvm_param__")]
    kernels = [found[layer.function] for layer in compiled.modules[0].info.layers if layer.function]
    assert 0x20000000 <= found["digits_arena"] < 0x20080000
    assert weights
    assert all(0x20000000 <= address < 0x20080000 for address in weights)
    assert all(address < 0x80000 for address in kernels if address)
    constants = sum(layer.constants for layer in image.size.layers["digits"])
    assert image.size.sizes.data - plain.size.sizes.data == pytest.approx(constants, abs=64)
    with image.run() as session:
        (y,) = session.infer(np.load(ROOT / "demo" / "digit.npz")["image"])
    np.testing.assert_array_equal(y, np.load(ROOT / "demo" / "digits.npz")["case7_output0"])


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"stack": "dtcm"}, "stack cannot be placed"),
        ({"arena": "sram"}, "has no memory sram"),
        ({"arena": "itcm"}, "the arena is written, but itcm is flash"),
    ],
)
def test_what_cannot_be_placed_is_refused(place: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        crtgen.load(DIGITS).compile("mps3_an547", place=place)


def test_nothing_is_placed_elsewhere() -> None:
    place = {"arena": "ram"}
    with pytest.raises(UsageError, match="host: the board has no memory ram") as caught:
        crtgen.load(DIGITS).compile("host", place=place)
    assert "it is for bare metal" in caught.value.hint
    with pytest.raises(UsageError, match="mps2_an385: nothing is placed on the platform zephyr"):
        crtgen.load(DIGITS).compile("mps2_an385", place=place).generate(platform="zephyr")
    with pytest.raises(UsageError, match="mps2_an385: a library has no linker script"):
        crtgen.load(DIGITS).compile("mps2_an385", place=place).generate("library")
