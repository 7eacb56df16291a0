"""Damaged files: whatever the damage, the answer is a model error or a valid graph, and soon."""

import contextlib
import random
import time
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.network.frontends import load_tflite
from crtgen.network.ops import all_cases
from tests.network.ops import oracle
from tests.support import model_path

_OTHERS = ("_onnx", "_larq", "_features", "_uint8")
_CASES = {case.name: case for case in all_cases() if not case.name.endswith(_OTHERS)}
_MODELS = ("hello_world_int8", "kws_int8", "ic01_float32")


@cache
def _small(name: str) -> bytes:
    return oracle.model(_CASES[name].graph())


def _load(data: bytes) -> None:
    """Load, and evaluate nothing: any exception but a model error fails the test, and so do 2 s of work."""
    start = time.process_time()
    with contextlib.suppress(CorruptModelError, UnsupportedError):
        load_tflite(data)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("name", ["conv2d_same_s2_relu", "strided_slice_backward", "pad_value"])
def test_no_prefix_of_a_small_model_loads(name: str) -> None:
    data = _small(name)
    for end in range(len(data)):
        with pytest.raises(CorruptModelError):
            load_tflite(data[:end])


@pytest.mark.models
@pytest.mark.parametrize("name", _MODELS)
def test_prefixes_of_a_real_model(name: str) -> None:
    data = model_path(name).read_bytes()
    for end in range(0, len(data), max(1, len(data) // 300)):
        _load(data[:end])


@settings(max_examples=400)
@given(st.sampled_from(sorted(_CASES)), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1))
def test_random_bytes_in_small_models(name: str, flips: list[tuple[int, int]]) -> None:
    data = bytearray(_small(name))
    for position, value in flips:
        data[position % len(data)] = value
    _load(bytes(data))


@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_random_files(rest: bytes) -> None:
    _load(b"\x10\0\0\0TFL3" + rest)


@pytest.mark.models
@pytest.mark.parametrize("name", _MODELS)
def test_flipped_bits_in_the_tables_of_a_real_model(name: str) -> None:
    original = model_path(name).read_bytes()
    generator = random.Random(name)
    for _ in range(120):
        data = bytearray(original)
        for _ in range(generator.choice((1, 2, 8))):
            start = generator.choice((0, max(0, len(data) - 12000)))
            data[generator.randrange(start, min(len(data), start + 12000))] ^= 1 << generator.randrange(8)
        _load(bytes(data))
