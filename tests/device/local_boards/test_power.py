"""A board is switched off and on by a command of the user's."""

import sys
from pathlib import Path

import pytest

from crtgen.base import trust
from crtgen.base.errors import LinkError, UsageError
from crtgen.base.text import DeviceText
from crtgen.device.local_boards import LocalBoard, asks_of_map, power, power_cycle, read_hardware_map


def unit(reset: str, port: str = "socket://x") -> LocalBoard:
    return LocalBoard(("nrf52840dk",), DeviceText(), port, reset=reset)


def test_the_words_of_the_command(tmp_path: Path) -> None:
    """No shell sees them."""
    file = tmp_path / "a file; $(x)"
    program = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
    power_cycle(unit(f'{sys.executable} -c "{program}" "{file}" on > off'))
    assert file.read_text() == "on"


@pytest.mark.parametrize(
    ("reset", "said", "log"),
    [
        (f'{sys.executable} -c "print(5); exit(3)"', "failed with 3", "5"),
        ("/no/such/program", "failed with 127", "/no/such/program"),
        (f'{sys.executable} -c "import time; time.sleep(60)"', "did not end within 0.5 s", ""),
    ],
)
def test_a_command_that_fails(reset: str, said: str, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "TIME_LIMIT", 0.5 if "sleep" in reset else 60)
    with pytest.raises(LinkError, match=said) as caught:
        power_cycle(unit(reset))
    assert log in caught.value.log


def test_a_port_that_stays_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "_PORT_IS_BACK", 0.2)
    port = tmp_path / "tty"
    with pytest.raises(LinkError, match="did not come back"):
        power_cycle(unit(f"{sys.executable} -V", str(port)))
    power_cycle(unit(f"touch {port}", str(port)))


def test_what_a_hardware_map_says(tmp_path: Path) -> None:
    file = tmp_path / "map.yml"
    text = "- connected: true\n  platform: nrf52840dk\n  gdb_server: bench:3333\n  reset: {}\n"
    file.write_text(text.format("uhubctl -l 1-1 -p 2 -a cycle"))
    asks, content = asks_of_map(file)
    assert asks == ("runs `uhubctl -l 1-1 -p 2 -a cycle`", "connects to bench:3333")
    with pytest.raises(UsageError, match="which only you can allow") as caught:
        read_hardware_map(file)
    assert caught.value.hint.endswith(f"crtgen trust {file}")
    trust.allow(content, file)
    (found,) = read_hardware_map(file)
    assert (found.gdb_server, found.reset) == ("bench:3333", "uhubctl -l 1-1 -p 2 -a cycle")
    for wrong, said in (("5", "words of a command"), ('"\'"', "No closing quotation")):
        file.write_text(text.format(wrong))
        with pytest.raises(UsageError, match=said):
            read_hardware_map(file)
