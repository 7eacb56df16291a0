"""The black box: recorded in QEMU, read, replayed here and there; a broken kernel is named by its layer."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import crtgen
from crtgen.api import Model
from crtgen.base.errors import ProtocolError
from crtgen.cli.app import app
from crtgen.device.session import Session
from crtgen.lab.measure.cases import read_cases
from crtgen.lab.measure.layers import verify_layers
from crtgen.lab.measure.recording import RecordedRun, read_memory, write_recording, write_sds
from crtgen.network.ir import Array, Value
from tests.support import ROOT, models_dir

DIGITS = ROOT / "demo" / "digits.tflite"
RUNS = 8


def _bytes(rng: np.random.Generator, value: Value) -> Array:
    return rng.integers(-128, 128, value.shape).astype(value.dtype.numpy)


def _inputs(model: Model, count: int) -> list[tuple[Array, ...]]:
    rng = np.random.default_rng(3)
    return [tuple(_bytes(rng, v) for v in model.inputs) for _ in range(count)]


def _read(session: Session) -> tuple[RecordedRun, ...]:
    memory, box = session.recording()
    return read_memory(memory, session.model(), box.runs, box.state_bytes)


@pytest.mark.qemu
def test_the_last_runs_are_read_and_replayed(tmp_path: Path) -> None:
    model = crtgen.load(DIGITS)
    assert isinstance(model, Model)
    inputs = _inputs(model, 11)
    project, file = tmp_path / "project", tmp_path / "recorded.npz"
    image = model.compile(board="mps2_an386").generate(record=RUNS).extract(project).build()
    with image.run() as session:
        expected = [session.infer(*each) for each in inputs]
        runs = _read(session)
        assert [run.number for run in runs] == list(range(11 - RUNS, 11))
        for run, given, made in zip(runs, inputs[-RUNS:], expected[-RUNS:], strict=True):
            np.testing.assert_array_equal(run.inputs[0], given[0])
            np.testing.assert_array_equal(run.outputs[0], made[0])
        write_recording(file, session.model(), runs)
        sds = write_sds(tmp_path, session.model(), runs)
    records = sds[0].read_bytes()
    assert len(records) == RUNS * (8 + 64)
    assert struct.unpack_from("<II", records) == (11 - RUNS, 64)
    assert records[8:72] == inputs[11 - RUNS][0].tobytes()
    done = CliRunner().invoke(app, ["replay", str(file), str(DIGITS), "--board", "host", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["cases"] == RUNS
    for words, found in (
        ([], "digits did not run yet: there is nothing to write"),
        (["--cbor", str(tmp_path / "counted.cbor")], "the firmware does not count inputs"),
        (["--model", "kws"], "there is no black box of kws"),
    ):
        empty = tmp_path / "empty.npz"
        words = [*words, "-o", str(empty), "--sds", str(tmp_path / "sds")]
        done = CliRunner().invoke(app, ["record", str(project), *words])
        assert done.exit_code == 2, done.output
        assert found in done.output
        assert not empty.exists(), "a half of what was asked for"
        assert not list((tmp_path / "sds").iterdir())


@pytest.mark.qemu
@pytest.mark.models
def test_states_are_recorded_and_set_again(tmp_path: Path) -> None:
    """The oldest runs are overwritten: the recording begins with what lived before those that are left."""
    network = models_dir().parent / "networks" / "streaming" / "v2_okay_nabu.tflite"
    model = crtgen.load(network)
    assert isinstance(model, Model)
    image = model.compile(board="mps2_an386").generate(record=RUNS).build()
    file = tmp_path / "recorded.npz"
    with image.run(counting=True) as session:
        for each in _inputs(model, 13):
            session.infer(*each)
        runs = _read(session)
        assert [(run.number, run.follows) for run in runs][:2] == [(8, False), (9, True)]
        assert len(runs[0].state) == session.model().state
        write_recording(file, session.model(), runs)
        info = session.model()
        ticks = session.measure(3 * RUNS).ticks[RUNS:]
        copied = (max(ticks) - min(ticks)) * session.instructions_per_tick()
        assert copied < session.model().state / 5, "64 bytes of the states at once, once in half of the runs"
    assert read_cases(file, info.inputs, info.outputs)[0].state == runs[0].state
    for board in ("host", "mps2_an385"):
        done = CliRunner().invoke(app, ["replay", str(file), str(network), "--board", board, "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["cases"] == len(runs)


@pytest.mark.qemu
def test_a_broken_kernel_is_named_by_its_layer(tmp_path: Path) -> None:
    """What firmware with a broken kernel recorded is not what the network computes; the layer is named."""
    model = crtgen.load(DIGITS)
    assert isinstance(model, Model)
    generated = model.compile(board="mps2_an386").generate(record=2, profile=True)
    extracted = generated.extract(tmp_path / "project")
    code = tmp_path / "project" / "model" / "digits.c"
    done = "CRT_LAYER_DONE(&digits_drift_reference, 3);"
    text = code.read_text()
    assert text.count(done) == 2  # of a run, and of one in steps
    wrong = "for (int i = 0; i < 64; i++) { DIGITS_ARENA[DIGITS_AT_MAX_POOL2D_1 + i] ^= 0x55; }"
    code.write_text(text.replace(done, f"{wrong} {done}"))
    file = tmp_path / "recorded.npz"
    with extracted.build().run() as session:
        for each in _inputs(model, 2):
            session.infer(*each)
        write_recording(file, session.model(), _read(session))
        cases = read_cases(file, session.model().inputs, session.model().outputs)
        verdicts = verify_layers(session, extracted.plans[0], cases[:1])
        assert next(v.layer for v in verdicts if v.wrong) == "max_pool2d_1"
    replayed = CliRunner().invoke(app, ["replay", str(file), str(DIGITS), "--board", "host", "--json"])
    assert replayed.exit_code == 8, replayed.output
    assert json.loads(replayed.stdout)["failed"] == 2


def test_memory_of_another_model_is_refused() -> None:
    model = crtgen.load(DIGITS)
    assert isinstance(model, Model)
    (info,) = [module.info for module in model.compile(board="host").modules]
    with pytest.raises(ProtocolError, match="the black box has 100 bytes, which is not the size for digits"):
        read_memory(bytes(100), info, RUNS, 0)
    size = 16 + RUNS * (8 + 64 + 12)
    assert read_memory(bytes(size), info, RUNS, 0) == ()
    head = struct.pack("<4I", 0x42545243, 0, 1, 0)
    unfinished = head + struct.pack("<2I", 0, 0) + bytes(range(64)) + bytes(size - 16 - 8 - 64)
    (run,) = read_memory(unfinished, info, RUNS, 0)
    assert (run.inputs[0].tobytes(), run.outputs) == (bytes(range(64)), ())
