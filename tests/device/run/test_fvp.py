"""The FVP's launcher, with a real FVP where there is one, else with a program that takes its options."""

import os
import signal
import time
from pathlib import Path
from threading import Timer

import numpy as np
import pytest

from crtgen import api
from crtgen.base.errors import LinkClosedError, LinkTimeoutError, ToolMissingError, UsageError
from crtgen.boards import find_board
from crtgen.device.run import Site, find_fvp, fvp, run_standalone, start_device, start_fvp
from crtgen.lab.measure.cases import read_cases
from tests.support import is_gone, model_path, require_tool

BOARD = find_board("corstone300_fvp")
STAND_IN = Path(__file__).parent / "fvp_stand_in.py"


@pytest.fixture(scope="module")
def program() -> Path:
    """A real FVP, or the stand-in."""
    try:
        return find_fvp(BOARD)
    except ToolMissingError:
        require_tool("qemu-system-arm", "apt install qemu-system-arm")
        return STAND_IN


def script(directory: Path, text: str) -> Path:
    file = directory / "fvp"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


@pytest.mark.qemu
@pytest.mark.models
def test_a_model_is_verified_over_the_serial_port_of_the_fvp(program: Path) -> None:
    model = api.load(model_path("kws_int8")).compile("corstone300_fvp")
    info = model.modules[0].info
    image = model.generate().build()
    with image.run(site=Site(fvp=program)) as session:
        for case in read_cases(model_path("kws_int8").with_suffix(".npz"), info.inputs, info.outputs):
            np.testing.assert_array_equal(session.infer(*case.inputs)[0], case.outputs[0])
        assert session.measure().instructions is None
        process = session.device.process  # type: ignore[union-attr]
    assert is_gone(process.pid)


@pytest.mark.qemu
@pytest.mark.models
def test_an_fvp_that_is_killed_in_mid_call_is_a_closed_line_at_once(program: Path) -> None:
    image = api.load(model_path("ic01_int8")).compile("corstone300_fvp").generate().build()
    with image.run(site=Site(fvp=program)) as session:
        process = session.device.process  # type: ignore[union-attr]
        killed: list[float] = []

        def kill() -> None:
            killed.append(time.monotonic())
            os.kill(process.pid, signal.SIGKILL)

        Timer(1.0, kill).start()
        with pytest.raises(LinkClosedError):
            session.measure(10_000)
        assert time.monotonic() - killed[0] < 60
    assert is_gone(process.pid)


@pytest.mark.qemu
@pytest.mark.models
def test_a_standalone_image_runs_to_its_end(program: Path) -> None:
    model = api.load(model_path("hello_world_int8")).compile("corstone300_fvp")
    image = model.generate("standalone").build()
    finished = run_standalone(image.path, BOARD, site=Site(fvp=program), timeout=120)
    assert finished.code == 0
    assert "hello_world_int8: ran " in finished.output


@pytest.mark.zephyr
@pytest.mark.models
def test_a_zephyr_image_runs_on_the_fvp(program: Path) -> None:
    from tests.zephyr.workspace import require_workspace

    require_workspace()
    model = api.load(model_path("hello_world_int8")).compile("corstone300_fvp")
    info = model.modules[0].info
    case = read_cases(model_path("hello_world_int8").with_suffix(".npz"), info.inputs, info.outputs)[0]
    with model.generate(platform="zephyr").build().run(site=Site(fvp=program)) as session:
        np.testing.assert_array_equal(session.infer(*case.inputs)[0], case.outputs[0])


@pytest.mark.qemu
def test_the_stand_in_says_that_it_is_one(tmp_path: Path) -> None:
    require_tool("qemu-system-arm", "apt install qemu-system-arm")
    (tmp_path / "empty.elf").write_bytes(b"")
    with start_fvp(tmp_path / "empty.elf", BOARD, STAND_IN) as device:
        assert device.wait(60) != 0
        assert "This is not Arm's FVP" in device.output()


def test_the_options(tmp_path: Path) -> None:
    image = tmp_path / "image.elf"
    image.write_bytes(b"")
    with pytest.raises(LinkClosedError) as caught:
        start_fvp(image, BOARD, script(tmp_path, 'printf "%s\\n" "$@"'))
    words = caught.value.log.split("\n")
    assert words[:2] == ["-a", str(image)]
    assert words[2::2][:-1] == ["-C"] * 7
    assert "mps3_board.telnetterminal0.start_telnet=0" in words
    assert "mps3_board.telnetterminal0.mode=raw" in words


def test_it_is_found_by_option_then_variable_then_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = []
    for name in ("option", "variable", "path"):
        (tmp_path / name).mkdir()
        places.append(script(tmp_path / name, "").rename(tmp_path / name / "FVP_Corstone_SSE-300_Ethos-U55"))
    option, variable, path = places
    monkeypatch.setenv("PATH", str(path.parent))
    monkeypatch.setenv("CRTGEN_FVP", str(variable))
    assert find_fvp(BOARD, option) == option
    assert find_fvp(BOARD) == variable
    monkeypatch.delenv("CRTGEN_FVP")
    assert find_fvp(BOARD) == path
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match="FVP_Corstone_SSE-300_Ethos-U55") as caught:
        find_fvp(BOARD)
    assert "--fvp-path" in caught.value.hint
    with pytest.raises(UsageError, match="no FVP"):
        find_fvp(find_board("mps2_an385"))


def test_an_fvp_that_ends_is_reported_with_what_it_said(tmp_path: Path) -> None:
    image = tmp_path / "image.elf"
    image.write_bytes(b"")
    program = script(tmp_path, "echo no licence; exit 3")
    with pytest.raises(LinkClosedError, match="ended with code 3") as caught:
        start_device(image, BOARD, site=Site(fvp=program))
    assert caught.value.log == "no licence\n"


def test_an_fvp_that_opens_no_port_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = tmp_path / "image.elf"
    image.write_bytes(b"")
    monkeypatch.setattr(fvp, "START_TIMEOUT", 0.5)
    program = script(tmp_path, f"echo $$ > {tmp_path}/pid; sleep 100")
    with pytest.raises(LinkTimeoutError, match="opened no port"):
        start_device(image, BOARD, site=Site(fvp=program))
    assert is_gone(int((tmp_path / "pid").read_text()))
