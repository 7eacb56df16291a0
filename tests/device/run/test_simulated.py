"""Images of real chips, unmodified, in simulators: networks, faults, and what is said where there is none."""

import shutil
import struct
import subprocess
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from crtgen import api
from crtgen.base.errors import DeviceFault, ToolMissingError, UsageError
from crtgen.base.resources import rp2040_script
from crtgen.boards import find_board
from crtgen.boards.board import FlashReads
from crtgen.device.run import Site, run_standalone, start_device
from crtgen.device.run.rp2040 import find_rp2040js
from crtgen.firmware.builder import binary, read_content
from crtgen.lab.measure.verification import verify
from tests.firmware.project.building import build, build_toy, toy_project
from tests.support import ROOT, absent, model_path, nightly, require_rp2040js, require_tool

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(600)]

SIMULATED = Site(simulate=True)
DEMO = ROOT / "demo" / "digits.tflite"


@pytest.fixture(autouse=True)
def _tools() -> None:
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi libnewlib-arm-none-eabi")
    require_tool("qemu-system-arm", "apt install qemu-system-arm")


@pytest.fixture(autouse=True)
def _node(request: pytest.FixtureRequest) -> None:
    """Tests with the Pico need Node and rp2040js."""
    if "pico" not in request.node.name and "boot_code" not in request.node.name:
        return
    require_rp2040js()


@pytest.mark.parametrize(
    ("model", "board"),
    [
        *(
            ("digits", b)
            for b in ("bbc_microbit", "lm3s6965evb", "netduinoplus2", "rpi_pico", "rpi_pico_usb")
        ),
        ("digits", "stm32vldiscovery"),
        nightly("kws_int8", "lm3s6965evb"),
        *(nightly(name, b) for name in ("kws_int8", "ad01_int8") for b in ("netduinoplus2", "rpi_pico")),
    ],
)
def test_networks_on_simulated_chips(model: str, board: str) -> None:
    path = DEMO if model == "digits" else model_path(model)
    image = api.load(path).compile(board).generate("server").build()
    with image.run(counting=False, site=SIMULATED) as session:
        verdicts = verify(session, path, None, 2)
    assert [v.difference for v in verdicts] == [None] * len(verdicts)
    assert len(verdicts) >= 2


def test_the_pico_counts_cycles_as_the_model_of_its_core_does() -> None:
    """Its simulator reads flash without waiting."""
    board = find_board("rpi_pico")
    never = FlashReads(wait_states=0, width=8)
    memories = tuple(replace(m, reads=never) if m.kind == "flash" else m for m in board.memories)
    compiled = api.load(DEMO).compile(replace(board, memories=memories))
    with compiled.generate("server").build().run(site=SIMULATED) as session:
        session.infer(np.zeros(session.model().inputs[0].shape, np.int8))
        measured = session.measure()
    (report,) = compiled.reports
    assert measured.instructions is None
    assert measured.cycles == pytest.approx(report.cycles_estimated, rel=0.05)
    assert measured.seconds == pytest.approx((measured.cycles or 0) / 125e6)


@pytest.mark.parametrize("board", ["bbc_microbit", "rpi_pico", "rpi_pico_usb"])
def test_a_standalone_image_prints_its_outputs(tmp_path: Path, board: str) -> None:
    image = build_toy(board, "standalone", tmp_path)
    finished = run_standalone(image, find_board(board), site=SIMULATED)
    assert "toy" in finished.output
    assert finished.code == 0


@pytest.mark.nightly
def test_clang_makes_the_pico_start_too(tmp_path: Path) -> None:
    """Its assembler reads the boot code, its linker places it, and USB enumerates."""
    if find_spec("ziglang") is None:
        absent("ziglang", "pip install ziglang")
    toolchain = f"-DCMAKE_TOOLCHAIN_FILE={tmp_path}/cmake/zig.cmake"
    image = build(toy_project("rpi_pico_usb", "standalone"), tmp_path, toolchain) / "firmware.elf"
    assert "toy" in run_standalone(image, find_board("rpi_pico_usb"), site=SIMULATED).output


def test_a_fault_of_a_core_with_one_kind_of_fault_is_reported(tmp_path: Path) -> None:
    image = build_toy("bbc_microbit", "standalone", tmp_path, body='__asm volatile("udf #0");')
    with pytest.raises(DeviceFault, match="run"):
        run_standalone(image, find_board("bbc_microbit"), timeout=60, site=SIMULATED)


def test_the_pico_starts_again_when_it_resets_itself(tmp_path: Path) -> None:
    """A register of its watchdog outlives the reset of the core: the second time it is not 0."""
    scratch, reset = "(*(volatile uint32_t *)0x4005800Cu)", "*(volatile uint32_t *)0xE000ED0Cu = 0x05FA0004u;"
    body = f"if ({scratch} == 0) {{ {scratch} = 1; {reset} for (;;) {{ }} }}"
    image = build_toy("rpi_pico", "standalone", tmp_path, body=body)
    finished = run_standalone(image, find_board("rpi_pico"), timeout=60, site=SIMULATED)
    assert "toy" in finished.output
    assert finished.code == 0


def test_boot_code_with_a_wrong_crc_does_not_start(tmp_path: Path) -> None:
    image = build_toy("rpi_pico", "standalone", tmp_path)
    content = bytearray(binary(read_content(image)))
    content[100] ^= 1
    node, module = find_rp2040js()
    done = subprocess.run(
        [node, rp2040_script(), module, "uart"],
        input=struct.pack("<I", len(content)) + content,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert b"the CRC of the first 256 bytes is wrong" in done.stderr


def test_a_board_without_a_simulator_needs_the_hardware() -> None:
    with pytest.raises(UsageError, match="no simulator supports this board") as caught:
        start_device(Path("none.elf"), find_board("nrf52840dk"), site=SIMULATED)
    assert caught.value.where == "nrf52840dk"


def test_a_simulator_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = tmp_path / "firmware.elf"
    image.write_bytes(b"")
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(ToolMissingError, match="node is not installed"):
        start_device(image, find_board("rpi_pico"), site=SIMULATED)
