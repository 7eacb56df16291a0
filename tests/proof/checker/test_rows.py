"""Images that take rows: ``_push``, called for one row after the other."""

from pathlib import Path

import numpy as np
import pytest

from crtgen import api
from crtgen.proof.checker import Proof, prove
from crtgen.proof.printed import as_dict, lines_of
from tests.proof.checker.changed import built_with
from tests.support import nightly, require_tool
from tests.tflite_builder import Model, Operator, Options, Tensor

pytestmark = pytest.mark.qemu

M4 = "mps2_an386"


def lines() -> bytes:
    """A convolution over four lines of four pixels, and two classes."""
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
    return Model(tensors, operators, ["x"], ["y"]).to_bytes()


def proof(folder: Path, board: str, *changes: tuple[str, str]) -> Proof:
    """Of an image that takes rows, with texts of its C changed."""
    require_tool("arm-none-eabi-gcc")
    model = folder / "lines.tflite"
    model.write_bytes(lines())
    generated = api.load(model).compile(board, feed="rows").generate("standalone")
    built = built_with(generated, "model/lines.c", *changes)
    return prove(built.path, model)


@pytest.mark.parametrize("board", [M4, nightly("mps2_an385"), nightly("mps3_an547")])
def test_rows(board: str, tmp_path: Path) -> None:
    found = proof(tmp_path, board)
    assert found.is_proven
    assert found.application.pushes, lines_of(found)
    assert "lines_push, one row after the other, computes the same" in "\n".join(lines_of(found))
    assert as_dict(found)["application"]["rows_followed"]


_BEGIN = "    if (count < 0 ||"
_TAKEN = "lines_taken += count;"
_AGAIN = "    lines_taken = 0;\n    CRT_LAYER_DONE"
_VARIABLE = "static int32_t lines_taken;"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        # The last row does not end the image.
        (_AGAIN, "    CRT_LAYER_DONE", "is not 0 after the last row"),
        nightly(_TAKEN, "lines_taken += (count < 4) ? 2 : 4;", "a call does not return 0"),
        # A row is in another one's place, unless all come at once.
        (_BEGIN, "    if (count == 1) lines_taken ^= 1;\n" + _BEGIN, ""),
        nightly(_BEGIN, "    if (lines_taken == 2) rows = lines_kept;\n" + _BEGIN, ""),
        nightly(_BEGIN, "    if (count == 1) ((int8_t *)rows)[3] = 0;\n" + _BEGIN, ""),
        # Only the third image is wrong.
        nightly(_AGAIN, "    if (++lines_images < 3) lines_taken = 0;\n    CRT_LAYER_DONE", "is not 0 after"),
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
