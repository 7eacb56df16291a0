"""Commands about connected boards: what is there, and what it prints."""

import json
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from crtgen.cli.app import app
from crtgen.cli.groups import Building, Compiling, Files, Generating
from crtgen.device.run import Site
from tests.support import ROOT, require_tool

DIGITS = str(ROOT / "demo" / "digits.tflite")


def crtgen(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def shown(*arguments: str) -> str:
    """What is shown in the seconds that the machine, which may be busy, takes to start a device."""
    texts = (crtgen(*arguments, "--seconds", seconds) for seconds in ("1", "5", "25"))
    return next(filter(None, texts))


def test_boards_that_are_connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = SimpleNamespace(
        device="/dev/ttyACM3", vid=0x0D28, pid=0x0204, serial_number="0240", description="DAPLink"
    )
    monkeypatch.setattr("serial.tools.list_ports.comports", lambda: [probe])
    (unit,) = json.loads(crtgen("boards", "--connected", "--json"))["connected"]
    assert (unit["port"], unit["serial"], unit["usb"]) == ("/dev/ttyACM3", "0240", "0d28:0204")
    assert unit["boards"] == [
        "bbc_microbit",
        "bbc_microbit_v2",
        "frdm_k64f",
        "mimxrt1050_evk",
        "mimxrt1060_evk",
    ]
    file = tmp_path / "map.yml"
    file.write_text("- connected: true\n  id: 0240\n  platform: frdm_k64f\n  serial: /dev/ttyACM3\n")
    monkeypatch.setenv("CRTGEN_HARDWARE_MAP", str(file))
    assert "frdm_k64f" in crtgen("boards", "--connected")
    monkeypatch.setattr("serial.tools.list_ports.comports", list)
    monkeypatch.delenv("CRTGEN_HARDWARE_MAP")
    assert "nothing is connected" in crtgen("boards", "--connected")


def test_boards_say_how_they_are_reached() -> None:
    boards = {board["name"]: board for board in json.loads(crtgen("boards", "--json"))["boards"]}
    assert boards["corstone300_fvp"]["fvp"] == "FVP_Corstone_SSE-300_Ethos-U55"
    assert boards["nrf52840dk"]["runners"][:3] == ["west", "nrfjprog", "jlink"]
    assert boards["mps2_an385"]["platforms"] == ["baremetal", "zephyr"]


@pytest.mark.cc
def test_monitor_shows_that_a_server_has_started(tmp_path: Path) -> None:
    require_tool("cc", "apt install gcc")
    project = str(tmp_path / "p")
    crtgen("generate", DIGITS, project, "--board", "host")
    assert shown("monitor", project) == "(the device has started)\n"
    lines = shown("monitor", project, "--json").splitlines()
    assert [json.loads(line) for line in lines] == [{"line": "(the device has started)"}]


@pytest.mark.cc
def test_an_image_that_runs_already_is_not_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``--port``, verify, run and monitor take what was built."""
    require_tool("cc")
    project = tmp_path / "p"
    crtgen("generate", DIGITS, str(project), "--board", "host")
    groups = (Files(), Compiling(), Generating(), lambda text: None)
    first = Building().image(project, *groups, site=Site(port="a port"))
    monkeypatch.setattr(
        "crtgen.firmware.builder.build_project", lambda *args, **options: pytest.fail("it was built")
    )
    assert Building().image(project, *groups, site=Site(port="a port")).path == first.path


@pytest.mark.qemu
def test_a_standalone_project_runs_as_its_readme_says_and_in_monitor(tmp_path: Path) -> None:
    require_tool("qemu-system-arm")
    project = tmp_path / "p"
    crtgen("generate", DIGITS, str(project), "--type", "standalone")
    lines = crtgen("monitor", str(project)).splitlines()
    assert re.fullmatch(r"digits: ran \d+ ticks", lines[0])
    assert lines[1].startswith("probabilities ")
    assert lines[2:] == ["finished: 0 failed"]

    command = re.search(r"^qemu-system-arm .*?[^\\]$", (project / "README.md").read_text(), re.M | re.S)
    assert command is not None
    pipe = subprocess.PIPE
    shell = ["timeout", "60", "sh", "-c", f"exec {command[0]}"]
    with subprocess.Popen(shell, cwd=project, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        first, *rest = (process.stdout.readline().strip() for _ in lines)
        process.terminate()
    assert rest == lines[1:]
    ticks = re.fullmatch(r"digits: ran (\d+) ticks", first)
    assert ticks is not None
    assert int(ticks[1]) < 2_000_000_000  # 80 s; it ran for less than none


@pytest.mark.cc
def test_monitor_of_a_standalone_project_ends_with_its_exit_code(tmp_path: Path) -> None:
    require_tool("cc", "apt install gcc")
    project = tmp_path / "p"
    crtgen("generate", DIGITS, str(project), "--type", "standalone", "--board", "host")
    shown = [json.loads(line)["line"] for line in crtgen("monitor", str(project), "--json").splitlines()]
    assert [line.split()[0] for line in shown] == ["digits:", "probabilities"]
    main = project / "platform" / "main.c"
    main.write_text(main.read_text().replace("return failures;", "return failures + 3;"))
    assert CliRunner().invoke(app, ["monitor", str(project)]).exit_code == 3


def test_flash_of_something_else(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["flash", str(tmp_path), "--json"])
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"] == "UsageError"
