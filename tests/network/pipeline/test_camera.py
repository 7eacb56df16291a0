"""Pipelines of a camera: the joined graph, rows in any number, frames from files."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from PIL import Image
from typer.testing import CliRunner

import crtgen
from crtgen.base.errors import UsageError
from crtgen.cli.app import app
from crtgen.lab.measure.evaluation import Classified, evaluate
from crtgen.lab.measure.subject import Subject, reference
from crtgen.network.features import Features, ImageSettings
from crtgen.network.features.picture import frame_value, picture
from crtgen.network.features.steps import GraphSteps
from crtgen.network.ir import DType, Value
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from crtgen.network.pipeline import (
    Description,
    JoinedPipeline,
    events_of,
    read_description,
    read_samples,
    runs_of,
)
from crtgen.network.pipeline.frames import frame_of
from tests.network.pipeline.files import built, program, sound_dir
from tests.support import models_dir

_CAMERA = 'width = 160, height = 120, format = "rgb565"'
_PERSON = "labels = ['none', 'person']\nlabel = 'person'\nabove = 0.3"


def _network() -> Path:
    return sound_dir().parent / "networks" / "tflm" / "person_detect.tflite"


def _describe(folder: Path, camera: str, features: str, network: Path | None, decision: str = "") -> Path:
    file = folder / "seen.toml"
    parts = [f'[pipeline]\nname = "seen"\nsensor = {{ kind = "image", {camera} }}']
    parts.append(f'[features]\npreset = "image"\n{features}')
    parts += [f'[network]\nfile = "{network}"'] if network else []
    parts += [f"[decision]\n{decision}"] if decision else []
    file.write_text("\n".join(parts))
    return file


def _person(folder: Path, decision: str = _PERSON) -> Path:
    return _describe(
        folder, _CAMERA, 'crop = "square"\ngrey = "pillow"\npixels = "bytes"', _network(), decision
    )


def _load(file: Path) -> JoinedPipeline:
    model = crtgen.load(file)
    assert isinstance(model, crtgen.Model)
    assert model.pipeline is not None
    return model.pipeline


def _frames(count: int) -> npt.NDArray[np.uint16]:
    """Frames of RGB565 that are about as bright as pictures."""
    with np.load(sound_dir() / "images.npz") as arrays:
        scene = np.tile(arrays["rgb565_u16"], (2, 2))
    return np.stack([np.roll(scene, 31 * i, axis=1) for i in range(count)])


def test_outputs_are_those_of_the_network(tmp_path: Path) -> None:
    size = 'width = 96, height = 96, format = "grey"'
    pipeline = _load(_describe(tmp_path, size, 'pixels = "bytes"', _network()))
    with np.load(_network().with_suffix(".npz")) as arrays:
        for case in range(4):
            codes = arrays[f"case{case}_input0"].reshape(96, 96)
            frame = (codes.astype(np.int16) + 128).astype(np.uint8)
            ((output,),) = pipeline.graph.run([[frame]])
            np.testing.assert_array_equal(output, arrays[f"case{case}_output0"])


def test_a_frame_is_a_run(tmp_path: Path) -> None:
    pipeline = _load(_person(tmp_path))
    assert (pipeline.span, pipeline.hop, pipeline.before, pipeline.warm) == (120, 120, 0, 0)
    assert (pipeline.samples.shape, pipeline.samples.dtype.value) == ((120, 160), "uint16")
    ((output,),) = pipeline.graph.run([[_frames(1)[0]]])
    features = Features("image", frame_width=160, frame_height=120, format="rgb565", crop="square")
    features.set_params(grey="pillow", pixels="bytes")
    network = crtgen.load(_network())
    assert isinstance(network, crtgen.Model)
    ((expected,),) = network.graph.run([[features.quantized(_frames(1)[0])[None]]])
    np.testing.assert_array_equal(output, expected)


def test_mean_and_deviation_as_codes(tmp_path: Path) -> None:
    features = 'grey = "opencv"\nresize = "opencv-area"\nmean = [127.5]\nstd = [127.5]'
    pipeline = _load(_describe(tmp_path, _CAMERA, features, _network()))
    (table,) = (n for n in pipeline.graph.nodes if n.op.name == "byte_table")
    entry = pipeline.graph.values[table.outputs[0]].quant
    assert entry is not None
    real = (np.arange(256) - 127.5) / 127.5
    codes = np.clip(np.round(real / entry.scale) + entry.zero_point, -128, 127)
    made = pipeline.graph.values[table.inputs[1]].array()[0]
    assert int(np.abs(made - codes).max()) <= 1  # halves
    assert (made[0], made[255]) == (codes[0], codes[255])


def test_channels_that_come_first() -> None:
    features = Features("image", frame_width=8, frame_height=6, width=4, height=5)
    assert isinstance(features.settings, ImageSettings)
    frame = np.random.default_rng(3).integers(0, 256, (6, 8, 3), np.uint8)
    steps = GraphSteps(frame_value(features.settings), [0])
    made = picture(steps, features.settings, Value("x", (1, 3, 5, 4), DType.FLOAT32))
    ((output,),) = steps.graph("picture", made).run([[frame]])
    np.testing.assert_array_equal(output[0], features.transform(frame).transpose(2, 0, 1))


def test_a_network_with_channels_first_costs_no_transpose(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    sizes = (("x", [1, 3, 5, 4]), ("y", [1, 4, 3, 2]))
    ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in sizes]
    layer = onnx.helper.make_node("Conv", ["x", "w"], ["y"])
    tensor = onnx.numpy_helper.from_array(weights, "w")
    graph = onnx.helper.make_graph([layer], "first", ends[:1], ends[1:], [tensor])
    opset = [onnx.helper.make_opsetid("", 13)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "first.onnx")
    size = 'width = 8, height = 6, format = "rgb888"'
    pipeline = _load(_describe(tmp_path, size, "width = 4\nheight = 5", tmp_path / "first.onnx"))
    frame = np.random.default_rng(3).integers(0, 256, (6, 8, 3), np.uint8)
    ((output,),) = pipeline.graph.run([[frame]])
    network = crtgen.load(tmp_path / "first.onnx")
    assert isinstance(network, crtgen.Model)
    features = Features("image", frame_width=8, frame_height=6, width=4, height=5)
    ((expected,),) = network.graph.run([[features.transform(frame).transpose(2, 0, 1)[None]]])
    np.testing.assert_array_equal(output, expected)
    planned, _ = run_passes(pipeline.graph, DEFAULT_PASSES)
    turned = [n for n in planned.nodes if n.op.name == "transpose"]
    assert [planned.values[n.outputs[0]].shape for n in turned] == [(1, 4, 3, 2)]  # that of the output


def test_a_frame_that_stays_as_it_is_is_no_pipeline(tmp_path: Path) -> None:
    size = 'width = 4, height = 5, format = "rgb888"'
    file = _describe(tmp_path, size, 'width = 4\nheight = 5\npixels = "bytes"', None)
    with pytest.raises(UsageError, match="there is nothing to compute"):
        crtgen.load(file)


_MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "seen_pipeline.h"
int main(int count, char **words)
{
    static uint16_t rows[160 * 480];
    FILE *file = fopen(words[1], "rb");
    const uint32_t length = (uint32_t)fread(rows, 2 * 160, 480, file);
    const uint32_t most = (uint32_t)atoi(words[count - 1]);
    for (uint32_t at = 0; at < length; at += most) {
        struct seen_event event;
        const uint32_t part = (length - at < most) ? length - at : most;
        if (seen_push(rows + (SEEN_WIDTH * at), part, &event) > 0) {
            printf("%llu %u %d\\n", (unsigned long long)event.sample, event.label, event.score);
        }
    }
    return fclose(file);
}
"""


@pytest.mark.cc
def test_rows_come_in_any_number(tmp_path: Path) -> None:
    frames = _frames(4)
    frames.tofile(tmp_path / "rows")
    file = _person(tmp_path, "above = 0.0")
    pipeline = _load(file)
    runs = [[run] for run in runs_of(pipeline, frames.reshape(-1, 160))]
    events = events_of(pipeline, [y[0] for y in pipeline.graph.run(runs)])
    assert [event.sample for event in events] == [120, 240, 360, 480]
    made = program(file, tmp_path, _MAIN)
    for most in ("1", "7", "120"):
        command = [str(made), str(tmp_path / "rows"), most]
        done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
        assert done.stdout.splitlines() == [f"{e.sample} {e.label} {e.score}" for e in events], most


@pytest.mark.cc
def test_a_model_in_the_same_arena_runs_between_rows(tmp_path: Path) -> None:
    """The frame so far is not in the arena, which the other model overwrites."""
    frames = _frames(2)
    frames.tofile(tmp_path / "rows")
    file = _person(tmp_path, "above = 0.0")
    pipeline = _load(file)
    library = tmp_path / "library"
    models = [str(file), str(models_dir() / "hello_world_int8.tflite"), str(library)]
    command = ["generate", *models, "--board", "host", "--type", "library"]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    (shared,) = re.findall(r"CRT_SHARED_ARENA=\d+", (library / "CMakeLists.txt").read_text())
    declared = f"#include <stdint.h>\n#include <string.h>\nextern uint8_t crt_shared_arena[];\n{_MAIN}"
    clear = f"(void)memset(crt_shared_arena, 7, {shared.partition('=')[2]});"
    main = declared.replace("struct seen_event event;", f"struct seen_event event; {clear}")
    made = built(tmp_path, main, f"-D{shared}")
    command = [str(made), str(tmp_path / "rows"), "50"]
    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    runs = [[run] for run in runs_of(pipeline, frames.reshape(-1, 160))]
    events = events_of(pipeline, [y[0] for y in pipeline.graph.run(runs)])
    assert done.stdout.splitlines() == [f"{e.sample} {e.label} {e.score}" for e in events]


@pytest.mark.cc
def test_a_description_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the image is kept, which a changed network makes worthless."""
    monkeypatch.setattr("crtgen.cli.kept._images", lambda: tmp_path / "images")
    read: list[Path] = []

    def counted(file: Path) -> Description:
        read.append(file)
        return read_description(file)

    monkeypatch.setattr("crtgen.api.model.read_description", counted)
    file = _person(tmp_path)
    np.save(tmp_path / "frame.npy", _frames(1)[0])
    command = ["run", str(file), "--board", "host", "--input", str(tmp_path / "frame.npy")]
    for count in (1, 2):
        done = CliRunner().invoke(app, command, catch_exceptions=False)
        assert (done.exit_code, len(read)) == (0, count), done.output
    (kept,) = (tmp_path / "images").rglob("kept.json")
    assert {file.name, _network().name} < {
        Path(path).name for path in json.loads(kept.read_text().partition("\n")[2])["read"]
    }


@pytest.mark.cc
def test_a_picture_on_this_computer(tmp_path: Path) -> None:
    file = _person(tmp_path, "labels = ['none', 'person']\nabove = 0.0")
    with np.load(sound_dir() / "images.npz") as arrays:
        Image.fromarray(np.tile(arrays["rgb"], (4, 4, 1))).save(tmp_path / "seen.png")
    command = ["run", str(file), "--board", "host", "--input", str(tmp_path / "seen.png")]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "seen.png, 1 frame" in done.output
    assert "frame 1  " in done.output
    assert "1 event\n" in done.output


def test_what_becomes_of_pixels_is_said_once(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((120, 160, 3), np.uint8)).save(tmp_path / "seen.png")
    command = ["run", str(_person(tmp_path)), "--board", "host", "--input", str(tmp_path / "seen.png")]
    done = CliRunner().invoke(app, [*command, "--mean", "3"], catch_exceptions=False)
    assert done.exit_code != 0
    assert "leave --quantize-input, --mean and --std out" in done.output


def test_pictures_in_folders_are_counted(tmp_path: Path) -> None:
    pipeline = _load(_person(tmp_path))
    expected = [[0, 0], [0, 0]]
    for i, name in enumerate(("none", "person", "person")):
        (tmp_path / "data" / name).mkdir(parents=True, exist_ok=True)
        colours = np.random.default_rng(i).integers(0, 256, (120, 160, 3), np.uint8)
        Image.fromarray(colours).save(tmp_path / "data" / name / f"{i}.png")
        ((output,),) = pipeline.graph.run([[frame_of(colours, "rgb565")]])
        expected[i > 0][int(np.argmax(output))] += 1
    model = crtgen.load(_person(tmp_path))
    assert isinstance(model, crtgen.Model)
    found = evaluate(Subject.of(model), tmp_path / "data", reference(model)).result
    assert isinstance(found, Classified)
    assert [list(row) for row in found.confusion] == expected


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["host", "mps2_an386"])
def test_boards_compute_what_the_file_says(tmp_path: Path, board: str) -> None:
    command = ["verify", str(_person(tmp_path)), "--board", board]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert f"seen on {board}: 4 of 4 cases as expected" in done.output


@pytest.mark.parametrize(
    "form", ["rgb888", "rgb565", "yuyv", "bayer_rggb", "bayer_grbg", "bayer_gbrg", "bayer_bggr"]
)
def test_a_picture_as_the_camera_gives_it(form: str) -> None:
    colours = np.broadcast_to(np.array([200, 120, 40], np.uint8), (6, 8, 3))
    features = Features(
        "image", frame_width=8, frame_height=6, format=form, width=8, height=6, pixels="bytes"
    )
    seen = features.transform(frame_of(colours, form))
    assert int(np.abs(seen.astype(int) - colours).max()) <= (7 if form == "rgb565" else 2)


def test_frames_of_a_file(tmp_path: Path) -> None:
    pipeline = _load(_person(tmp_path))
    frames = _frames(2)
    np.save(tmp_path / "frames.npy", frames)
    np.testing.assert_array_equal(read_samples(tmp_path / "frames.npy", pipeline), frames.reshape(240, 160))
    np.save(tmp_path / "other.npy", frames[0].T)
    with pytest.raises(UsageError, match=r"no frame of uint16 and shape \[120, 160\]"):
        read_samples(tmp_path / "other.npy", pipeline)
    Image.fromarray(np.zeros((100, 100, 3), np.uint8)).save(tmp_path / "square.png")
    with pytest.raises(UsageError, match="it has 100x100 pixels, the sensor 160x120"):
        read_samples(tmp_path / "square.png", pipeline)


@pytest.mark.parametrize(
    ("camera", "features", "decision", "said"),
    [
        (_CAMERA.replace("rgb565", "rgb555"), "", "", "unknown format 'rgb555'"),
        ("width = 160, height = 120", "", "", "format: the key is missing"),
        (_CAMERA, "frame_width = 5", "", "frame_width: the sensor says that"),
        (_CAMERA, "", "", "a picture of 96x96 with 3 channels does not fit"),
        (
            _CAMERA,
            'grey = "pillow"',
            "quiet = 2.0",
            "[decision] has times in seconds, but the sensor has no rate",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, camera: str, features: str, decision: str, said: str) -> None:
    file = _describe(tmp_path, camera, features, _network(), decision)
    with pytest.raises(UsageError) as caught:
        crtgen.load(file)
    assert said in str(caught.value)


def test_a_camera_has_no_gate(tmp_path: Path) -> None:
    file = _person(tmp_path)
    file.write_text(f'{file.read_text()}\n[gate]\nfile = "{_network()}"\n')
    with pytest.raises(UsageError, match="a pipeline of pictures cannot have a gate"):
        crtgen.load(file)


def test_a_camera_has_no_sound(tmp_path: Path) -> None:
    file = _describe(tmp_path, _CAMERA, "", _network())
    file.write_text(file.read_text().replace('preset = "image"', 'preset = "mlperf-sww"'))
    with pytest.raises(UsageError, match="features of sound, of a sensor of kind image"):
        crtgen.load(file)
