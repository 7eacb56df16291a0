"""Zephyr on real boards: images are built where the HAL is, the Pico's runs in rp2040js."""

import re
from pathlib import Path

import pytest

from crtgen import api
from crtgen.base.errors import ToolMissingError
from crtgen.boards import find_board
from crtgen.device.run import Site
from crtgen.device.run.rp2040 import find_rp2040js
from crtgen.firmware.builder import ZephyrWorkspace
from crtgen.lab.measure.verification import verify
from tests.support import ROOT, absent, model_path, nightly
from tests.zephyr.workspace import require_workspace

pytestmark = [pytest.mark.zephyr, pytest.mark.models, pytest.mark.timeout(600)]

WORKSPACE = require_workspace(module=True)
DEMO = ROOT / "demo" / "digits.tflite"


def require_hal(name: str) -> ZephyrWorkspace:
    if not (WORKSPACE.top / "modules" / "hal" / name).is_dir():
        pytest.skip(f"the workspace has no hal_{name}: west update hal_{name}")
    return WORKSPACE


def console_in_devicetree(build: Path) -> tuple[int, int]:
    """Address and interrupt of Zephyr's console."""
    text = (build / "zephyr.dts").read_text()
    (label,) = re.findall(r"zephyr,console = &(\w+);", text)
    node = text[re.search(rf"\b{label}: ", text).end() :]  # type: ignore[union-attr]
    address = re.search(r"reg = < (0x[0-9a-f]+) ", node)
    interrupt = re.search(r"interrupts = < (0x[0-9a-f]+) ", node)
    assert address is not None
    assert interrupt is not None
    return int(address[1], 16), int(interrupt[1], 16)


@pytest.mark.parametrize(
    ("board", "hal"),
    [
        ("nucleo_l4r5zi", "stm32"),
        nightly("arduino_nano_33_ble", "nordic"),
        nightly("b_u585i_iot02a", "stm32"),
        nightly("disco_l475_iot1", "stm32"),
        nightly("nrf52840dk", "nordic"),
        nightly("nrf5340dk", "nordic"),
        nightly("nucleo_f746zg", "stm32"),
        nightly("nucleo_h743zi", "stm32"),
        nightly("nucleo_u575zi_q", "stm32"),
        nightly("olimex_stm32_h405", "stm32"),
        nightly("stm32f746g_disco", "stm32"),
    ],
)
def test_an_image_is_built_and_its_console_is_the_uart_of_bare_metal(board: str, hal: str) -> None:
    require_hal(hal)
    image = api.load(DEMO).compile(board).generate("server", platform="zephyr").build()
    assert {path.suffix for path in image.files} >= {".elf", ".bin", ".hex"}
    uart = find_board(board).uart
    assert uart is not None
    address, interrupt = console_in_devicetree(image.path.parent)
    assert interrupt == uart.irq
    assert address % (1 << 28) == uart.base % (1 << 28)  # the tree of nRF5340 counts from its peripherals


def test_a_network_on_zephyr_in_the_simulator_of_the_pico() -> None:
    require_hal("rpi_pico")
    try:
        find_rp2040js()
    except ToolMissingError as error:
        absent(str(error), error.hint)
    image = api.load(model_path("kws_int8")).compile("rpi_pico").generate(platform="zephyr").build()
    configuration = (image.path.parent / ".config").read_text()
    assert "CONFIG_CPU_CORTEX_M0PLUS=y" in configuration  # a core without 64-bit shifts
    assert "CRTGEN_WATCHDOG" not in configuration  # the devicetree has none
    with image.run(counting=False, site=Site(simulate=True)) as session:
        verdicts = verify(session, model_path("kws_int8"), None, 2)
    assert [v.difference for v in verdicts] == [None] * len(verdicts)
