"""The sample of slots beside MCUboot: its partitions, and in QEMU the product's updates."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from crtgen.boards import find_board
from crtgen.firmware.builder import ZephyrWorkspace
from tests.support import ROOT
from tests.system.test_product import images, in_qemu, play, spoiled
from tests.zephyr.workspace import require_workspace, west_build

SAMPLE = ROOT / "zephyr" / "samples" / "slots"
OVERLAYS = sorted(SAMPLE.glob("*/*.overlay"))


def _numbers(pattern: str, text: str) -> tuple[int, int]:
    found = re.search(pattern + r"[^}]*?reg = <(0x\w+) (0x\w+)>", text, re.S)
    assert found is not None, pattern
    return int(found[1], 16), int(found[2], 16)


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: f"{path.parent.name}-{path.stem}")
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


IMAGES = {0: 0x20000, 1: 0x60000}  # MCUboot's two slots, in the order of its partitions
IMAGE_SIZE = 0x40000


def _require_mcuboot(workspace: ZephyrWorkspace) -> Path:
    mcuboot = Path(workspace.top) / "bootloader" / "mcuboot"
    if not mcuboot.is_dir():
        pytest.skip(f"MCUboot was not tested: {mcuboot} is not there")
    for package in ("cbor2", "click", "cryptography", "intelhex"):
        pytest.importorskip(package, reason=f"MCUboot was not tested: its imgtool needs {package}")
    return mcuboot


def _signed(mcuboot: Path, image: bytes, version: str, output: Path, *options: str) -> Path:
    raw = output.with_suffix(".raw")
    raw.write_bytes(image)
    key = mcuboot / "root-ec-p256.pem"
    command = [sys.executable, str(mcuboot / "scripts" / "imgtool.py"), "sign", "-k", str(key)]
    command += ["--header-size", "0x200", "--align", "8", "-v", version, "-S", hex(IMAGE_SIZE), *options]
    subprocess.run([*command, str(raw), str(output)], check=True, capture_output=True, timeout=60)
    return output


@pytest.mark.zephyr
@pytest.mark.timeout(900)
def test_mcuboot_exchanges_the_firmware_and_leaves_the_models(tmp_path: Path) -> None:
    """QEMU loads both images at each reset, so that MCUboot exchanges them each time."""
    workspace = require_workspace()
    mcuboot = _require_mcuboot(workspace)
    folder = SAMPLE / "mcuboot"
    overlay = f"-DDTC_OVERLAY_FILE={folder / 'mps2_an385.overlay'}"
    own = mcuboot / "boot" / "zephyr" / "app.overlay"  # which older releases of MCUboot add by themselves
    with_own = f"{overlay};{own}" if own.is_file() else overlay
    boot = west_build(
        *(workspace, "mps2_an385", mcuboot / "boot" / "zephyr", tmp_path / "boot", with_own),
        *(f"-DZEPHYR_EXTRA_MODULES={SAMPLE / 'ram_flash'}", f"-DOVERLAY_CONFIG={folder / 'mcuboot.conf'}"),
    )
    built = west_build(
        *(workspace, "mps2_an385", SAMPLE, tmp_path / "build", overlay),
        *(f"-DZEPHYR_EXTRA_MODULES={ROOT}", "-DCONFIG_BOOTLOADER_MCUBOOT=y"),
    )
    image = built.with_suffix(".bin").read_bytes()
    assert image.count(b"ready") == 1
    old = _signed(mcuboot, image.replace(b"ready", b"READY"), "1.0.0", tmp_path / "old")
    new = _signed(mcuboot, image, "1.1.0", tmp_path / "new", "--pad")
    with in_qemu(boot, "mps2-an385", {IMAGES[0]: old, IMAGES[1]: new}) as (product, reset):
        play(product, reset, images("mps2_an385", spoiled(tmp_path)))
    changed = tmp_path / "changed"
    changed.write_bytes(new.read_bytes().replace(b"ready", b"ReaDy"))
    with in_qemu(boot, "mps2-an385", {IMAGES[0]: old, IMAGES[1]: changed}) as (product, _):
        started = product.until("READY")
    assert started[-1] == "READY", "an image whose signature is wrong is not taken"
