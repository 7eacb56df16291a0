"""Pictures, sound and tables become what a model reads; the C of the header stores the same numbers."""

import ctypes
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crtgen import api
from crtgen.base.errors import UsageError
from crtgen.cli.app import app
from crtgen.compiler.codegen.module import Interface
from crtgen.lab.measure.cases import read_inputs
from crtgen.lab.measure.media import Scaling
from crtgen.network.ir import DType, Quant
from tests.support import ROOT, require_tool

Image = pytest.importorskip("PIL.Image")
soundfile = pytest.importorskip("soundfile")


def interface(
    shape: tuple[int, ...], scale: float = 1 / 255, zero: int = -128, dtype: str = "int8"
) -> Interface:
    kind = DType(dtype)
    quant = None if dtype == "float32" else Quant.tensor(scale, zero)
    return Interface("x", "x", shape, kind, quant, int(np.prod(shape)) * kind.itemsize)


def picture(path: Path, width: int = 4, height: int = 2, mode: str = "RGB") -> Any:
    pixels = np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)
    return pixels


def test_a_picture_of_the_right_size_is_its_pixels(tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    pixels = picture(path)
    given = read_inputs(path, [interface((1, 2, 4, 3))])
    ((stored,),) = given.runs
    np.testing.assert_array_equal(stored, (pixels.astype(int) - 128)[None])
    assert given.source == f"{path}, 4x2 to 4x2, (pixel - 0) / 255"
    ((first,),) = read_inputs(path, [interface((1, 3, 2, 4), dtype="float32")]).runs
    np.testing.assert_allclose(first.astype(float), pixels.transpose(2, 0, 1)[None] / 255, rtol=1e-6)


@pytest.mark.parametrize(
    ("scale", "zero", "says"),
    [
        (1.0, -128, "(pixel - 0) / 1"),
        (1 / 127.5, 0, "(pixel - 128) / 127.5"),
        (16 / 255, -128, "(pixel - 0) / 15.9375"),
    ],
)
def test_pixels_fill_the_range_of_the_input(tmp_path: Path, scale: float, zero: int, says: str) -> None:
    path = tmp_path / "p.png"
    pixels = picture(path)
    given = read_inputs(path, [interface((1, 2, 4, 3), scale, zero)])
    assert given.source.endswith(says)
    np.testing.assert_array_equal(given.runs[0][0], (pixels.astype(int) - 128)[None])


def test_mean_and_std_are_what_is_said(tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    pixels = picture(path)
    ((real,),) = read_inputs(
        path, [interface((1, 2, 4, 3), dtype="float32")], scaling=Scaling(100.0, 50.0)
    ).runs
    np.testing.assert_allclose(real.astype(float), ((pixels - 100.0) / 50)[None], rtol=1e-6)
    with pytest.raises(UsageError, match="--std is 0"):
        read_inputs(path, [interface((1, 2, 4, 3))], scaling=Scaling(0.0, 0.0))


def test_a_picture_becomes_grey_and_of_another_size(tmp_path: Path) -> None:
    path = tmp_path / "p.jpg"
    Image.new("RGB", (40, 20), (255, 0, 0)).save(path)
    ((grey,),) = read_inputs(path, [interface((1, 10, 5, 1))]).runs
    assert grey.shape == (1, 10, 5, 1)
    assert np.abs(grey.astype(int) - (76 - 128)).max() <= 2, "red has a luma of 76"


def test_sound_is_a_run_for_each_window(tmp_path: Path) -> None:
    path = tmp_path / "s.wav"
    left = np.linspace(-0.5, 0.5, 10, dtype=np.float32)
    soundfile.write(path, np.stack([left, left + 0.1], axis=1), 16000, subtype="FLOAT")
    given = read_inputs(path, [interface((1, 4), dtype="float32")])
    assert given.is_sequence
    assert given.source == f"{path}, 10 samples at 16,000 Hz and 2 zeros"
    flat = np.concatenate([run[0].ravel() for run in given.runs])
    np.testing.assert_allclose(flat, [*(left + 0.05), 0, 0], atol=1e-6)


def test_sound_is_int16_by_nature(tmp_path: Path) -> None:
    path = tmp_path / "s.wav"
    soundfile.write(path, np.array([0, 16384, -32768], np.int16), 16000, subtype="PCM_16")
    plain = replace(interface((1, 3), dtype="int16"), quant=None)
    ((run,),) = read_inputs(path, [plain]).runs
    assert run.tolist() == [[0, 16384, -32768]]
    with pytest.raises(UsageError, match="it reads features of sound, not samples"):
        read_inputs(path, [interface((1, 3))])


@pytest.mark.parametrize(
    ("text", "shape", "runs"),
    [
        ("1,2\n3,4\n", (2, 2), [[[1, 2], [3, 4]]]),
        ("a,b\n1,2\n\n3,4\n", (1, 2), [[[1, 2]], [[3, 4]]]),
        ("0.5\n", (1,), [[0.5]]),
    ],
)
def test_tables(tmp_path: Path, text: str, shape: tuple[int, ...], runs: list[object]) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    given = read_inputs(path, [interface(shape, dtype="float32")])
    assert [run[0].tolist() for run in given.runs] == runs


@pytest.mark.parametrize(
    ("name", "content", "shape", "message"),
    [
        ("p.png", b"no picture", (1, 2, 4, 3), "the picture cannot be read"),
        ("p.png", b"", (1, 10), "x is 1x10: which is not the shape of a picture"),
        ("s.wav", b"RIFFxxxx", (1, 4), "the sound cannot be read"),
        ("s.wav", b"", (1, 49, 10, 1), "it reads features, not samples"),
        ("t.csv", b"1,2\n3\n", (2, 2), "row 2 does not have 2 numbers"),
        ("t.csv", b"1,2\n3,x\n", (2, 2), "row 2 does not have 2 numbers"),
        ("t.csv", b"1,2,3\n", (2, 2), "the table has 1 rows of 3, but x has 4 elements"),
        ("t.csv", b"", (2, 2), "the table has no numbers"),
        ("t.csv", b"nan\n", (1,), "1 of 1 values are NaN"),
    ],
)
def test_what_is_wrong_with_a_file(
    tmp_path: Path, name: str, content: bytes, shape: tuple[int, ...], message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_inputs(path, [interface(shape)])


def test_several_inputs_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("1\n")
    with pytest.raises(UsageError, match="the model has 2 inputs"):
        read_inputs(path, [interface((1,)), interface((1,))])


@pytest.mark.cc
def test_run_names_the_five_greatest(tmp_path: Path) -> None:
    digit = np.load(ROOT / "demo" / "digit.npz")
    pixels = next(iter(digit.values())).reshape(8, 8).astype(int) + 128
    Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "7.png")
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(f"digit {i}" for i in range(10)))
    command = [
        "run",
        str(ROOT / "demo" / "digits.tflite"),
        "--board",
        "host",
        "--input",
        str(tmp_path / "7.png"),
    ]
    done = CliRunner().invoke(app, [*command, "--labels", str(labels), "--repeat", "3"])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[2].split() == ["[7]", "0.996094", "digit", "7"]
    assert sum("digit " in line for line in lines) == 5
    assert any("3 runs, " in line for line in lines)
    data = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert np.argmax(data["outputs"]["probabilities"]) == 7


@pytest.mark.cc
def test_the_header_stores_the_same_numbers(tmp_path: Path) -> None:
    model = api.load(ROOT / "demo" / "digits.tflite")
    generated = model.compile("host").generate("library")
    generated.extract(tmp_path / "p")
    (tmp_path / "q.c").write_text(
        '#include "digits.h"\n'
        "void quantize(const float *real, int8_t *stored) { digits_quantize_image(real, stored); }\n"
        "void dequantize(const int8_t *stored, float *real)\n"
        "{ digits_dequantize_probabilities(stored, real); }\n"
    )
    library = tmp_path / "q.so"
    folders = [f"-I{path.parent}" for path in (tmp_path / "p").rglob("*.h")]
    include = [f"-I{path.parent.parent}" for path in (tmp_path / "p").rglob("crt/version.h")]
    flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-std=c11"]
    sources = [str(tmp_path / "q.c"), *map(str, (tmp_path / "p" / "model").glob("*.c"))]
    command = [require_tool("gcc"), *flags, *folders, *include, "-o", str(library), *sources]
    subprocess.run(command, check=True, timeout=60)
    made = ctypes.CDLL(str(library))
    scale = np.float32(model.inputs[0].quant.scale)  # type: ignore[union-attr]
    real = np.concatenate([np.arange(-128, 128) * scale / 2, [-1e9, 1e9]]).astype(np.float32)[-64:]
    stored = np.zeros(64, np.int8)
    made.quantize(real.ctypes.data_as(ctypes.c_void_p), stored.ctypes.data_as(ctypes.c_void_p))
    np.savez(tmp_path / "x.npz", image=real.reshape(1, 8, 8, 1))
    info = model.compile("host").modules[0].info
    ((expected,),) = read_inputs(tmp_path / "x.npz", info.inputs, quantize=True).runs
    np.testing.assert_array_equal(stored, expected.ravel())
    assert stored[-2:].tolist() == [-128, 127]
    numbers = np.array([-128, -127, 0, 1, 126, 127, 5, 6, 7, 8], np.int8)
    floats = np.zeros(10, np.float32)
    made.dequantize(numbers.ctypes.data_as(ctypes.c_void_p), floats.ctypes.data_as(ctypes.c_void_p))
    np.testing.assert_array_equal(floats, (numbers.astype(np.float32) + 128) * np.float32(1 / 256))
