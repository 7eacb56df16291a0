"""Firmware for MLPerf Tiny, and a runner that says what EEMBC's says."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from crtgen import api
from crtgen.base.errors import UsageError
from crtgen.boards import find_board
from crtgen.device.run import Device, start_device
from tests.support import ROOT, model_path, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"


class Runner:
    """Sends commands, each with its end, and reads until the device is ready again."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._text = ""
        self.hello = self._until_ready()

    def ask(self, command: str) -> list[str]:
        self._device.stream.write(f"{command}%".encode())
        return self._until_ready()

    def load(self, data: bytes) -> None:
        """An input, 32 bytes a command."""
        assert self.ask(f"db load {len(data)}") == [f"m-[Expecting {len(data)} bytes]"]
        answers = [self.ask(f"db {data[at : at + 32].hex()}") for at in range(0, len(data), 32)]
        assert [*filter(None, answers)] == [["m-load-done"]]

    def infer(self, count: int, warm_ups: int) -> tuple[list[str], int]:
        """The results of so many runs, and the microseconds that they took."""
        first, done, start, before, after, end, results = self.ask(f"infer {count} {warm_ups}")
        assert (first, done) == (f"m-warmup-start-{warm_ups}", "m-warmup-done")
        assert (start, end) == (f"m-infer-start-{count}", "m-infer-done")
        times = [int(line.removeprefix("m-lap-us-")) for line in (before, after)]
        assert results.startswith("m-results-[")
        return results.removeprefix("m-results-[").removesuffix("]").split(","), times[1] - times[0]

    def _until_ready(self) -> list[str]:
        while not self._text.endswith("m-ready\r\n"):
            self._text += self._device.stream.read(30).decode()
        *lines, ready, end = self._text.split("\r\n")
        assert (ready, end) == ("m-ready", "")
        self._text = ""
        return lines


@contextmanager
def running(
    model: Path, board: str, folder: Path | None = None, keep_inputs: bool = False
) -> Iterator[Runner]:
    require_tool("gcc" if board == "host" else "qemu-system-arm")
    if folder is None:
        image = api.load(model).compile(board, keep_inputs=keep_inputs).generate("mlperftiny").build()
    else:
        image = api.open_project(folder).build()
    with start_device(image.path, find_board(board)) as device:
        yield Runner(device)


def results_of(y: np.ndarray, scale: float, zero: int) -> list[str]:
    return [f"{np.float32(scale) * (int(q) - zero):.3f}" for q in y.ravel()]


@pytest.mark.qemu
@pytest.mark.models
def test_keyword_spotting_in_performance_mode() -> None:
    cases = np.load(model_path("kws_int8").with_suffix(".npz"))
    with running(model_path("kws_int8"), "mps2_an386") as runner:
        mode, lap, ready = runner.hello
        assert (mode, ready) == ("m-timestamp-mode-performance", "m-init-done")
        assert re.fullmatch(r"m-lap-us-\d+", lap)
        assert runner.ask("name") == ["m-name-dut-[crtgen]"]
        profile = ["m-profile-[ULPMark for tinyML Firmware V0.0.1]", "m-model-[kws01]"]
        assert runner.ask("profile") == profile
        assert re.fullmatch(r"m-lap-us-\d+", runner.ask("timestamp")[0])
        for case in ("case0", "case1"):
            x, y = cases[f"{case}_input0"], cases[f"{case}_output0"]
            runner.load(x.tobytes())
            results, one = runner.infer(1, 0)
            assert results == results_of(y, 1 / 256, -128)
            again, ten = runner.infer(10, 1)
            assert again == results
            assert 8 * one < ten < 12 * one
        assert runner.ask("results") == [f"m-results-[{','.join(results)}]"]
        printed = "".join(line.removeprefix("m-buffer-") + "-" for line in runner.ask("db print"))
        assert bytes.fromhex(printed.replace("-", "")) == x.tobytes()


@pytest.mark.cc
@pytest.mark.models
def test_pixels_are_shifted() -> None:
    cases = np.load(model_path("ic01_int8").with_suffix(".npz"))
    x, y = cases["case0_input0"], cases["case0_output0"]
    with running(model_path("ic01_int8"), "host", keep_inputs=True) as runner:
        runner.load((x.view(np.uint8) ^ 0x80).tobytes())
        assert runner.infer(2, 1)[0] == results_of(y, 1 / 256, -128)


@pytest.mark.cc
@pytest.mark.models
@pytest.mark.parametrize("kind", ["int8", "float32"])
def test_anomaly_detection_compares_output_and_input(kind: str) -> None:
    path = model_path(f"ad01_{kind}")
    (module,) = api.load(path).compile("host").modules
    cases = np.load(path.with_suffix(".npz"))
    x, y = cases["case0_input0"].ravel(), cases["case0_output0"].ravel()
    given, result = module.info.inputs[0].quant, module.info.outputs[0].quant
    if given and result:
        real = (np.float32(given.scales[0]) * (x.astype(np.int32) - given.zero_points[0])).astype(np.float32)
        y = np.float32(result.scales[0]) * (y.astype(np.int32) - result.zero_points[0])
    else:
        real = x
    with running(path, "host") as runner:
        runner.load(real.tobytes())
        (error,) = runner.infer(1, 0)[0]
    assert float(error) == pytest.approx(float(np.mean((y - real) ** 2)), rel=1e-4, abs=6e-4)


@pytest.mark.cc
@pytest.mark.models
def test_energy_mode_pulls_a_pin(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    api.load(model_path("kws_int8")).compile("host").generate("mlperftiny").extract(folder)
    main = folder / "platform" / "main.c"
    pin = (
        'void energy_pin(int high) { put(high ? "high\\r\\n" : "low\\r\\n"); }\n\nstatic void timestamp(void)'
    )
    text = main.read_text().replace("#define ENERGY 0", "#define ENERGY 1")
    main.write_text(text.replace("static void timestamp(void)", pin))
    with running(model_path("kws_int8"), "host", folder) as runner:
        assert runner.hello == ["m-timestamp-mode-energy", "low", "high", "m-init-done"]
        lines = runner.ask("infer 1 0")
        assert lines[2:-1] == ["m-infer-start-1", "low", "high", "low", "high", "m-infer-done"]


@pytest.mark.cc
@pytest.mark.models
def test_what_is_no_command_is_answered() -> None:
    with running(model_path("kws_int8"), "host") as runner:
        for command, answer in (
            ("", "e-[Unknown command: ]"),
            ("  nonsense now", "e-[Unknown command: nonsense]"),
            ("x" * 500, f"e-[Unknown command: {'x' * 80}]"),
            ("db", "e-[Command 'db' requires a subcommand]"),
            ("db load", "e-[Command 'db load' takes 1 to 490 bytes]"),
            ("db load 491", "e-[Command 'db load' takes 1 to 490 bytes]"),
            ("db load 99999999999999", "e-[Command 'db load' takes 1 to 490 bytes]"),
            ("infer 0", "e-[Inference iterations must be >0]"),
        ):
            assert runner.ask(command) == [answer], command
        assert runner.ask("db 00") == []  # nothing was announced
        assert runner.ask("db load 2") == ["m-[Expecting 2 bytes]"]
        assert runner.ask("db 012") == ["e-[Insufficent number of hex digits]"]
        assert runner.ask("db 0g") == ["e-[Invalid hex digit]"]
        assert runner.ask("db aBCdef") == ["m-load-done"]
        assert runner.ask("db print") == ["m-buffer-ab-cd"]


def test_other_networks_are_refused() -> None:
    compiled = api.load(DIGITS).compile("mps2_an386")
    with pytest.raises(UsageError, match="the model is not one of MLPerf Tiny's"):
        compiled.generate("mlperftiny")
