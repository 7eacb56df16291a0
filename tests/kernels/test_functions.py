"""The functions of ``crt/kernel.h`` against numpy in double precision and the definition of the rescaling."""

import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from crtgen.kernels.literal import c_float
from crtgen.ops.fixedpoint import multiply_by_quantized_multiplier
from crtgen.resources import runtime_dir
from tests.support import require_tool

Words = npt.NDArray[np.uint32]


def _floats() -> npt.NDArray[np.float32]:
    random = np.random.default_rng(5)
    near = random.uniform(-2, 2, 3000)
    far = random.uniform(-87, 88, 3000)
    special = [0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, -0.49999997, 0.625, 0.62500006, 1e-8, -1e-20]
    return np.concatenate([near, far, special]).astype(np.float32)


def _scales() -> npt.NDArray[np.int64]:
    """(x, multiplier, shift): random, at halves of the last bit, and at the ends of the ranges."""
    random = np.random.default_rng(6)
    x = random.integers(-(2**30) + 1, 2**30, 4000) >> random.integers(0, 30, 4000)
    rows = np.stack([x, random.integers(2**30, 2**31, 4000), random.integers(-31, 1, 4000)], 1)
    halves = [(n, 2**30, s) for n in range(-40, 41) for s in (-1, -2, -3)]
    ends = [(n, m, s) for n in (-(2**30) + 1, 2**30 - 1) for m in (2**30, 2**31 - 1) for s in (-31, -1, 0)]
    huge = [(n, m, s) for n in (2 - 2**31, 2**31 - 2) for m in (2**30, 2**31 - 1) for s in (-31, -2, -1, 0)]
    left = [(n, 1700000000, s) for n in (-77, 99) for s in range(1, 24)]
    return np.concatenate([rows, np.array(halves + ends + huge + left)])


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> tuple[Words, Words]:
    """What the functions give: [float, function] and [scale, function]."""
    directory = tmp_path_factory.mktemp("functions")
    floats, scales = _floats(), _scales()
    lines = [f"#define NUM_FLOATS {len(floats)}", f"#define NUM_SCALES {len(scales)}"]
    lines += [f"static const float floats[] = {{{','.join(map(c_float, floats.tolist()))}}};"]
    rows = ",".join("{" + ",".join(map(str, row)) + "}" for row in scales.tolist())
    lines += [f"static const int32_t scales[][3] = {{{rows}}};"]
    (directory / "arguments.h").write_text("\n".join(lines) + "\n")
    source = Path(__file__).parent / "functions.c"
    command = [require_tool("gcc"), "-std=c11", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    command += [f"-I{directory}", f"-I{runtime_dir() / 'include'}", str(source)]
    subprocess.run([*command, "-o", str(directory / "program")], check=True, timeout=120)
    done = subprocess.run([directory / "program"], check=True, capture_output=True, text=True, timeout=120)
    first, second = (
        np.array([int(word, 16) for word in line.split()], np.uint32) for line in done.stdout.splitlines()
    )
    return first.reshape(len(floats), 4), second.reshape(len(scales), 2)


@pytest.mark.cc
@pytest.mark.parametrize(("column", "name", "ulps"), [(0, "exp", 2), (1, "tanh", 2), (2, "logistic", 3)])
def test_transcendental(words: tuple[Words, Words], column: int, name: str, ulps: float) -> None:
    x = _floats().astype(np.float64)
    exact = {"exp": np.exp(x), "tanh": np.tanh(x), "logistic": 1 / (1 + np.exp(-x))}[name]
    actual = words[0][:, column].copy().view(np.float32)
    unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    assert (np.abs(actual - exact) / unit).max() <= ulps


@pytest.mark.cc
def test_round(words: tuple[Words, Words]) -> None:
    x = _floats().astype(np.float64)
    expected = np.copysign(np.floor(np.abs(x) + 0.5), x)
    assert np.array_equal(words[0][:, 3].copy().view(np.int32), expected)


@pytest.mark.cc
def test_scale(words: tuple[Words, Words]) -> None:
    """Both forms, where they apply."""
    x, multiplier, shift = _scales().T
    expected = multiply_by_quantized_multiplier(x, multiplier, shift)
    general, cheap = words[1].copy().view(np.int32).T
    assert np.array_equal(general, expected)
    served = (shift < 0) & (np.abs(x) < 2**30)
    assert np.array_equal(cheap[served], expected[served])
