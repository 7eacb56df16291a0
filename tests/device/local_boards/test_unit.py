"""Connected boards: by USB ids, by a hardware map, by the beginning of a number."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from crtgen.base.errors import LinkError, UsageError
from crtgen.base.text import DeviceText
from crtgen.boards import find_board
from crtgen.device.local_boards import LocalBoard, choose_unit, connected_units, read_hardware_map

NUCLEO, NORDIC = find_board("nucleo_l4r5zi"), find_board("nrf52840dk")

MAP = """\
- connected: true
  id: 0674FF1
  platform: nucleo_l4r5zi
  product: STM32 STLink
  runner: openocd
  serial: /dev/ttyACM0
- connected: false
  id: 1050
  platform: nrf52840dk_nrf52840
  serial: /dev/ttyACM9
- connected: true
  id: 683
  platform: nrf52840dk/nrf52840
  serial: /dev/ttyACM1
  baud: 921600
"""


def port(device: str, vid: int | None, pid: int | None, number: str | None) -> SimpleNamespace:
    return SimpleNamespace(device=device, vid=vid, pid=pid, serial_number=number, description="a probe")


@pytest.fixture
def usb(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = [
        port("/dev/ttyACM2", 0x0483, 0x374B, "066A"),
        port("/dev/ttyACM0", 0x0483, 0x374B, "0674FF1"),
        port("/dev/ttyS0", None, None, None),
        port("/dev/ttyUSB0", 0x1234, 0x5678, None),
    ]
    monkeypatch.setattr("serial.tools.list_ports.comports", lambda: ports)


def test_what_is_on_usb(usb: None) -> None:
    units = connected_units()
    assert [(u.port, str(u.serial), u.usb) for u in units] == [
        ("/dev/ttyACM0", "0674FF1", "0483:374b"),
        ("/dev/ttyACM2", "066A", "0483:374b"),
        ("/dev/ttyUSB0", "", "1234:5678"),
    ]
    assert {"nucleo_l4r5zi", "nucleo_f746zg", "stm32f746g_disco"} <= set(units[0].boards)
    assert units[2].boards == ()


def test_the_beginning_of_a_number_is_enough(usb: None) -> None:
    units = connected_units()
    assert choose_unit(NUCLEO, units, "0674").port == "/dev/ttyACM0"
    assert choose_unit(NUCLEO, units, "066").port == "/dev/ttyACM2"


def test_ports_are_in_the_order_of_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = [port(f"/dev/ttyACM{n}", 0x0483, 0x374B, str(n)) for n in (10, 2, 1)]
    monkeypatch.setattr("serial.tools.list_ports.comports", lambda: ports)
    assert [u.port for u in connected_units()] == ["/dev/ttyACM1", "/dev/ttyACM2", "/dev/ttyACM10"]


def test_a_probe_with_two_ports_has_none_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = [port(f"/dev/ttyACM{n}", 0x0483, 0x374B, "066A") for n in (0, 1)]
    monkeypatch.setattr("serial.tools.list_ports.comports", lambda: ports)
    unit = choose_unit(NUCLEO, connected_units())
    assert (str(unit.serial), unit.port, unit.ports) == ("066A", "", ("/dev/ttyACM0", "/dev/ttyACM1"))


def test_several_boards_or_none(usb: None) -> None:
    units = connected_units()
    for prefix in (None, "06"):
        with pytest.raises(UsageError, match="several such boards are connected: 0674FF1, 066A"):
            choose_unit(NUCLEO, units, prefix)
    with pytest.raises(UsageError, match="no probe's number starts with 9"):
        choose_unit(NUCLEO, units, "9")
    with pytest.raises(LinkError, match="no such board is connected") as caught:
        choose_unit(NORDIC, units)
    assert "--connected" in caught.value.hint


def test_a_hardware_map(tmp_path: Path) -> None:
    file = tmp_path / "map.yml"
    file.write_text(MAP)
    number = DeviceText("0674FF1")
    assert read_hardware_map(file) == (
        LocalBoard(("nucleo_l4r5zi",), number, "/dev/ttyACM0", "", DeviceText("STM32 STLink"), "openocd"),
        LocalBoard(("nrf52840dk",), DeviceText("683"), "/dev/ttyACM1", baud=921600),
    )


def test_the_map_goes_before_usb(usb: None, tmp_path: Path) -> None:
    file = tmp_path / "map.yml"
    file.write_text(MAP)
    units = connected_units(file)
    assert [unit.port for unit in units] == ["/dev/ttyACM0", "/dev/ttyACM1", "/dev/ttyACM2", "/dev/ttyUSB0"]
    assert units[0].boards == ("nucleo_l4r5zi",)
    assert choose_unit(NORDIC, units).baud == 921600


@pytest.mark.parametrize(
    ("text", "where", "reason"),
    [
        ("a: [", "", "cannot be read"),
        ("a: 1", "", "is a list"),
        ("- 3", ": entry 1", "an entry is a table"),
        (MAP.replace("nucleo_l4r5zi", "nucleo_l4r5zj"), ": entry 1", "unknown board nucleo_l4r5zj"),
        (MAP.replace("921600", "fast"), ": entry 3", "baud: expected an integer"),
    ],
)
def test_a_broken_map(tmp_path: Path, text: str, where: str, reason: str) -> None:
    file = tmp_path / "map.yml"
    file.write_text(text)
    with pytest.raises(UsageError, match=reason) as caught:
        read_hardware_map(file)
    assert caught.value.where == f"{file}{where}"
    with pytest.raises(UsageError, match="cannot be read"):
        read_hardware_map(tmp_path / "none.yml")
