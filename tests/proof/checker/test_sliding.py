"""Images that get what is new of a window and keep the rest: every run, and what one leaves for the next."""

from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from typer.testing import CliRunner

from crtgen import api
from crtgen.base.errors import UnsupportedError
from crtgen.boards import find_board
from crtgen.cli.app import app
from crtgen.network.passes import Sliding
from crtgen.proof.certificate import prove_built
from crtgen.proof.checker import Proof, SlidingWindow, prove
from crtgen.proof.checker.network.layer import Value
from crtgen.proof.checker.surroundings.sliding import repeats, windows
from crtgen.proof.printed import lines_of
from tests.proof.checker.changed import built_with
from tests.support import model_path, nightly, require_tool
from tests.tflite_builder import Model, Operator, Options, Tensor

pytestmark = pytest.mark.qemu

M4, M55 = "mps2_an386", "mps3_an547"
Proven: TypeAlias = tuple[Path, Path]
"""An image, and the file of its network."""


def spotter() -> bytes:
    """Two convolutions along seven positions of two channels, the first padded, and two classes."""
    numbers = np.random.default_rng(3)

    def tensor(name: str, *shape: int) -> Tensor:
        return Tensor(name, shape, "int8", [0.05], [3])

    def weights(name: str, *shape: int) -> Tensor:
        data = numbers.integers(-127, 128, shape).astype(np.int8)
        return Tensor(name, shape, "int8", [0.01], [0], data=data)

    tensors = [
        *(tensor("x", 1, 7, 1, 2), weights("v", 4, 3, 1, 2), tensor("a", 1, 7, 1, 4)),
        *(weights("w", 4, 2, 1, 4), tensor("b", 1, 6, 1, 4), weights("f", 2, 24), tensor("y", 1, 2)),
    ]
    fields = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    operators = [
        Operator("CONV_2D", ["x", "v"], ["a"], Options("Conv2DOptions", Padding=0, **fields)),
        Operator("CONV_2D", ["a", "w"], ["b"], Options("Conv2DOptions", Padding=1, **fields)),
        Operator("FULLY_CONNECTED", ["b", "f"], ["y"], Options("FullyConnectedOptions")),
    ]
    return Model(tensors, operators, ["x"], ["y"]).to_bytes()


def built(folder: Path, board: str, *changes: tuple[str, str]) -> Proven:
    """The image for windows one position apart, with texts of the model's C changed."""
    require_tool("arm-none-eabi-gcc")
    model = folder / "spotter.tflite"
    model.write_bytes(spotter())
    generated = api.load(model).compile(board, sliding=Sliding(1, 1)).generate("standalone")
    made = built_with(generated, "model/spotter.c", *changes, count=None)
    path = folder / "firmware.elf"
    path.write_bytes(made.path.read_bytes())
    return path, model


@pytest.fixture(scope="module", params=[M4, M55])
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Proven:
    return built(tmp_path_factory.mktemp("sliding"), request.param)


def test_every_run(image: Proven) -> None:
    """Seven fill the window, and the eighth leaves what the seventh left, of its own window."""
    proof = prove(*image, window=SlidingWindow(1, 1))
    assert proof.is_proven, lines_of(proof)
    assert (proof.outputs, proof.runs) == (2, 8)
    assert [(layer.needed, layer.missing) for layer in proof.layers] == [(28, 0), (24, 0), (2, 0)]
    *_, runs, application, verdict = lines_of(proof)
    assert application.startswith("application: spotter_reset leaves the states' first values")
    assert runs == "runs: 8 after a start, of which the last is any later one"
    assert (
        verdict == "spotter: checked, 2 of 2 outputs; each is the network's on every window of every signal"
    )


def server(folder: Path, *changes: tuple[str, str], file: str = "spotter.c") -> Proof:
    """A server image, which has all that applications call, checked."""
    require_tool("arm-none-eabi-gcc")
    model = folder / "spotter.tflite"
    model.write_bytes(spotter())
    generated = api.load(model).compile(M4, sliding=Sliding(1, 1)).generate("server")
    made = built_with(generated, f"model/{file}", *changes)
    return prove(made.path, model, window=SlidingWindow(1, 1))


def test_what_applications_call(tmp_path: Path) -> None:
    proof = server(tmp_path)
    found = proof.application
    assert (proof.is_computed, found.wrong) == (True, "")
    assert (found.followed, found.resets, found.described) == (True, True, True)


_BEGUN = "    spotter_begun = true;\n"


@pytest.mark.parametrize(
    ("file", "old", "new", "reason"),
    [
        (
            "spotter.c",
            _BEGUN,
            f"    if (spotter_begun) {{ spotter_state[0] = 7; }}\n{_BEGUN}",
            "spotter_reset does not lead to the first window",
        ),
        nightly(
            "spotter.c",
            "CRT_RUN_STARTS_ANEW(spotter_follows);",
            "if (spotter_begun && spotter_state[0] == 9) return;",
            "",
        ),
        ("spotter.c", "inputs->x, 2);", "inputs->x, 1);", "byte 1 of input 0 is not what the network gets"),
        nightly("spotter.c", "SPOTTER_AT_Y, 2);", "SPOTTER_AT_Y, 1);", "is not what an application gets"),
        nightly("spotter_registry.c", "{1, 1, 1, 2}", "{1, 1, 2, 1}", "the description of input 0 says"),
    ],
)
def test_what_applications_call_wrongly(file: str, old: str, new: str, reason: str, tmp_path: Path) -> None:
    proof = server(tmp_path, (old, new), file=file)
    assert proof.is_computed, proof.stopped
    assert reason in proof.application.wrong
    assert proof.application.wrong
    assert not proof.holds_from_call


def test_windows_of_another_step(image: Proven) -> None:
    """The image gets one position of seven, and is asked about two."""
    proof = prove(*image, window=SlidingWindow(1, 2))
    assert not proof.is_proven


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "(spotter_state + SPOTTER_STATE_AT_CONV2D_1_KEPT),\n",
            "(spotter_state + SPOTTER_STATE_AT_CONV2D_KEPT),\n",
        ),
        ("CRT_RUN_ENDS", "spotter_state[0] = spotter_state[1]; CRT_RUN_ENDS"),
        ("CRT_RUN_ENDS", "spotter_state[0] = (uint8_t)(spotter_state[0] + 1); CRT_RUN_ENDS"),
    ],
)
def test_what_is_kept_is_compared(tmp_path: Path, old: str, new: str) -> None:
    """Another element of what is kept: seen in the run that reads it."""
    path, model = built(tmp_path, M4, (old, new))
    proof = prove(path, model, window=SlidingWindow(1, 1))
    assert not proof.is_proven
    assert 0 < proof.runs < 8


def test_a_count_of_runs(tmp_path: Path) -> None:
    """Nothing that is looked at depends on it, in the first runs: it would in the hundredth."""
    late = "static uint32_t spotter_state_runs; if (++spotter_state_runs > 99U) { spotter_state[0] = 0; }"
    path, model = built(tmp_path, M4, ("CRT_RUN_ENDS", f"{late} CRT_RUN_ENDS"))
    proof = prove(path, model, window=SlidingWindow(1, 1))
    assert not proof.is_proven
    assert "is not the same after each run" in proof.stopped


def test_what_repeats(tmp_path: Path) -> None:
    """A number that counts, what is unknown, and elements that are not where they were, do not."""
    model = tmp_path / "spotter.tflite"
    model.write_bytes(spotter())
    (first, _), (last, full) = islice(windows(model, SlidingWindow(1, 6)), 2)
    assert full
    a, b = first.fed[first.file.inputs[0]], last.fed[last.file.inputs[0]]

    def found(one: Value | None, other: Value | None, byte: int = 0) -> bool:
        return repeats((first, [(one, 0)]), (last, [(other, byte)]))

    assert found(a[3], b[3])
    assert found(5, 5)
    assert not found(a[3], b[3], 1)
    assert not found(a[3], b[4])
    assert not found(a[3], a[3]), "the oldest of the first window, which moved on"
    assert not found(5, 6)
    assert not found(None, None)
    assert not found(a[3], 5)
    assert not found(5, b[3])


def test_command(image: Proven) -> None:
    runner = CliRunner()
    elf, model = image
    call = ["prove", str(model), "--image", str(elf), "--sliding", "axis=1", "step=1"]
    result = runner.invoke(app, call)
    assert result.exit_code == 0, result.output
    assert "on every window of every signal" in " ".join(result.output.split())
    result = runner.invoke(app, [*call[:-2], "axis=1", "step=7"])
    assert result.exit_code == UnsupportedError.exit_code
    assert "do not overlap along axis 1 at a step of 7" in " ".join(result.output.split())


@pytest.mark.models
@pytest.mark.nightly
@pytest.mark.parametrize("board", [M4, M55])
@pytest.mark.parametrize("level", ["speed", "size"])
def test_keyword_spotting(board: str, level: str, tmp_path: Path) -> None:
    """25 runs until a window is full of signal."""
    model, step = model_path("kws_int8"), Sliding(1, 2)
    built = api.load(model).compile(board, sliding=step, optimize=level).generate("standalone").build()
    proof = prove_built(built, model, find_board(board), step)
    assert proof.is_proven, lines_of(proof)
    assert proof.runs == 26
