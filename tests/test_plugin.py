"""The plugin for pytest, in a test-suite of its own."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crtgen import api
from crtgen.cli.app import app
from tests.device.flash.test_gdb import empty_board
from tests.device.run.test_boards import X
from tests.firmware.project.building import build_toy
from tests.support import ROOT, require_tool

pytest_plugins = ["pytester"]

TESTS = """
def test_digits(firmware):
    digits = firmware("digits.tflite", board="{board}")
    digits.verify("digits.npz")
    assert digits.ram_bytes == digits.report.arena_bytes < digits.report.image_ram_bytes
    assert 2000 < digits.flash_bytes < digits.report.image_flash_bytes
    if digits.target == "emulator":
        assert digits.board.name == "mps2_an386"
        assert 10_000 < digits.instructions < 100_000
    else:
        assert digits.instructions is None
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    for name in ("digits.tflite", "digits.npz"):
        shutil.copy(ROOT / "demo" / name, pytester.path)
    return pytester


@pytest.mark.qemu
def test_a_test_runs_on_host_and_emulator(suite: pytest.Pytester) -> None:
    require_tool("qemu-system-arm")
    suite.makepyfile(TESTS.format(board="nucleo_l4r5zi"))
    result = suite.runpytest_subprocess("-v", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_digits[[]host[]] PASSED*", "*test_digits[[]emulator[]] PASSED*"])


def test_a_target_that_is_not_there_is_skipped(suite: pytest.Pytester) -> None:
    suite.makepyfile(TESTS.format(board="nucleo_l4r5zi"))
    result = suite.runpytest_inprocess("-rs", "--crtgen-target", "board")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*no nucleo_l4r5zi is connected*"])


@pytest.mark.cc
def test_wrong_outputs_fail_with_case_and_place(suite: pytest.Pytester) -> None:
    import numpy as np

    cases = dict(np.load("digits.npz"))
    cases["case2_output0"][0, 1] ^= 4
    np.savez(Path("digits.npz"), **cases)
    suite.makepyfile(TESTS.format(board="mps2_an386"))
    result = suite.runpytest_inprocess("--crtgen-target", "host")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*digits.tflite on host*", "*case2: output probabilities[[]0, 1[]]: expected*"]
    )


@pytest.mark.qemu
def test_three_targets(suite: pytest.Pytester) -> None:
    """The board is a QEMU that gdb writes the image to, with a serial port."""
    project = api.load("digits.tflite").compile("mps2_an386").generate().extract("firmware")
    project.build()
    suite.makepyfile(
        """
        def test_digits(firmware):
            firmware("digits.tflite", board="mps2_an386").verify("digits.npz")
        """
    )
    with empty_board("mps2_an386") as (gdb, serial, _):
        arguments = ["flash", str(project.directory), "--runner", "gdb", "--gdb-server", gdb]
        assert CliRunner().invoke(app, arguments).exit_code == 0
        targets = [word for target in ("host", "emulator", "board") for word in ("--crtgen-target", target)]
        result = suite.runpytest_inprocess("-v", "--junitxml=r.xml", *targets, "--crtgen-port", serial)
    result.assert_outcomes(passed=3)
    text = Path("r.xml").read_text()
    assert all(f'name="test_digits[{target}]"' in text for target in ("host", "emulator", "board"))


OWN = """
def test_own(dut):
    board = dut({image!r}, board="mps2_an386")
    found = board.expect(r"^toy: ran (\\d+) ticks")
    assert found[1].isdigit()
    assert board.expect("-1 2")[0] == "-1 2"
    board.expect("127 -5\\n")
    assert board.output.endswith("finished: 0 failed\\n") or board.expect("finished: 0 failed")


def test_never(dut):
    board = dut({image!r}, board="mps2_an386")
    board.expect("never", timeout=0.5)
"""


@pytest.mark.qemu
def test_firmware_of_ones_own_is_listened_to(suite: pytest.Pytester, tmp_path: Path) -> None:
    require_tool("qemu-system-arm")
    image = build_toy("mps2_an386", "standalone", tmp_path, samples={"toy": [X]})
    suite.makepyfile(OWN.format(image=str(image)))
    result = suite.runpytest_inprocess("-v", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*test_own[[]emulator[]] PASSED*"])
    result.stdout.fnmatch_lines(["*did not come within 0.5 s; the last line was: finished: 0 failed*"])


def test_own_firmware_of_a_board_that_nothing_simulates_is_skipped(suite: pytest.Pytester) -> None:
    suite.makepyfile("def test_own(dut):\n    dut('x.elf', board='nucleo_l4r5zi')\n")
    result = suite.runpytest_inprocess("-rs", "-p", "no:cacheprovider")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*nothing simulates nucleo_l4r5zi: --crtgen-target board*"])
