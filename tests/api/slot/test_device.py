"""Models in slots of devices in QEMU: exchanged, refused, tried and given up, with exact outputs."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import crtgen
from crtgen.api import Compiled, Model
from crtgen.api.slot import Delta, make_slot, push
from crtgen.base import endpoints
from crtgen.base.errors import RemoteError, UsageError
from crtgen.base.text import DeviceText
from crtgen.boards import Board, find_board, name_board
from crtgen.cli.app import app
from crtgen.compiler.byoc import read_generator
from crtgen.compiler.codegen.slot_image import SlotImage
from crtgen.compiler.request import RequestFields
from crtgen.device.local_boards import LocalBoard
from crtgen.device.rpc.client import Client
from crtgen.device.run import Site
from crtgen.lab.measure.benchmark import profile_model
from crtgen.lab.measure.verification import verify
from crtgen.lab.sweep.address import content_digest
from crtgen.lab.sweep.job import Job, run_job
from crtgen.network.ir import Array, Value
from tests.proof.checker.test_npu import two_calls
from tests.support import ROOT, model_path, models_dir, nightly, require_rp2040js, require_tool

pytestmark = pytest.mark.qemu

DIGITS = ROOT / "demo" / "digits.tflite"


@contextmanager
def _device(server: Compiled) -> Iterator[Client]:
    with server.generate(slots=True).build().run() as session:
        yield session.client


def _bytes(rng: np.random.Generator, value: Value) -> Array:
    return rng.integers(-128, 128, value.shape).astype(value.dtype.numpy)


def _runs(model: Model, count: int) -> list[tuple[Array, ...]]:
    rng = np.random.default_rng(5)
    return [tuple(_bytes(rng, v) for v in model.inputs) for _ in range(count)]


def _infer(client: Client, model: Model, runs: list[tuple[Array, ...]]) -> list[tuple[Array, ...]]:
    """By the model of the slot, whose name may be that of a model in the image, too: it is the last one."""
    executor = client.aot_executor(model.name)
    executor.reset()
    outputs = []
    for inputs in runs:
        for index, array in enumerate(inputs):
            executor.input(index).write(array)
        executor.run(timeout=100)
        outputs.append(tuple(executor.output(i).read() for i in range(len(model.outputs))))
    return outputs


def _expected(model: Model, runs: list[tuple[Array, ...]]) -> list[tuple[Array, ...]]:
    return list(model.graph.run(runs))


def _assert_exact(client: Client, model: Model, runs: int = 1) -> None:
    inputs = _runs(model, runs)
    for made, wanted in zip(_infer(client, model, inputs), _expected(model, inputs), strict=True):
        for a, b in zip(made, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


def _restart(client: Client) -> None:
    client.slot_call(endpoints.SLOT_START)


def _with(image: SlotImage, **changes: object) -> bytes:
    return replace(image, **changes).data  # type: ignore[arg-type]


def test_a_model_is_exchanged_tried_and_given_up() -> None:
    """Version 1 in slot a, 2 in b: on trial, given up, again, confirmed; then a delta makes 3 in a."""
    board = find_board("mps2_an386")
    one = crtgen.load(DIGITS).compile(board=board)
    other = crtgen.load(model_path("kws_int8"))
    assert isinstance(other, Model)
    made = other.compile(board=board)
    a, b = make_slot(made, "a"), make_slot(made, "b", version=2)
    with _device(one) as client:
        assert push(client, a).active
        _assert_exact(client, other)
        assert not push(client, b).active
        _assert_exact(client, other)  # by a, still
        tries = 3
        for left in range(tries - 1, -1, -1):
            _restart(client)
            state = client.slots()
            assert state is not None
            assert (state.active, state.trial, state.tries) == (1, True, left)
            _assert_exact(client, other)
            with pytest.raises(RemoteError, match="the slot is in use"):
                push(client, a)
        _restart(client)
        state = client.slots()
        assert state is not None
        assert (state.active, state.trial) == (0, False)
        _assert_exact(client, other)
        push(client, b)
        _restart(client)
        client.slot_call(endpoints.SLOT_CONFIRM)
        state = client.slots()
        assert state is not None
        assert (state.active, state.trial) == (1, False)
        delta = Delta.between(b, replace(a, version=3), 16)
        assert len(delta.data) < 0.02 * len(a.data)  # addresses alone
        assert push(client, Delta.read(delta.data, "delta")).sent < len(delta.data)
        _restart(client)
        _assert_exact(client, other)
        client.slot_call(endpoints.SLOT_REVERT)
        _restart(client)
        state = client.slots()
        assert state is not None
        assert state.active == 1


@pytest.mark.nightly
def test_a_model_in_a_slot_uses_the_npu_by_the_firmwares_driver(tmp_path: Path) -> None:
    """Firmware without a driver refuses it, and a model without an NPU runs beside one."""
    pytest.importorskip("ethosu")
    path, board = tmp_path / "calls.tflite", find_board("mps3_an547")
    path.write_bytes(two_calls())
    npu: RequestFields = {"generators": [read_generator("ethos-u:config=board")], "fallback": True}
    digits, calls = crtgen.load(DIGITS), crtgen.load(path)
    assert isinstance(digits, Model)
    assert isinstance(calls, Model)
    image = make_slot(calls.compile(board=board, **npu), "ram")
    assert image.core & 256
    with _device(digits.compile(board=board, **npu)) as client:
        push(client, image)
        _assert_exact(client, calls, 3)
        push(client, make_slot(calls.compile(board=board), "ram"))
        _assert_exact(client, calls)
        push(client, image)
        _assert_exact(client, calls)
    with (
        _device(digits.compile(board=board)) as client,
        pytest.raises(RemoteError, match="this core does not have, or an NPU"),
    ):
        push(client, image)


def test_bad_images_are_refused_and_the_model_runs_on() -> None:
    board = find_board("mps2_an386")
    compiled = crtgen.load(DIGITS).compile(board=board)
    digits = crtgen.load(DIGITS)
    assert isinstance(digits, Model)
    a, b = make_slot(compiled, "a", version=2), make_slot(compiled, "b", version=2)
    helium = b.core | 16
    bad = {
        "instructions that this core does not have": _with(b, core=helium),
        "another place or other working memory": _with(b, work=0x20000000),
        "takes more of the stack": _with(b, stack=1 << 20),
        "its bytes are damaged": b.data[:-5] + b"\0" + b.data[-4:],
        "does not fit into the slot, or is cut short": b.data[:8] + b"\xff\xff\xff\x7f" + b.data[12:],
        "another release of the runtime": b.data[:6] + b"\x09" + b.data[7:],
        "there is no image of a model": b"none" + b.data[4:],
    }
    with _device(compiled) as client:
        push(client, a)
        for reason, data in bad.items():
            with pytest.raises(RemoteError, match=reason):
                push(client, _Raw(b, data))  # type: ignore[arg-type]
            state = client.slots()
            assert state is not None
            assert (state.active, state.places[0].status) == (0, 0)
            _assert_exact(client, digits)
        for data in (b.data[: len(b.data) // 2], b.data[:50]):
            with pytest.raises(RemoteError, match="the model is refused"):
                push(client, _Raw(b, data))  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="the image is for a slot at 0x12345000"):
            push(client, replace(b, origin=0x12345000))
        with pytest.raises(RemoteError, match="there is no such slot"):
            client.slot_call(endpoints.SLOT_COMMIT, 7)
        for slot in (1 << 32, (1 << 32) + 1, -1, -(1 << 32)):  # of 64 bits: none is slot 0 or 1
            for call in (endpoints.SLOT_BEGIN, endpoints.SLOT_COMMIT):
                with pytest.raises(RemoteError, match="there is no such slot"):
                    client.slot_call(call, slot)
        client.slot_call(endpoints.SLOT_BEGIN, 1)
        for words in (
            (1, 1 << 32, 0, 0, 16),
            (1, 0, 1 << 32, 0, 16),
            (1, 0, 0, 1 << 32, 16),
            (1, 0, 0, 0, 1 << 32),
        ):
            with pytest.raises(RemoteError, match="there is no such slot, or place in it"):
                client.slot_call(endpoints.SLOT_COPY, *words)
        client.slot_call(endpoints.SLOT_COPY, 1, 0, 0, 0, 16)
        with client.allocate((8,), np.uint8) as place, pytest.raises(RemoteError, match="nothing was begun"):
            client.slot_call(endpoints.SLOT_WRITE, 0, 0, place)
        _assert_exact(client, digits)


class _Raw:
    """Bytes in the place of an image."""

    def __init__(self, image: SlotImage, data: bytes) -> None:
        self.origin, self.data = image.origin, data


_BOARDS = ("cortex-m0plus", "mps2_an385", "mps2_an386", "mps2_an500", "mps2_an505", "mps3_an547")
_NETWORKS = ("kws_int8", "vww_int8", "ic01_int8", "ad01_int8", "hello_world_int8", "v2_okay_nabu")


def _board(folder: Path, name: str) -> Board:
    """A board of QEMU; a Cortex-M3 executes what a Cortex-M0+ does."""
    if name != "cortex-m0plus":
        return find_board(name)
    text = (ROOT / "boards" / "mps2_an385.toml").read_text()
    file = folder / "m0plus.toml"
    file.write_text(text.replace('core = "cortex-m3"', f'core = "{name}"'))
    return name_board(file)


def _network(name: str) -> Model:
    streaming = models_dir().parent / "networks" / "streaming" / f"{name}.tflite"
    model = crtgen.load(streaming if name.startswith("v2") else model_path(name))
    assert isinstance(model, Model)
    return model


@pytest.mark.models
@pytest.mark.parametrize("board", [nightly(board) for board in _BOARDS])
def test_networks_in_slots(tmp_path: Path, board: str) -> None:
    """Each network in RAM, then in flash; the wake word keeps its states from run to run."""
    found = _board(tmp_path, board)
    with _device(crtgen.load(DIGITS).compile(board=found)) as client:
        for number, name in enumerate(_NETWORKS):
            model = _network(name)
            compiled = model.compile(board=found)
            push(client, make_slot(compiled, "ram"))
            _assert_exact(client, model, 3)
            push(client, make_slot(compiled, "ab"[number % 2]))
            _restart(client)
            client.slot_call(endpoints.SLOT_CONFIRM)
            _assert_exact(client, model, 3)


@contextmanager
def _bench(folder: Path, profile: bool = False) -> Iterator[Path]:
    """The serial line of a device that runs firmware with slots, and only that.

    A device that measures counts instructions: its ticks are the same on a busy computer.
    """
    generated = crtgen.load(DIGITS).compile(board="mps2_an386").generate(slots=True, profile=profile)
    image, line = generated.build(), folder / "serial"
    counting = ("-icount", "shift=0,align=off,sleep=off") if profile else ()
    command = [
        *(require_tool("qemu-system-arm"), "-machine", "mps2-an386", "-nographic", "-monitor", "none"),
        *("-serial", f"unix:{line},server=on,wait=off", "-kernel", str(image.path), *counting),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as device:
        try:
            _until_exists(line)
            yield line
        finally:
            device.kill()


def test_models_are_verified_by_a_device_that_runs(tmp_path: Path) -> None:
    """`verify --push ram`: two networks one after the other, by firmware that is neither's."""
    with _bench(tmp_path) as line:
        for name in ("hello_world_int8", "kws_int8"):  # the smallest: bytes take their time
            words = ["verify", str(model_path(name)), "--board", "mps2_an386", "--port", str(line)]
            done = CliRunner().invoke(app, [*words, "--cases", "2", "--push", "ram", "--json"])
            assert done.exit_code == 0, done.output
            assert (json.loads(done.stdout)["cases"], json.loads(done.stdout)["failed"]) == (2, 0)
    refused = CliRunner().invoke(app, ["verify", str(DIGITS), "--push", "ram"])
    assert refused.exit_code == 2
    assert "--push needs a running device" in refused.output


def test_layers_are_measured_in_a_slot(tmp_path: Path) -> None:
    """What `crtgen tune --push` measures: the ticks of each layer, and cases that are right."""
    file = model_path("hello_world_int8")
    compiled = crtgen.load(file).compile(board="mps2_an386")
    with _bench(tmp_path, profile=True) as line:
        checked: list[int] = []
        report = profile_model(
            compiled,
            site=Site(port=str(line), slot="ram"),
            check=lambda session: checked.append(len(verify(session, file, None, 2))),
        )
    assert checked == [2]
    ticks = [layer.ticks or 0 for layer in report.layers]
    assert len(ticks) == len(compiled.modules[0].info.layers)
    assert min(ticks) > 0
    assert ticks[1] > ticks[0] > ticks[2], "16 to 16 numbers, 1 to 16, 16 to 1"


def test_connected_boards_keep_their_firmware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`test --push ram` and a sweep with `push`: a board of the hardware map, to which nothing is flashed."""
    monkeypatch.setenv("CRTGEN_TRUST", "1")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "boards" / "mps2_an386.toml").read_text()
    real = tmp_path / "bench_m4.toml"
    without = text[: text.index("[qemu]")] + text[text.index("[zephyr]") :]
    real.write_text(
        without.replace(
            "[zephyr]", '[flash]\nrunners = ["pyocd"]\npyocd = "none"\n[serial]\nbaud = 115200\n[zephyr]'
        )
    )
    name_board(real)
    models = [str(model_path(name)) for name in ("hello_world_int8", "kws_int8")]
    with _bench(tmp_path) as line:
        entry = {"platform": "bench_m4", "connected": True, "id": "1", "serial": str(line)}
        (tmp_path / "map.yml").write_text(json.dumps([entry]))
        words = [
            "test",
            *models,
            "-b",
            "bench_m4",
            "--hardware-map",
            "map.yml",
            "--push",
            "ram",
            "--cases",
            "2",
        ]
        done = CliRunner().invoke(app, [*words, "--json"])
        assert done.exit_code == 0, done.output
        data = Path(models[0]).read_bytes()
        job = Job("hello_world_int8.tflite", content_digest(data), "bench_m4", cases=2, push="ram")
        unit = LocalBoard(("bench_m4",), DeviceText("1"), str(line))
        swept = run_job(job, {job.source: data}, Site(unit=unit))
    assert swept.error == "", swept.message
    assert swept.figures["seconds"] > 0
    ran = [(o["target"], o["cases"], o["failed"]) for o in json.loads(done.stdout)["outcomes"]]
    assert ran == [("host", 2, 0), ("board", 2, 0)] * 2


def _until_exists(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_what_is_in_the_slots_is_told_by_name(tmp_path: Path) -> None:
    """`crtgen slots`: empty at first, then on trial, confirmed, and back to the model before."""
    compiled = crtgen.load(DIGITS).compile(board="mps2_an386")
    with _bench(tmp_path) as line:

        def told(*words: str) -> list[tuple[str, str, int | None, str]]:
            done = CliRunner().invoke(app, ["slots", str(line), *words, "--json"])
            assert done.exit_code == 0, done.output
            rows = json.loads(done.stdout)["slots"]
            return [(row["slot"], row["model"], row["version"], row["state"]) for row in rows]

        empty = [(name, "", None, "empty") for name in ("a", "b", "ram")]
        assert told() == empty
        for name, version in (("a", 3), ("b", 4)):
            file = tmp_path / name
            file.write_bytes(make_slot(compiled, name, version=version).data)
            done = CliRunner().invoke(app, ["push", str(file), "--port", str(line)])
            assert f"slot {name}: " in done.output
        trial = "on trial, 3 starts left to confirm it"
        waiting = ("b", "digits", 4, f"runs from the next start on, {trial}")
        assert told()[:2] == [("a", "digits", 3, "runs"), waiting]
        assert told("--confirm") == [
            ("a", "digits", 3, "the previous one"),
            ("b", "digits", 4, "runs"),
            empty[2],
        ]
        assert told("--revert")[:2] == [("a", "digits", 3, "runs"), ("b", "digits", 4, "the previous one")]
        both = CliRunner().invoke(app, ["slots", str(line), "--confirm", "--revert"])
        assert both.exit_code == 2
        plain = CliRunner().invoke(app, ["slots", str(line)])
        assert plain.stdout.splitlines() == [
            "a    digits    3  runs",
            "b    digits    4  the previous one",
            "ram               empty",
        ]


@pytest.mark.parametrize("cores", [nightly(1), 2])
def test_a_simulated_pico_is_out_of_its_flash_while_that_is_written(cores: int) -> None:
    """The simulator ends if a core fetches from the flash meanwhile; both compute afterwards."""
    require_rp2040js()
    compiled = crtgen.load(DIGITS).compile(board="rpi_pico", cores=cores)
    digits = crtgen.load(DIGITS)
    assert isinstance(digits, Model)
    image = make_slot(crtgen.load(DIGITS).compile(board="rpi_pico"), "a", version=5)
    with compiled.generate(slots=True).build().run(site=Site(simulate=True)) as session:
        push(session.client, image)
        state = session.client.slots()
        assert state is not None
        assert (state.active, state.places[0].version, str(state.places[0].model)) == (0, 5, "digits")
        _assert_exact(session.client, digits)
        (inputs,) = _runs(digits, 1)
        (expected,) = _expected(digits, [inputs])
        np.testing.assert_array_equal(session.infer(*inputs)[0], expected[0])
