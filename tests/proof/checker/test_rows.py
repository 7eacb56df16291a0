"""Images that take rows: ``_push``, called for one row after the other."""

from pathlib import Path

import numpy as np
import pytest

from crtgen import api
from crtgen.boards import board_of_core
from crtgen.proof.checker import Proof, prove
from crtgen.proof.printed import as_dict, lines_of
from tests.network.frontends.flow import assign, handle, read, variable
from tests.proof.checker.changed import built_with
from tests.proof.checker.test_application import LINK, START, rebuilt
from tests.support import nightly, require_tool
from tests.tflite_builder import Model, Operator, Options, Subgraph, Tensor

pytestmark = pytest.mark.qemu

M4 = "mps2_an386"


def lines(sums: bool = False) -> bytes:
    """A convolution over four lines of four pixels, and two classes, or their ``sums`` over all images."""
    numbers = np.random.default_rng(5)

    def tensor(name: str, *shape: int) -> Tensor:
        return Tensor(name, shape, "int8", [0.05], [3])

    def weights(name: str, *shape: int) -> Tensor:
        data = numbers.integers(-127, 128, shape).astype(np.int8)
        return Tensor(name, shape, "int8", [0.01], [0], data=data)

    tensors = [
        *(tensor("x", 1, 4, 4, 1), weights("v", 4, 3, 3, 1), tensor("a", 1, 4, 4, 4)),
        *(weights("f", 2, 64), tensor("y", 1, 2)),
    ]
    fields = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    operators = [
        Operator("CONV_2D", ["x", "v"], ["a"], Options("Conv2DOptions", Padding=0, **fields)),
        Operator("FULLY_CONNECTED", ["a", "f"], ["y"], Options("FullyConnectedOptions")),
    ]
    if not sums:
        return Model(tensors, operators, ["x"], ["y"]).to_bytes()
    first = Tensor("first", (1, 2), "int8", [0.05], [3], data=np.array([[7, -2]], np.int8))
    start = Subgraph([handle("h"), first], [variable("sum", "h"), assign("h", "first")], [], [], "start")
    tensors += [handle("k"), tensor("before", 1, 2), tensor("all", 1, 2)]
    operators = [
        Operator("CALL_ONCE", [], [], Options("CallOnceOptions", InitSubgraphIndex=1)),
        *operators,
        *(variable("sum", "k"), read("k", "before")),
        Operator("ADD", ["y", "before"], ["all"], Options("AddOptions")),
        assign("k", "all"),
    ]
    return Model(tensors, operators, ["x"], ["all"], others=[start]).to_bytes()


def proof(folder: Path, board: str, *changes: tuple[str, str], sums: bool = False) -> Proof:
    """Of an image that takes rows, with texts of its C changed."""
    require_tool("arm-none-eabi-gcc")
    model = folder / "lines.tflite"
    model.write_bytes(lines(sums))
    generated = api.load(model).compile(board, feed="rows").generate("standalone")
    built = built_with(generated, "model/lines.c", *changes)
    return prove(built.path, model)


@pytest.mark.parametrize("board", [M4, nightly("mps2_an385"), nightly("mps3_an547")])
def test_rows(board: str, tmp_path: Path) -> None:
    found = proof(tmp_path, board)
    assert found.is_proven
    assert (found.application.pushes, found.application.rows) == (4, 4), lines_of(found)
    assert "lines_push computes the same, any number of rows in a call" in "\n".join(lines_of(found))
    assert found.application.described
    assert as_dict(found)["application"]["rows_in_a_call"] == 4


def test_as_many_rows_as_a_limit_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, rows, said in ((0, 1, "one row in a call"), (5_000, 2, "up to 2 rows in a call")):
        monkeypatch.setattr("crtgen.proof.checker.rows._MOST_INSTRUCTIONS", limit)
        found = proof(tmp_path, M4)
        assert found.application.pushes == rows
        assert said in "\n".join(lines_of(found))


@pytest.mark.parametrize("board", [M4, nightly("mps2_an385"), nightly("mps3_an547")])
def test_rows_of_a_network_with_states(board: str, tmp_path: Path) -> None:
    found = proof(tmp_path, board, sums=True)
    assert found.is_proven, lines_of(found)
    assert (found.application.pushes, found.runs) == (4, 2)


def test_a_state_that_two_rows_change(tmp_path: Path) -> None:
    found = proof(tmp_path, M4, (_TAKEN, f"if (count == 2) lines_state[0]++; {_TAKEN}"), sums=True)
    assert found.is_computed
    assert "lines_restart after 2 rows leaves something of them" in found.application.wrong


_BEGIN = "    if (count < 0 ||"
_TAKEN = "lines_taken += count;"
_AGAIN = "    lines_taken = 0;\n    CRT_LAYER_DONE"
_VARIABLE = "static int32_t lines_taken;"
_TOO_MANY = "count > 4 - lines_taken"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        # The last row does not end the image.
        (_AGAIN, "    CRT_LAYER_DONE", "is not 0 after the last row"),
        nightly(_TAKEN, "lines_taken += (count < 4) ? 2 : 4;", "a call with 1 row after 1 does not return 0"),
        # A row is in another one's place, unless all come at once.
        (_BEGIN, "    if (count == 1) lines_taken ^= 1;\n" + _BEGIN, ""),
        nightly(_BEGIN, "    if (lines_taken == 2) rows = lines_kept;\n" + _BEGIN, ""),
        nightly(
            _BEGIN, "    if (count == 1) ((int8_t *)rows)[3] = 0;\n" + _BEGIN, "writes the application's rows"
        ),
        # Only the third image is wrong.
        nightly(_AGAIN, "    if (++lines_images < 3) lines_taken = 0;\n    CRT_LAYER_DONE", "is not 0 after"),
        # Two rows, after one, are exchanged, or the second of them is dropped.
        (
            _BEGIN,
            "    if (lines_taken == 1 && count == 2) rows += 4;\n" + _BEGIN,
            "leaves another output than single rows do",
        ),
        nightly(_TAKEN, "lines_taken += (lines_taken == 0 && count == 3) ? 2 : count;", ""),
        nightly(_TAKEN, "lines_images = (count == 2); lines_taken += count;", ""),
        # Too many rows, or fewer than none.
        (_TOO_MANY, "count > 5 - lines_taken", ""),
        (_TOO_MANY, "count > 5", ""),
        ("count < 0 ||", "count < -9 ||", ""),
        nightly(
            "        return -1;\n    }\n    if", "        return 0;\n    }\n    if", "does not return -1"
        ),
        (
            "        return -1;\n    }\n    if",
            "        lines_taken = 0;\n        return -1;\n    }\n    if",
            "writes to",
        ),
        nightly("    if (count == 0) {", "    if (count == 0) {\n        lines_arena[3] = 0;", "writes to"),
        # Rows that are dropped leave something.
        (
            "restart(void)\n{\n    lines_taken = 0;",
            "restart(void)\n{\n    lines_taken = 0;\n    lines_images++;",
            "leaves something",
        ),
    ],
)
def test_a_wrong_push(old: str, new: str, reason: str, tmp_path: Path) -> None:
    """Each is right if all rows come at once."""
    more = f"{_VARIABLE}\nint8_t lines_kept[4];\nint32_t lines_images;"
    found = proof(tmp_path, M4, (old, new), (_VARIABLE, more))
    assert found.is_computed, found.stopped
    assert found.application.wrong.startswith("lines_push: "), lines_of(found)
    assert reason in found.application.wrong
    assert not found.application.pushes
    assert "lines: not checked: application" in lines_of(found)[-1]


_MAIN = (
    START.replace("MODEL", "lines")
    + """
int main(void)
{
    for (;;) {
        int8_t x[16], y[2];
        for (int i = 0; i < 16; i++) x[i] = sensor[i];
        CALL
    }
}
"""
)
_PUSHES = "if (lines_push(x, 1) == 1) decision = lines_output_places.y[0];"
_RESTARTS = f"{_PUSHES} if (sensor[9]) lines_restart();"
_RUNS = """
        const struct lines_inputs in = {x};
        const struct lines_outputs out = {y};
        if (lines_run(&in, &out) == 0) decision = y[0];
"""


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("application")
    (folder / "lines.tflite").write_bytes(lines())
    compiled = api.load(folder / "lines.tflite").compile(board_of_core("cortex-m4"), feed="rows")
    compiled.generate("library").extract(folder / "p")
    (folder / "p" / "app.ld").write_text(LINK)
    return folder


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        (_PUSHES, ["lines_push computes the same, any number of rows in a call"]),
        (_RUNS, ["lines_run moves inputs and outputs, and returns the status"]),
        nightly(_RESTARTS + _RUNS, ["lines_push computes the same", "lines_run moves inputs"]),
    ],
)
def test_an_application(calls: str, said: list[str], application: Path) -> None:
    """It pushes rows, or runs whole images, and has no ``lines_compute``."""
    (application / "p" / "main.c").write_text(_MAIN.replace("CALL", calls))
    found = prove(rebuilt(application / "p"), application / "lines.tflite")
    text = "\n".join(lines_of(found, from_call=True))
    assert found.holds_from_call, text
    assert all(part in text for part in said), text
    held = "the network's variables hold 0 at the first call, and later what the last one left"
    assert (held in found.premises) == ("push" in calls)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lines_push(inputs->x, 4) == 1)", "lines_push(inputs->x + 4, 4) == 1)"),
        nightly("LINES_AT_Y, 2);", "LINES_AT_Y, 1);"),
        nightly("    lines_restart();\n", ""),
        nightly("    return status;", "    lines_taken = 1;\n    return status;"),
    ],
)
def test_a_wrong_run(old: str, new: str, application: Path) -> None:
    (application / "p" / "main.c").write_text(_MAIN.replace("CALL", _RESTARTS + _RUNS))
    source = application / "p" / "model" / "lines.c"
    text = source.read_text()
    assert text.count(old) == 1
    source.write_text(text.replace(old, new))
    try:
        image = rebuilt(application / "p")
    finally:
        source.write_text(text)
    found = prove(image, application / "lines.tflite")
    assert not found.holds_from_call
    assert found.application.wrong.startswith("lines_run: ") or not found.is_computed
