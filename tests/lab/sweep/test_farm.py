"""A farm of two simulated boards: QEMU with nothing in its memory, flashed by gdb."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Timer

import pytest
from typer.testing import CliRunner

from crtgen.cli.app import app
from crtgen.lab.sweep.matrix import read_sweep
from crtgen.lab.sweep.run import Watch, WorkerPool, run_sweep
from crtgen.lab.sweep.store import JobStore, StoreRow
from tests.device.flash.test_gdb import empty_board
from tests.support import ROOT

distributed = pytest.importorskip("distributed")

BOARD = "bench_an385"
ON_BENCH = """
[flash]
runners = ["openocd"]
openocd = ["board/bench.cfg"]

[serial]
baud = 115200
"""
MAP = "- connected: true\n  platform: {}\n  runner: gdb\n  gdb_server: {}\n  serial: {}\n"


class KillOne(Watch):
    """Ends a worker when it has just begun with a job."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process

    def running(self, dashboard: str) -> None:
        Timer(1.5, self.process.kill).start()


@pytest.fixture
def boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Two of them, each named by a hardware map of its own: ``0.yml`` and ``1.yml``."""
    described = (ROOT / "boards" / "mps2_an385.toml").read_text()
    (tmp_path / f"{BOARD}.toml").write_text(described.partition("[qemu]")[0] + ON_BENCH)
    monkeypatch.setenv("CRTGEN_BOARDS", str(tmp_path))
    with ExitStack() as stack:
        processes = []
        for number in range(2):
            gdb, serial, process = stack.enter_context(empty_board("mps2_an385"))
            (tmp_path / f"{number}.yml").write_text(MAP.format(BOARD, gdb, serial))
            processes.append(process)
        yield processes


@contextmanager
def farm(folder: Path, count: int = 2) -> Iterator[tuple[str, list["subprocess.Popen[bytes]"]]]:
    """A scheduler, its address, and ``crtgen worker`` for so many of the maps."""
    command = [sys.executable, "-m", "crtgen", "worker"]
    with distributed.LocalCluster(n_workers=0, dashboard_address=None, silence_logs=50) as cluster:
        address = cluster.scheduler_address
        workers = [
            subprocess.Popen(
                [*command, address, "--hardware-map", str(folder / f"{n}.yml")],
                env={**os.environ, "CRTGEN_TRUST": "1"},
            )
            for n in range(count)
        ]
        try:
            cluster.wait_for_workers(count, timeout=60)
            yield address, workers
        finally:
            for process in workers:
                process.send_signal(signal.SIGTERM)
            for process in workers:
                process.wait(60)


def swept(folder: Path, text: str, address: str, watch: Watch) -> list[StoreRow]:
    """The rows of a sweep of digits on these boards."""
    (folder / "digits.tflite").write_bytes((ROOT / "demo" / "digits.tflite").read_bytes())
    file = folder / "sweep.toml"
    file.write_text(f'models = ["digits.tflite"]\nboards = ["{BOARD}"]\ncases = 1\n{text}\n')
    with JobStore(folder / "s.db") as store:
        sweep = run_sweep(read_sweep(file), store, WorkerPool(address), watch=watch)
        return list(store.rows(sweep))


@pytest.mark.qemu
@pytest.mark.nightly
@pytest.mark.usefixtures("boards")
def test_a_worker_is_killed_in_mid_job(tmp_path: Path) -> None:
    """The other board does its job, too; both are verified and measured on a board."""
    with farm(tmp_path) as (address, (first, second)):
        rows = swept(tmp_path, 'optimize = ["speed", "size"]', address, KillOne(first))
        assert first.wait(60) == -signal.SIGKILL
        assert second.poll() is None
    assert [(row.state, row.message) for row in rows] == [("done", "")] * 2
    assert all(f"-{second.pid}-{BOARD}" in row.worker and row.figures["seconds"] > 0 for row in rows)


@pytest.mark.qemu
@pytest.mark.nightly
def test_a_board_is_unplugged(tmp_path: Path, boards: list["subprocess.Popen[bytes]"]) -> None:
    """Jobs run on the other one, and fail with the reason when that is gone, too."""
    with farm(tmp_path) as (address, (first, _)):
        boards[0].kill()
        rows = swept(tmp_path, 'optimize = ["speed", "size"]', address, Watch())
        assert [(row.state, row.message) for row in rows] == [("done", "")] * 2
        assert not any(f"-{first.pid}-" in row.worker for row in rows)
        boards[1].kill()
        (row,) = swept(tmp_path, 'optimize = ["balanced"]', address, Watch())
    assert (row.state, row.error) == ("failed", "FlashError")
    assert "no probe answers" in row.message


def test_nothing_to_lend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serial.tools.list_ports.comports", list)
    (tmp_path / "m.yml").write_text("- connected: true\n  platform: nrf52840dk\n  id: 5\n")
    result = CliRunner().invoke(
        app, ["worker", "tcp://127.0.0.1:1", "--hardware-map", str(tmp_path / "m.yml")]
    )
    assert result.exit_code == 2
    assert "nrf52840dk at no port: left out, a hardware map has to name its serial port" in result.stderr
    assert "no connected board can be identified" in result.stderr


def test_what_keeps_workers_apart_does_not_stay_here() -> None:
    """Programs that are scripts of Python beside modules of their own would not find them."""
    from crtgen.lab.sweep.farm import local_cluster

    with local_cluster(1) as client:
        assert client.submit(os.getenv, "PYTHONSAFEPATH", pure=False).result(60) == ""
    assert "PYTHONSAFEPATH" not in os.environ
