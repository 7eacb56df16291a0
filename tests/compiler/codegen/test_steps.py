"""A run in steps is the run, states included; what is no step is refused."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

import crtgen
from crtgen.api import Model
from crtgen.base.resources import runtime_dir
from tests.support import ROOT, require_tool

pytestmark = pytest.mark.cc


@pytest.mark.parametrize("path", ["demo/digits.tflite", "../shared/networks/streaming/v2_okay_nabu.tflite"])
def test_steps_are_the_run(tmp_path: Path, path: str) -> None:
    file = (ROOT / path).resolve()
    if not file.is_file():
        pytest.skip(f"there is no {file}")
    model = crtgen.load(file)
    assert isinstance(model, Model)
    compiled = model.compile(board="host")
    info = compiled.modules[0].info
    compiled.generate("library").extract(tmp_path)
    (x,), (y,) = info.inputs, info.outputs
    header = (tmp_path / "model" / f"{info.name}.h").read_text()
    steps = sum(bool(layer.function) for layer in info.layers)
    assert f"#define {info.name.upper()}_STEPS {steps}\n" in header
    flags = ["-DCRT_STEPS", f'-DMODEL_HEADER="{info.name}.h"', f"-DMODEL={info.name}", f"-DSTEPS={steps}"]
    flags += [f"-DINPUT={x.c_name}", f"-DOUTPUT={y.c_name}"]
    flags += [f"-DINPUT_BYTES={x.nbytes}", f"-DOUTPUT_BYTES={y.nbytes}"]
    folders = [f"-I{tmp_path / 'model'}", f"-I{runtime_dir() / 'include'}"]
    sources = map(str, [*(tmp_path / "model").glob("*.c"), Path(__file__).with_name("steps.c")])
    program = str(tmp_path / "program")
    command = [require_tool("gcc"), "-O1", "-w", *flags, *folders, *sources, "-lm", "-o", program]
    subprocess.run(command, check=True, timeout=120)
    done = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    runs = [(np.full(x.shape, 17 * n, np.uint8).view(x.dtype.numpy).reshape(x.shape),) for n in range(3)]
    expected = b"".join(outputs[0].tobytes() for outputs in model.graph.run(runs))
    assert bytes(map(int, done.stdout.split())) == expected
