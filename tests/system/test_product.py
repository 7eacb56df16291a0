"""The product of examples/product: updated, cut off, rolled back, and its failure found on the desk.

In QEMU a reset is asked for at the monitor, on the simulated Pico by a signal.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import wave
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from shutil import copyfile, rmtree
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import crtgen
from crtgen.api import Model
from crtgen.api.slot import make_slot
from crtgen.base.errors import LinkTimeoutError
from crtgen.boards import find_board
from crtgen.cli.app import app
from crtgen.device.run.rp2040 import start_rp2040
from crtgen.lab.measure.cases import read_cases
from crtgen.lab.measure.layers import verify_layers
from tests.network.pipeline.files import sound_dir
from tests.support import ROOT, nightly, require_rp2040js, require_tool

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(400)]

EXAMPLE = ROOT / "examples" / "product"
DIGITS = ROOT / "demo" / "digits.tflite"


def _loaded(name: str) -> Any:
    spec = spec_from_file_location(f"product_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


Product = _loaded("product").Product


@dataclass(frozen=True)
class _Product:
    """A product of the example: its network, a layer that a training may spoil, and its options in CMake."""

    network: Path
    layer: str
    options: tuple[str, ...] = ()


METER = _Product(DIGITS, "conv2d_1")


def _wake_word(folder: Path) -> _Product:
    """It hears "yes", the known word, then "no"."""
    given = np.load(sound_dir() / "given" / "e2e_micro_speech.npz")
    files = []
    for name in ("wav0", "wav1"):
        files.append(folder / f"{name}.wav")
        with wave.open(str(files[-1]), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16_000)
            file.writeframes(given[name].tobytes())
    network = folder / "v1" / "speech.tflite"
    network.parent.mkdir()
    copyfile(sound_dir() / "networks" / "micro_speech_quantized.tflite", network)
    sounds = ";".join(map(str, files))
    return _Product(
        network, "depthwise_conv2d", ("-DPRODUCT=wake_word", f"-DMODEL={network}", f"-DSOUNDS={sounds}")
    )


def _built(made: _Product, board: str, folder: Path) -> Path:
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi libnewlib-arm-none-eabi")
    cmake = require_tool("cmake")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for command in (
        [cmake, "-S", str(EXAMPLE), "-B", str(folder), "-G", "Ninja", f"-DBOARD={board}", *made.options],
        [cmake, "--build", str(folder)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning:" not in done.stdout + done.stderr
    return folder / "product.elf"


@contextmanager
def in_qemu(
    image: Path, machine: str = "mps2-an386", loaded: dict[int, Path] | None = None
) -> Iterator[tuple[Any, Callable[[], None]]]:
    """The product, and what resets it; QEMU loads further files to addresses at each reset."""
    folder = Path(mkdtemp())  # whose path is short enough for sockets
    line, monitor = folder / "line", folder / "monitor"
    line_end, monitor_end = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    for end, path in ((line_end, line), (monitor_end, monitor)):
        end.bind(str(path))
        end.listen(1)
        end.settimeout(60)
    command = [
        *(
            require_tool("qemu-system-arm"),
            "-machine",
            machine,
            "-display",
            "none",
            "-kernel",
            str(image),
        ),
        *("-monitor", f"unix:{monitor}", "-serial", f"unix:{line}"),
    ]
    for address, file in (loaded or {}).items():
        command += ["-device", f"loader,file={file},addr={address}"]
    with subprocess.Popen(command) as device:
        try:
            asked, _ = monitor_end.accept()
            serial, _ = line_end.accept()
            serial.settimeout(60)
            yield Product(serial.sendall, lambda: serial.recv(4096)), lambda: asked.sendall(b"system_reset\n")
        finally:
            device.kill()
            rmtree(folder)


@contextmanager
def _on_a_pico(image: Path) -> Iterator[tuple[Any, Callable[[], None]]]:
    device = start_rp2040(image, find_board("rpi_pico"))

    def receive() -> bytes:
        try:
            return device.stream.read(1.0)
        except LinkTimeoutError:
            return b""

    process = device.process
    assert process is not None
    try:
        yield Product(device.stream.write, receive), lambda: os.kill(process.pid, signal.SIGUSR2)
    finally:
        device.close()


@pytest.mark.parametrize(
    ("what", "board"),
    [
        ("meter", "mps2_an386"),
        nightly("meter", "rpi_pico"),
        nightly("wake word", "mps2_an386"),
        nightly("wake word", "rpi_pico"),
    ],
)
def test_a_failure_in_the_field_is_found_on_the_desk(what: str, board: str, tmp_path: Path) -> None:
    if board == "rpi_pico":
        require_rp2040js()
    made = METER if what == "meter" else _wake_word(tmp_path)
    image = _built(made, board, tmp_path / "build")
    bad = spoiled(tmp_path, made)
    with (in_qemu if board == "mps2_an386" else _on_a_pico)(image) as (product, reset):
        tried = play(product, reset, images(board, bad, made))
        if what == "wake word":
            assert [product.read() for _ in range(2)] == ["read 2, 99 %", "read 3, 94 %"]
    _find(made, tried, bad, tmp_path)


def spoiled(folder: Path, made: _Product = METER) -> Path:
    """A version of the network with one wrong layer."""
    bad = folder / "v2" / made.network.name
    _loaded("spoil").main(made.network, made.layer, bad)
    return bad


def images(board: str, bad: Path, made: _Product = METER) -> dict[int, bytes]:
    """The wrong network for the first slot, and the right one for the second, by version."""
    return {
        version: make_slot(crtgen.load(file).compile(board), slot, version=version).data
        for version, file, slot in ((2, bad, "a"), (3, made.network, "b"))
    }


def play(product: Any, reset: Callable[[], None], files: dict[int, bytes]) -> list[str]:
    """Cut an update off, roll a bad one back, keep a good one; return what the bad one said."""
    own = ["start: built-in", "self-test: right", "ready"]
    assert product.until("ready") == own
    answers = [product.read() for _ in range(3)]
    assert product.update(files[2], cut=len(files[2]) // 2) == "cut"
    reset()
    assert product.until("ready") == own, "a cut in the middle leaves the old model"
    assert product.update(b"nonsense" * 20) == "update -32"
    assert product.update(files[2]) == "update 0"
    tried = product.until("ready")
    assert tried.count("start: slot 0, version 2, on trial") == 3
    assert tried.count("self-test: WRONG") == 3
    assert tried[-3:] == own, "rolled back"
    assert [product.read() for _ in range(3)] == answers
    assert product.update(files[3]) == "update 0"
    good = ["start: slot 1, version 3, on trial", "self-test: right", "confirmed", "ready"]
    assert product.until("ready") == good
    reset()
    assert product.until("ready") == ["start: slot 1, version 3", *own[1:]]
    return list(tried)


def _find(made: _Product, told: list[str], bad: Path, folder: Path) -> None:
    """The log is replayed by both versions of the network, and the layer in which they differ is named."""
    name = made.network.stem
    (log := folder / "log").write_text("\n".join(told))
    field = folder / "field.npz"
    words = ["record", str(folder / "build" / name), "--file", str(log), "-o", str(field)]
    assert f"3 runs of {name}" in CliRunner().invoke(app, words).output
    replays = [
        CliRunner().invoke(app, ["replay", str(field), str(network), "--board", "host"])
        for network in (bad, made.network)
    ]
    assert "3 of 3 cases as expected" in replays[0].output, "the device computed what its network says"
    assert "0 of 3 cases as expected" in replays[1].output
    good = crtgen.load(made.network)
    assert isinstance(good, Model)
    plan = good.compile("mps2_an386").plans[0]
    with crtgen.load(bad).compile("mps2_an386").generate(record=2, profile=True).build().run() as session:
        cases = read_cases(field, session.model().inputs, session.model().outputs)
        verdicts = verify_layers(session, plan, cases[:1])
    assert next(v.layer for v in verdicts if v.wrong) == made.layer


def test_its_page_names_its_files() -> None:
    page = (ROOT / "docs" / "tutorials" / "product.md").read_text()
    for name in re.findall(r"`(\w+\.(?:c|h|py|in))`", page):
        assert (EXAMPLE / name).is_file() or name == "digits_field.h", name
