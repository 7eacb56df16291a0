"""The functions of ``crt/kernel.h`` against numpy in double precision and the definition of the rescaling."""

import subprocess
from math import erf
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from crtgen.base.resources import runtime_dir
from crtgen.compiler.kernels.engine.literal import c_float
from crtgen.network.ops.fixedpoint import multiply_by_quantized_multiplier
from tests.support import compile_each, require_tool

Words = npt.NDArray[np.uint32]


def _floats() -> npt.NDArray[np.float32]:
    random = np.random.default_rng(5)
    near = random.uniform(-2, 2, 3000)
    far = random.uniform(-87, 88, 3000)
    beyond = random.uniform(-1, 1, 1000) * 10.0 ** random.uniform(2, 3.3, 1000)
    special = [0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, -0.49999997, 0.625, 0.62500006, 1e-8, -1e-20]
    return np.concatenate([near, far, beyond, special]).astype(np.float32)


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
    command += [f"-I{directory}", f"-I{runtime_dir() / 'include'}"]
    compile_each(command, [source], directory / "program")
    done = subprocess.run([directory / "program"], check=True, capture_output=True, text=True, timeout=120)
    first, second = (
        np.array([int(word, 16) for word in line.split()], np.uint32) for line in done.stdout.splitlines()
    )
    return first.reshape(len(floats), 19), second.reshape(len(scales), 2)


@pytest.mark.cc
@pytest.mark.parametrize(("column", "name", "ulps"), [(0, "exp", 2), (1, "tanh", 2), (2, "logistic", 3)])
def test_transcendental(words: tuple[Words, Words], column: int, name: str, ulps: float) -> None:
    x = _floats().astype(np.float64)
    normal = (x >= -87) & (x <= 88)
    x = x[normal]
    exact = {"exp": np.exp(x), "tanh": np.tanh(x), "logistic": 1 / (1 + np.exp(-x))}[name]
    actual = words[0][normal, column].copy().view(np.float32)
    unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    assert (np.abs(actual - exact) / unit).max() <= ulps


@pytest.mark.cc
def test_powers(words: tuple[Words, Words]) -> None:
    """What C's pow gives, also of numbers below zero, and where a power is zero or infinite."""
    x, y = _floats().astype(np.float64), np.roll(_floats(), -1).astype(np.float64)
    with np.errstate(all="ignore"):
        exact = x**y
        rounded = exact.astype(np.float32)
    actual = words[0][:, 16].copy().view(np.float32)
    normal = (np.abs(exact) > 1.2e-38) & (np.abs(exact) < 3e38)
    assert np.array_equal(np.isnan(actual), np.isnan(exact))
    assert np.array_equal(np.isinf(actual), np.isinf(rounded))
    unit = np.spacing(np.abs(rounded[normal])).astype(np.float64)
    assert (np.abs(actual[normal] - exact[normal]) / unit).max() <= 2
    assert np.abs(actual[~normal & (np.abs(exact) < 1)]).max(initial=0) < 1.3e-38


@pytest.mark.cc
def test_functions_of_positive_numbers(words: tuple[Words, Words]) -> None:
    """Of zero and below, what C has: minus infinity, not a number."""
    x = _floats()
    for column, function in ((4, np.log), (5, np.sqrt)):
        actual = words[0][:, column].copy().view(np.float32)
        with np.errstate(all="ignore"):
            exact = function(x.astype(np.float64))
        inside = np.isfinite(exact)
        unit = np.spacing(np.abs(exact[inside]).astype(np.float32)).astype(np.float64)
        assert (np.abs(actual[inside] - exact[inside]) <= 2 * np.maximum(unit, 1e-8)).all()
        assert np.array_equal(actual[~inside], exact[~inside].astype(np.float32), equal_nan=True)


@pytest.mark.cc
def test_sine_and_cosine(words: tuple[Words, Words]) -> None:
    """Angles of many turns, too; those beyond 2^24 are among the cases of the operators."""
    x = _floats().astype(np.float64)
    assert (np.abs(x) > 80).any()
    for column, function in ((6, np.sin), (7, np.cos)):
        actual = words[0][:, column].copy().view(np.float32)
        assert np.abs(actual - function(x)).max() < 2e-7


@pytest.mark.cc
def test_powers_less_one(words: tuple[Words, Words]) -> None:
    x = _floats().astype(np.float64)
    actual, negative = words[0][:, 8].copy().view(np.float32), x <= 0
    exact = np.expm1(x[negative])
    assert (np.abs(actual[negative] - exact) <= 1e-6 * np.abs(exact) + 1e-30).all()


@pytest.mark.cc
def test_whole_numbers_and_remainders(words: tuple[Words, Words]) -> None:
    """Exact, all of them."""
    x = _floats()
    columns = {n: words[0][:, n].copy().view(np.float32) for n in range(9, 13)}
    for column, function in ((9, np.floor), (10, np.ceil), (11, np.rint)):
        np.testing.assert_array_equal(columns[column], function(x))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(columns[12], np.fmod(x, np.roll(x, -1)))
    away = np.copysign(np.floor(np.abs(x.astype(np.float64)) + 0.5), x)
    np.testing.assert_array_equal(words[0][:, 13].copy().view(np.int32), np.clip(away, -(2**31), 2**31 - 1))


@pytest.mark.cc
def test_fewer_digits(words: tuple[Words, Words]) -> None:
    """Those of float16 and bfloat16, exactly."""
    x = _floats()
    with np.errstate(over="ignore"):
        half = x.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(words[0][:, 17].copy().view(np.float32), half)
    short = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(words[0][:, 18].copy().view(np.float32), short)


@pytest.mark.cc
def test_error_function_and_angles(words: tuple[Words, Words]) -> None:
    x = _floats().astype(np.float64)
    exact = {14: np.array([erf(number) for number in x]), 15: np.arctan(x)}
    for column, expected in exact.items():
        actual = words[0][:, column].copy().view(np.float32)
        assert (np.abs(actual - expected) <= 3e-7 * np.abs(expected) + 1e-30).all()


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


def _products() -> npt.NDArray[np.int64]:
    """(x, multiplier, right): random, beside halves, and where x has more than 24 bits."""
    random = np.random.default_rng(8)
    count = 60_000
    multiplier = random.integers(1 << 23, 1 << 24, count) >> random.integers(0, 24, count) * (
        random.integers(0, 4, count) == 0
    )
    multiplier <<= 24 - np.frexp(multiplier)[1].astype(np.int64)  # few digits: products that are halves
    right = random.integers(1, 61, count)
    x = random.integers(-(2**31) + 1, 2**31, count) >> random.integers(0, 31, count)
    halves = (random.integers(0, 256, count) + 0.5) * np.exp2(right) / multiplier
    beside = np.clip(halves, 0, 2**31 - 9).astype(np.int64) + random.integers(-1, 2, count)
    rows = np.stack([np.where(random.integers(0, 2, count) == 0, x, beside), multiplier, right], 1)
    ends = [
        (n, m, r) for n in (0, 1, -1, 2**31 - 1) for m in (0, 1 << 23, (1 << 24) - 1) for r in (1, 24, 60)
    ]
    return np.concatenate([rows, np.array(ends)])


@pytest.mark.cc
@pytest.mark.parametrize("options", [[], ["-DCRT_NO_FPU"], ["-DCRT_NO_FPU", "-D__ARM_ARCH_ISA_THUMB=1"]])
def test_products_of_float32_in_integers(options: list[str], tmp_path: Path) -> None:
    """Cores without an FPU round twice as float32 does: to 24 bits, then to a whole number."""
    command = [require_tool("gcc"), "-std=c11", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    command += [*options, f"-I{runtime_dir() / 'include'}"]
    compile_each(command, [Path(__file__).parent / "scale_even.c"], tmp_path / "program")
    rows = _products()
    text = "\n".join(" ".join(map(str, row)) for row in rows.tolist())
    done = subprocess.run(
        [tmp_path / "program"], input=text, check=True, capture_output=True, text=True, timeout=120
    )
    even, odd = np.array(done.stdout.split(), np.int64).reshape(-1, 2).T
    product = rows[:, 0].astype(np.float32) * (rows[:, 1] * np.exp2(-rows[:, 2])).astype(np.float32)
    most = 1 << 20
    expected = np.clip(np.rint(product.astype(np.float64)), -most, most)
    assert (np.abs(expected) < most).mean() > 0.5
    np.testing.assert_array_equal(np.clip(even, -most, most), expected)
    expected = np.clip(np.rint(product + np.float64(1)) - 1, -most, most)
    np.testing.assert_array_equal(np.clip(odd, -most, most), expected)
