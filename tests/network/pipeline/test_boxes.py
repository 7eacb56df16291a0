"""Boxes in pictures, and anomalies by clusters: what settings mean, and that C and its twin find the same."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from typer.testing import CliRunner

from crtgen.base.errors import UsageError
from crtgen.cli.app import app
from crtgen.network.ir import DType, Quant, Value
from crtgen.network.pipeline import Box, Decision, Finder
from crtgen.network.pipeline.decision import Boxes
from tests.network.pipeline.files import given
from tests.network.pipeline.pushed import check, load
from tests.tflite_builder import Model, Operator, Options, Tensor

_GRID = 'width = 12, height = 9, format = "rgb888"'
_ROWS = 'width = 7, height = 60, format = "grey"'


def _described(folder: Path, camera: str, features: str, decision: str, network: Path | None = None) -> Path:
    file = folder / "seen.toml"
    parts = [f'[pipeline]\nname = "seen"\nsensor = {{ kind = "image", {camera} }}']
    parts.append(f'[features]\npreset = "image"\n{features}')
    parts += [f'[network]\nfile = "{network}"'] if network else []
    parts.append(f"[decision]\n{decision}\n")
    file.write_text("\n".join(parts))
    return file


def _network(folder: Path, shape: tuple[int, ...]) -> Path:
    """Bytes of a picture as they are, in int8 with another scale and zero point, as a grid or a table."""
    given_shape = [1, *shape]
    made = [1, *(length for length in shape if length > 1)]
    tensors = [
        Tensor("x", given_shape, "int8", [1.0], [-128]),
        Tensor("r", made, "int8", [1.0], [-128]),
        Tensor("y", made, "int8", [2.0], [-100]),
    ]
    operators = [
        Operator("RESHAPE", ["x"], ["r"], Options("ReshapeOptions", NewShape=made)),
        Operator("QUANTIZE", ["r"], ["y"], Options("QuantizeOptions")),
    ]
    path = folder / "boxes.tflite"
    path.write_bytes(Model(tensors, operators, ["x"], ["y"]).to_bytes())
    return path


def _grids(count: int) -> npt.NDArray[np.uint8]:
    """Cells that are mostly below 128; a frame is 9 rows of 12."""
    made: npt.NDArray[np.uint8] = (
        np.random.default_rng(3).integers(0, 256, (count * 9, 12, 3)).astype(np.uint8) // 4 * 3
    )
    return made


def _tables(count: int) -> npt.NDArray[np.uint8]:
    """Boxes of some places, moved a little: x, y, width, height, their own score, those of two labels."""
    rng = np.random.default_rng(4)
    centres = rng.integers(40, 200, (6, 4)) // (1, 1, 3, 3)
    boxes = centres[rng.integers(0, 6, count * 60)] + rng.integers(-6, 7, (count * 60, 4))
    scores = rng.integers(0, 256, (count * 60, 3))
    return np.hstack([boxes, scores]).clip(0, 255).astype(np.uint8)


_NMS = "boxes = 'nms'\nlabels = ['a', 'b']"


@pytest.mark.cc
@pytest.mark.parametrize(
    ("camera", "features", "decision", "is_int8"),
    [
        (_GRID, 'pixels = "bytes"', "boxes = 'fomo'\nlabels = ['-', 'a', 'b']\nabove = 150", True),
        (_GRID, 'pixels = "real"', "boxes = 'fomo'\nmost = 3\nabove = 0.62\nlabel = 2", False),
        (_ROWS, 'pixels = "bytes"', f"{_NMS}\nabove = 22000\nmost = 4\noverlap = 0.4", True),
        (_ROWS, 'pixels = "real"', f"{_NMS}\nabove = 0.3\noverlap = 0.3", False),
    ],
)
def test_the_c_finds_what_its_twin_does(
    tmp_path: Path, camera: str, features: str, decision: str, is_int8: bool
) -> None:
    is_grid = "fomo" in decision
    shape = (9, 12, 3) if is_grid else (60, 7, 1)
    size = f"width = {shape[1]}\nheight = {shape[0]}"
    network = _network(tmp_path, shape) if is_int8 else None
    file = _described(tmp_path, camera, f"{size}\n{features}", decision, network)
    frames = _grids(3) if is_grid else _tables(3)
    events = check(tmp_path, file, frames)
    assert len(events) == 3
    assert max(len(event.boxes) for event in events) >= 3
    assert len({box.label for event in events for box in event.boxes}) == (
        1 if "label = 2" in decision else 2
    )


@pytest.mark.cc
def test_boxes_are_printed(tmp_path: Path) -> None:
    decision = "boxes = 'fomo'\nlabels = ['-', 'a', 'b']\nabove = 120"
    size = 'width = 12\nheight = 9\npixels = "bytes"'
    file = _described(tmp_path, _GRID, size, decision, _network(tmp_path, (9, 12, 3)))
    frame = np.zeros((9, 12, 3), np.uint8)
    frame[2:4, 5:8, 1] = 200
    np.save(tmp_path / "frame.npy", frame)
    words = ["run", str(file), "--board", "host", "--input", str(tmp_path / "frame.npy")]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "frame 1  a, score 200" in done.output
    assert "    a, score 200, 3x2 at 5, 2" in done.output


@pytest.mark.qemu
def test_on_a_core(tmp_path: Path) -> None:
    features = 'width = 7\nheight = 60\npixels = "real"'
    file = _described(tmp_path, _ROWS, features, f"{_NMS}\nabove = 0.3\noverlap = 0.3")
    assert len(check(tmp_path, file, _tables(2), "mps2_an386")) == 2


def _cells(*cells: tuple[int, int, float], size: int = 8) -> npt.NDArray[np.float32]:
    made = np.zeros((size, size, 2), np.float32)
    for x, y, score in cells:
        made[y, x, 1] = score
    return made


def _find(decision: Decision, output: npt.NDArray[Any], quant: Quant | None = None) -> tuple[Box, ...]:
    value = Value("y", output.shape, DType(output.dtype.name), quant)
    return Finder.of(decision, value, 64, 64).find(output)


def test_cells_that_touch_are_one_box() -> None:
    decision = Decision(boxes=Boxes(kind="fomo"), above=0.499)
    cells = _cells((1, 1, 0.6), (2, 1, 0.9), (2, 2, 0.5), (6, 6, 0.7), (5, 0, 0.4))
    assert [(b.x, b.y, b.width, b.height, round(b.score, 3)) for b in _find(decision, cells)] == [
        (8, 8, 16, 16, 0.9),
        (48, 48, 8, 8, 0.7),
    ]


def test_a_box_that_moves_to_the_left_keeps_its_width() -> None:
    """As in Edge Impulse's code, where what it would grow by is computed too late."""
    decision = Decision(boxes=Boxes(kind="fomo"))
    (box,) = _find(decision, _cells((3, 1, 0.9), (4, 1, 0.9), (2, 2, 0.8)))
    assert (box.x, box.y, box.width, box.height) == (16, 8, 16, 16)


def _boxes(*rows: tuple[float, ...]) -> npt.NDArray[np.float32]:
    return np.array(rows, np.float32)


def test_of_boxes_of_one_thing_the_best_stays() -> None:
    decision = Decision(names=("a", "b"), boxes=Boxes(kind="nms", overlap=0.5))
    rows = _boxes(
        (10, 10, 8, 8, 0.7, 0.0),
        (11, 10, 8, 8, 0.9, 0.0),
        (11, 10, 8, 8, 0.0, 0.8),
        (30, 10, 8, 8, 0.6, 0.0),
        (13, 10, 8, 8, 0.6, 0.1),
    )
    found = _find(decision, rows)
    assert [(b.x, b.y, b.label, round(b.score, 3)) for b in found] == [
        (7, 6, 0, 0.9),
        (7, 6, 1, 0.8),
        (26, 6, 0, 0.6),
    ]
    assert _find(decision, np.ascontiguousarray(rows.T)) == found


def test_the_score_of_a_box_counts() -> None:
    decision = Decision(names=("a", "b"), boxes=Boxes(kind="nms"), above=0.3)
    codes = np.array([[20, 20, 8, 8, 100, 100, 0], [40, 40, 8, 8, 50, 90, 0]], np.int8)
    (box,) = _find(decision, codes, Quant((1 / 128,), (0,)))
    assert box == Box(
        16 / 128, 16 / 128, 8 / 128, 8 / 128, 0, float(np.float32(10000) * np.float32(1 / 16384))
    )


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        ("boxes = 'fomo'\nlabels = ['a', 'b']", "is no grid of cells with scores of labels"),
        ("boxes = 'fomo'\nlabel = 0", "label 0 is the background"),
        ("boxes = 'nms'", "nms needs the names of all labels"),
        ("boxes = 'nms'\nlabels = ['a']", "has no boxes of 5 or 6 numbers"),
    ],
)
def test_outputs_without_boxes_are_refused(tmp_path: Path, decision: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(_described(tmp_path, _GRID, "width = 12\nheight = 9", decision))
    assert said in f"{caught.value} {caught.value.hint}"


def _moves(folder: Path, decision: str) -> Path:
    file = folder / "moves.toml"
    sensor = '[pipeline]\nname = "moves"\nsensor = { kind = "imu", axes = 3, rate = 100 }\n'
    features = '[features]\npreset = "edge-impulse-flatten"\nframe = 50\nhop = 10\n'
    file.write_text(f"{sensor}{features}[decision]\n{decision}\n")
    return file


def _clusters(folder: Path, **changes: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    rng = np.random.default_rng(5)
    centroids, radii = rng.normal(size=(4, 21)).astype(np.float32), np.array([0.5, 1.0, 0.2, 0.1])
    arrays = {"centroids": centroids, "radii": radii, "mean": rng.normal(size=21), "scale": np.full(21, 2.0)}
    arrays |= changes
    held: Any = arrays
    np.savez(folder / "clusters.npz", **held)
    return arrays


@pytest.mark.cc
def test_distances_from_clusters(tmp_path: Path) -> None:
    arrays = _clusters(tmp_path)
    file = _moves(tmp_path, "anomaly = 'kmeans'\nclusters = 'clusters.npz'\nabove = 8.0\nquiet = 0.3")
    samples = given("ei_spectral_v4")["x_f32"][0]
    events = check(tmp_path, file, samples)
    assert len(events) > 1
    settings = _moves(tmp_path, "above = -1e8\n")
    rows = [np.asarray(y[0], np.float64).ravel() for y in _outputs(settings, samples)]
    scaled = (np.array(rows) - arrays["mean"]) / arrays["scale"]
    lengths = np.linalg.norm(scaled[:, None] - arrays["centroids"], axis=2) - arrays["radii"]
    made = [
        float(y[0][0])
        for y in _outputs(_moves(tmp_path, "anomaly = 'kmeans'\nclusters = 'clusters.npz'"), samples)
    ]
    np.testing.assert_allclose(made, lengths.min(axis=1), rtol=1e-5)


def _outputs(file: Path, samples: npt.NDArray[Any]) -> list[list[npt.NDArray[Any]]]:
    from crtgen.network.pipeline import runs_of

    pipeline = load(file)
    return [list(y) for y in pipeline.graph.run([[run] for run in runs_of(pipeline, samples)])]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"radii": np.zeros(3)}, "radii are float64 of shape (3,)"),
        ({"centroids": np.zeros((4, 20))}, "mean are float64 of shape (21,)"),
        ({"scale": np.zeros(21)}, "a scale is not above 0"),
        ({"what": np.zeros(3)}, "the file has an unknown array what"),
        ({"radii": np.array([np.nan] * 4)}, "not finite numbers"),
    ],
)
def test_what_is_wrong_with_clusters(tmp_path: Path, changes: dict[str, npt.NDArray[Any]], said: str) -> None:
    _clusters(tmp_path, **changes)
    with pytest.raises(UsageError) as caught:
        load(_moves(tmp_path, "anomaly = 'kmeans'\nclusters = 'clusters.npz'"))
    assert said in str(caught.value)


def _separate(rows: npt.NDArray[np.float32], overlap: float, above: float) -> list[tuple[int, int]]:
    """Row and label of the boxes that stay, by the definition, in float64."""
    real = rows.astype(np.float64)
    scores = real[:, 4:].max(axis=1)
    order = [i for i in np.argsort(-scores, kind="stable") if scores[i] > above]
    label = real[:, 4:].argmax(axis=1)
    low, high = real[:, :2] - real[:, 2:4] / 2, real[:, :2] + real[:, 2:4] / 2
    kept: list[int] = []
    for i in order:
        same = []
        for j in kept:
            sides = np.minimum(high[i], high[j]) - np.maximum(low[i], low[j])
            shared = np.prod(np.maximum(sides, 0))
            union = np.prod(real[i, 2:4]) + np.prod(real[j, 2:4]) - shared
            same.append(shared / union > overlap and label[i] == label[j])
        kept += [] if any(same) else [int(i)]
    return [(i, int(label[i])) for i in kept]


@pytest.mark.parametrize("seed", range(5))
def test_suppression_is_that_of_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = (rng.random((80, 2)) * 20, rng.random((80, 2)) * 12 + 1, rng.random((80, 3)))
    rows = np.hstack(parts).astype(np.float32)
    decision = Decision(names=("a", "b", "c"), boxes=Boxes(kind="nms", overlap=0.3, most=100), above=0.5)
    found = [(box.x + box.width / 2, box.label) for box in _find(decision, rows)]
    wanted = [(float(rows[i, 0]), label) for i, label in _separate(rows, 0.3, 0.5)]
    assert [label for _, label in found] == [label for _, label in wanted]
    np.testing.assert_allclose([x for x, _ in found], [x for x, _ in wanted], atol=1e-4)
    assert len(found) > 10
