"""The Python face: what objects show of themselves, and a session without ``with``."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest

import crtgen
from crtgen.base.errors import UsageError
from tests.support import ROOT, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"
DIGIT = np.load(ROOT / "demo" / "digit.npz")["image"]


def test_objects_are_short_in_a_notebook() -> None:
    model = crtgen.load(DIGITS)
    compiled = model.compile("host")
    assert repr(model) == "<Model digits: 7 layers>"
    assert repr(compiled) == "<Compiled digits (arena 432 bytes) for host>"
    generated = compiled.generate()
    count = len(generated.project.files)
    assert repr(generated) == f"<Generated digits, server for host: {count} files>"


def test_a_model_tells_its_interface_and_its_layers() -> None:
    model = crtgen.load(DIGITS)
    assert isinstance(model, crtgen.Model)
    assert [(v.name, v.shape, v.dtype.value) for v in model.inputs] == [("image", (1, 8, 8, 1), "int8")]
    assert [(v.name, v.shape) for v in model.outputs] == [("probabilities", (1, 10))]
    assert model.summary().splitlines()[:3] == [
        "<Model digits: 7 layers>",
        "input            image            1x8x8x1   int8",
        "conv2d           conv2d           1x8x8x8   int8",
    ]


@pytest.mark.cc
def test_a_session_is_opened_and_closed_by_hand() -> None:
    require_tool("cc")
    image = crtgen.load(DIGITS).compile("host").generate().build()
    assert repr(image).startswith("<Image digits for host: flash ")
    session = image.run()
    with pytest.raises(UsageError, match="the session is not open") as caught:
        session.infer(DIGIT)
    assert "session.open()" in caught.value.hint
    session.open()
    (y,) = session.infer(DIGIT)
    assert y.argmax() == 7
    session.close()
    session.close()
    assert session.device.process.poll() is not None  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="the session is not open"):
        session.infer(DIGIT)


def test_types_are_there_for_checkers() -> None:
    assert (Path(crtgen.__file__).parent / "py.typed").is_file()


def test_documented_paths_lead_to_what_they_name() -> None:
    """Paths that pages and users' code import, whatever wing holds the code."""
    import crtgen.byoc
    import crtgen.errors
    import crtgen.features
    import crtgen.ops
    import crtgen.pytest_plugin
    import crtgen.tvm
    from crtgen.boards import find_board

    for name in crtgen.__all__:
        assert getattr(crtgen, name) is not None
    assert {"Session", "Sliding"} <= {*crtgen.__all__}
    assert find_board("host").name == "host"
    assert crtgen.byoc.Generator.__module__ == "crtgen.compiler.byoc.generator"
    assert crtgen.byoc.Const.__module__ == "crtgen.compiler.kernels.engine.kernel"
    assert issubclass(crtgen.errors.UsageError, crtgen.errors.CrtgenError)
    assert crtgen.features.Features.__module__ == "crtgen.network.features.extractor"
    assert crtgen.ops.Add.__name__ == "Add"
    assert callable(crtgen.tvm.transport)
    for entry in (*entry_points(group="crtgen.codegen"), *entry_points(group="pytest11", name="crtgen")):
        assert entry.load() is not None
    done = subprocess.run([sys.executable, "-m", "crtgen.tvm", "--help"], capture_output=True, text=True)
    assert "--read-fd" in done.stdout
