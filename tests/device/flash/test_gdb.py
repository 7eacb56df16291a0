"""gdb for real: an image is loaded over QEMU's gdb server into a board without one, started and verified."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from crtgen import api
from crtgen.base.errors import FlashError
from crtgen.boards import find_board
from crtgen.cli.app import app
from crtgen.device.flash import FlashJob, flash
from crtgen.device.flash.vectors import read_vectors
from crtgen.device.run import Site
from crtgen.lab.measure.cases import read_cases
from tests.support import model_path, nightly, require_tool
from tests.zephyr.workspace import require_workspace


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def empty_board(board: str) -> Iterator[tuple[str, str, "subprocess.Popen[bytes]"]]:
    """A board with nothing in its memory, halted: the addresses of its gdb server and its serial port."""
    qemu = require_tool("qemu-system-arm", "apt install qemu-system-arm")
    require_tool("gdb-multiarch", "apt install gdb-multiarch")
    machine = find_board(board).qemu
    assert machine is not None
    gdb, serial = free_port(), free_port()
    command = [qemu, "-machine", machine.machine, "-nographic", "-monitor", "none", "-S"]
    lines = ["-gdb", f"tcp:127.0.0.1:{gdb}", "-serial", f"tcp:127.0.0.1:{serial},server=on,wait=off"]
    process = subprocess.Popen([*command, *lines], stdin=subprocess.DEVNULL)
    try:
        wait_for(serial)
        yield f"127.0.0.1:{gdb}", f"socket://127.0.0.1:{serial}", process
    finally:
        process.kill()
        process.wait()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"nobody listens at {port}")


@pytest.mark.qemu
@pytest.mark.zephyr
@pytest.mark.models
@pytest.mark.parametrize("platform", ["baremetal", nightly("zephyr")])
def test_load_then_run_and_verify(platform: str, tmp_path: Path) -> None:
    if platform == "zephyr":
        require_workspace()
    model = api.load(model_path("kws_int8")).compile("mps2_an385")
    info = model.modules[0].info
    project = model.generate(platform=platform).extract(tmp_path / "p")
    image = project.build()
    with empty_board("mps2_an385") as (gdb, serial, _):
        arguments = ["flash", str(project.directory), "--runner", "gdb", "--gdb-server", gdb]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        assert "matched" in result.stdout
        with image.run(site=Site(port=serial)) as session:
            for case in read_cases(model_path("kws_int8").with_suffix(".npz"), info.inputs, info.outputs):
                np.testing.assert_array_equal(session.infer(*case.inputs)[0], case.outputs[0])


@pytest.mark.qemu
@pytest.mark.models
def test_what_gdb_cannot_do(tmp_path: Path) -> None:
    require_tool("gdb-multiarch", "apt install gdb-multiarch")
    image = api.load(model_path("hello_world_int8")).compile("mps2_an385").generate().build()
    board = find_board("mps2_an385")
    vectors = read_vectors(image.path)
    assert vectors.address == 0
    assert 0x20000000 < vectors.stack <= 0x20000000 + (4 << 20)
    assert vectors.reset & 1
    with pytest.raises(FlashError, match="no probe answers"):
        flash(FlashJob(image.path, board, gdb_server=f"127.0.0.1:{free_port()}"), "gdb", timeout=60)
    library = tmp_path / "x.elf"
    library.write_bytes(b"nothing")
    with pytest.raises(FlashError, match="not an ELF file"):
        flash(FlashJob(library, board), "gdb")
