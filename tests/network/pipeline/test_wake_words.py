"""Micro-wake-words with their features, from samples: TFLite Micro's outputs for the features of the twin.

What is compared is the input of the last LOGISTIC: a probability hardly moves.
"""

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import tflite

from crtgen.network.features import Features
from tests.firmware.project.test_wake_words import WORDS, found
from tests.network.ops.oracle import run_all
from tests.network.pipeline.files import describe, given
from tests.network.pipeline.pushed import check

_ANY = "[decision]\nabove = -1e6\n"


def _with_logits(data: bytes) -> bytes:
    """The network with what goes into its LOGISTIC as its output."""
    graph = tflite.Model.GetRootAs(data, 0).Subgraphs(0)
    made_by = {graph.Operators(i).Outputs(0): graph.Operators(i) for i in range(graph.OperatorsLength())}
    codes = tflite.Model.GetRootAs(data, 0)
    node = made_by[graph.Outputs(0)]
    while codes.OperatorCodes(node.OpcodeIndex()).BuiltinCode() != tflite.BuiltinOperator.LOGISTIC:
        node = made_by[node.Inputs(0)]
    changed = bytearray(data)
    outputs = graph._tab.Vector(graph._tab.Offset(8))
    assert struct.unpack_from("<i", changed, outputs) == (graph.Outputs(0),)
    struct.pack_into("<i", changed, outputs, node.Inputs(0))
    return bytes(changed)


def _speech() -> npt.NDArray[np.int16]:
    """A second of speech, and one of other sounds."""
    parts = (given("mlperf_sww")["wav0"][8000:24000], given("microfrontend_10ms")["wav1"][:12000])
    return np.concatenate(parts)


def _check(folder: Path, name: str, machine: str) -> None:
    network = folder / "word.tflite"
    network.write_bytes(_with_logits(found(name).read_bytes()))
    is_new = name.startswith("v2/")
    preset, rows = ("microwakeword", 3) if is_new else ("microwakeword-20ms", 1)
    samples = _speech()
    file = describe(folder, preset, network, _ANY)
    events = check(folder, file, samples, machine)
    features = Features(preset).transform(samples)
    count = len(features) // rows
    inputs = features[: count * rows].reshape(count, 1, rows, 40)
    expected = [int(y[0].ravel()[0]) for y in run_all(network.read_bytes(), [[x] for x in inputs])]
    assert [event.score for event in events] == expected
    assert len(set(expected)) > 10


@pytest.mark.cc
@pytest.mark.parametrize("name", WORDS)
def test_on_this_computer(tmp_path: Path, name: str) -> None:
    _check(tmp_path, name, "")


@pytest.mark.qemu
@pytest.mark.parametrize("name", WORDS)
def test_on_a_cortex_m4(tmp_path: Path, name: str) -> None:
    _check(tmp_path, name, "mps2_an386")
