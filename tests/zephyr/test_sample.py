"""The sample of slots beside MCUboot: its partitions, and in QEMU the product's updates."""

import re
from pathlib import Path

import pytest

from crtgen.boards import find_board
from tests.support import ROOT
from tests.system.test_product import images, in_qemu, play, spoiled
from tests.zephyr.workspace import require_workspace, west_build

SAMPLE = ROOT / "zephyr" / "samples" / "slots"
OVERLAYS = sorted((SAMPLE / "boards").glob("*.overlay"))


def _numbers(pattern: str, text: str) -> tuple[int, int]:
    found = re.search(pattern + r"[^}]*?reg = <(0x\w+) (0x\w+)>", text, re.S)
    assert found is not None, pattern
    return int(found[1], 16), int(found[2], 16)


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.stem)
def test_partitions_hold_the_slots_and_nothing_else(overlay: Path) -> None:
    """Images are linked for the addresses in the board's file; firmware must not get those memories."""
    text = overlay.read_text(encoding="utf-8")
    board = find_board(overlay.stem)
    assert board.slots is not None
    flash = _numbers(r"flash1: flash@", text)[0] if "flash1" in text else 0
    start, size = _numbers(r"models_partition", text)
    spans = [(slot.origin, slot.size) for slot in board.slots.places if slot.memory != "ram"]
    spans.append((board.slots.log, board.slots.log_size))
    assert all(flash + start <= at and at + bytes <= flash + start + size for at, bytes in spans)
    ram = _numbers(r"&sram0", text)
    assert ram[0] + ram[1] <= board.slots.work
    images = re.findall(r"(?:boot|slot\d)_partition[^}]*?reg = <(0x\w+) (0x\w+)>", text)
    assert all(int(at, 16) + int(bytes, 16) <= flash + start for at, bytes in images)


@pytest.mark.zephyr
@pytest.mark.timeout(600)
def test_the_product_is_updated_on_zephyr(tmp_path: Path) -> None:
    workspace = require_workspace()
    image = west_build(workspace, "mps2_an385", SAMPLE, tmp_path / "build", f"-DZEPHYR_EXTRA_MODULES={ROOT}")
    with in_qemu(image, "mps2-an385") as (product, reset):
        told = play(product, reset, images("mps2_an385", spoiled(tmp_path)))
    assert any(line.startswith("crt box digits ") for line in told)
