"""Operators that keep something from run to run, in whole files: the same as TFLite Micro in every run."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.network.frontends import load_tflite
from crtgen.network.ir import Array
from tests.network.ops import oracle
from tests.tflite_builder import Model, Operator, Tensor

_INT8: dict[str, Any] = {"scales": [0.5], "zero_points": [3]}


def _file(code: str, fields: dict[str, Any], x: Tensor, *outputs: Tensor) -> bytes:
    """A model of one custom operator."""
    names = [t.name for t in outputs]
    operator = Operator(f"CUSTOM {code}", [x.name], names, custom=bytes(flexbuffers.Dumps(fields)))
    return Model([x, *outputs], [operator], [x.name], names).to_bytes()


def _runs(data: bytes, dtype: str, count: int = 9) -> tuple[list[tuple[Array, ...]], list[list[Array]]]:
    """The outputs of runs in a row: crtgen's and TFLite Micro's."""
    graph, random = load_tflite(data), np.random.default_rng(3)
    (name,) = graph.inputs
    shape = graph.values[name].shape
    inputs: list[tuple[Array]] = [(random.integers(-120, 120, shape).astype(dtype),) for _ in range(count)]
    return list(graph.run(inputs)), list(oracle.run_all(data, inputs, len(graph.outputs)))


def _shorts(name: str, *shape: int) -> Tensor:
    return Tensor(name, shape, "int16")


@pytest.mark.parametrize("length", [0, 3, 4, 11])
def test_delay(length: int) -> None:
    data = _file("SignalDelay", {"delay_length": length}, _shorts("x", 2, 4), _shorts("y", 2, 4))
    for actual, expected in zip(*_runs(data, "int16"), strict=True):
        oracle.assert_same(actual[0], expected[0])


def _valid(runs: Sequence[tuple[Array, ...]], wanted: Sequence[list[Array]]) -> list[bool]:
    """Whether each output is valid, by both; those that are, are the same."""
    for actual, expected in zip(runs, wanted, strict=True):
        oracle.assert_same(actual[1], expected[1])
        if expected[1]:
            oracle.assert_same(actual[0], expected[0])
    return [bool(outputs[1]) for outputs in wanted]


@pytest.mark.parametrize(
    ("size", "step", "prefill", "invalid"),
    [
        (6, 2, False, 1),
        (7, 2, False, 2),
        (7, 2, True, 0),
        (4, 4, False, 0),
        (20, 2, False, 5),
        (2, 4, False, 0),
    ],
)
def test_framer(size: int, step: int, prefill: bool, invalid: int) -> None:
    fields = {"frame_size": size, "frame_step": step, "prefill": prefill}
    outputs = _shorts("y", 2, 4 // step, size), Tensor("valid", (), "bool")
    valid = _valid(*_runs(_file("SignalFramer", fields, _shorts("x", 2, 4), *outputs), "int16"))
    assert valid == [False] * invalid + [True] * (9 - invalid)


@pytest.mark.parametrize(("left", "right", "step"), [(0, 0, 1), (2, 0, 1), (1, 3, 2), (2, 2, 5), (0, 1, 2)])
def test_stacker(left: int, right: int, step: int) -> None:
    fields = {
        "num_channels": 3,
        "stacker_left_context": left,
        "stacker_right_context": right,
        "stacker_step": step,
    }
    outputs = _shorts("y", 3 * (left + 1 + right)), Tensor("valid", (), "bool")
    valid = _valid(*_runs(_file("SignalStacker", fields, _shorts("x", 3), *outputs), "int16"))
    assert valid == [run >= right and (run - right) % step == 0 for run in range(9)]


@pytest.mark.parametrize("dtype", ["int16", "float32"])
def test_overlap_add(dtype: str) -> None:
    number = {"float32": 0, "int16": 7}[dtype]
    x, y = Tensor("x", (2, 3, 8), dtype), Tensor("y", (2, 9), dtype)
    data = _file("SignalOverlapAdd", {"T": number, "frame_step": 3}, x, y)
    for actual, expected in zip(*_runs(data, dtype), strict=True):
        oracle.assert_same(actual[0], expected[0])


def _buffer(cycles: int, slots: int, variable: bool = True) -> bytes:
    x = Tensor("x", (1, 1, 2, 3), "int8", **_INT8)
    y = Tensor("y", (1, slots, 2, 3), "int8", is_variable=variable, **_INT8)
    return _file("CIRCULAR_BUFFER", {"cycles_max": cycles}, x, y)


@pytest.mark.parametrize(("cycles", "slots"), [(1, 1), (1, 2), (1, 6), (0, 5), (-1, 13)])
def test_circular_buffer(cycles: int, slots: int) -> None:
    for actual, expected in zip(*_runs(_buffer(cycles, slots), "int8"), strict=True):
        oracle.assert_same(actual[0], expected[0])


def test_a_circular_buffer_is_a_state_whatever_its_tensor_says() -> None:
    graph = load_tflite(_buffer(1, 4, variable=False))
    assert [graph.values[before].shape for before, _ in graph.states] == [(1, 4, 2, 3)]


@pytest.mark.parametrize(("cycles", "slots"), [(2, 4), (0, 4)])
def test_a_circular_buffer_that_ends_runs_is_refused(cycles: int, slots: int) -> None:
    with pytest.raises(UnsupportedError, match="cycles_max is 2: TFLite Micro ends 1 of 2 runs"):
        load_tflite(_buffer(cycles, slots))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"frame_size": 0, "frame_step": 2, "prefill": True}, "frames of 0, 2 apart"),
        ({"frame_size": 3, "frame_step": 4, "prefill": True}, "frames of 3 with prefill are 4 apart"),
        ({"frame_size": 3, "frame_step": 3, "prefill": True}, "4 samples, frames 3 apart"),
    ],
)
def test_frames_that_make_no_sense(fields: dict[str, Any], reason: str) -> None:
    outputs = _shorts("y", 1, 3), Tensor("valid", (), "bool")
    with pytest.raises(CorruptModelError, match=reason):
        load_tflite(_file("SignalFramer", fields, _shorts("x", 4), *outputs))


@pytest.mark.parametrize(
    ("code", "fields", "reason"),
    [
        ("SignalDelay", {"delay_length": -3}, "a memory of 1x-3 samples"),
        ("SignalDelay", {"delay_length": 1 << 30}, "a memory of 1x1073741824 samples"),
        ("SignalDelay", {"delay_length": 2.5}, "the option delay_length is not an integer"),
        ("SignalRfft", {"T": 7, "fft_length": 24}, "a length of 24, not a power of two"),
        ("SignalIrfft", {"T": 7, "fft_length": 4.5}, "the option fft_length is not an integer"),
    ],
)
def test_options_that_make_no_sense(code: str, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(CorruptModelError, match=reason):
        load_tflite(_file(code, fields, _shorts("x", 4), _shorts("y", 4)))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stacker_left_context": -1}, r"stacks of -1 \+ 1 \+ 1 frames, 1 apart"),
        ({"stacker_step": 0}, r"stacks of 1 \+ 1 \+ 1 frames, 0 apart"),
        ({"stacker_step": 4}, r"stacks of 1 \+ 1 \+ 1 frames, 4 apart"),
        ({"num_channels": 5}, "5 channels of 4"),
    ],
)
def test_stacks_that_make_no_sense(change: dict[str, Any], reason: str) -> None:
    fields = {"num_channels": 4, "stacker_left_context": 1, "stacker_right_context": 1, "stacker_step": 1}
    outputs = _shorts("y", 12), Tensor("valid", (), "bool")
    with pytest.raises(CorruptModelError, match=reason):
        load_tflite(_file("SignalStacker", fields | change, _shorts("x", 4), *outputs))


def test_a_circular_buffer_of_two_images_is_refused() -> None:
    x, y = (Tensor(n, (2, k, 2, 3), "int8", **_INT8) for n, k in (("x", 1), ("y", 4)))
    with pytest.raises(CorruptModelError, match="the operator puts 2x1x2x3 into 2x4x2x3"):
        load_tflite(_file("CIRCULAR_BUFFER", {"cycles_max": 1}, x, y))
