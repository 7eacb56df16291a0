"""Networks with other operators, types and states than the reference models have."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import crtgen
from crtgen.device.session import Session
from crtgen.lab.measure.cases import compare, largest_outputs, read_cases
from tests.support import models_dir, require_tool

pytestmark = pytest.mark.models

GROUPS = (
    (
        "seanet/add0",
        "seanet/add16",
        "seanet/conv0",
        "seanet/conv11",
        "seanet/leaky_relu0",
        "seanet/leaky_relu9",
    ),
    ("seanet/pad0", "seanet/pad12", "seanet/quantize0", "seanet/strided_slice0", "seanet/strided_slice21"),
    ("seanet/sub0", "seanet/transpose_conv0", "streaming/v2_vad_logits", "tflm/audio_preprocessor_int8"),
    ("streaming/hey_jarvis_logits", "streaming/v2_okay_nabu", "streaming/v2_okay_nabu_logits"),
    ("tflm/person_detect", "tflm/trained_lstm", "tflm/trained_lstm_int8", "tinymaix/mbnet96_0.25_q"),
)
"""The networks of an image: a server holds a few."""

SMALL = ("seanet/sub0", "streaming/v2_vad_logits", "tflm/audio_preprocessor_int8", "tflm/trained_lstm_int8")


def _file(name: str) -> Path:
    return models_dir().parent / "networks" / f"{name}.tflite"


def _verify(session: Session, name: str, model: str) -> None:
    """Every case, each sequence from reset."""
    info = session.model(model)
    cases = read_cases(_file(name).with_suffix(".npz"), info.inputs, info.outputs)
    largest = largest_outputs(cases)
    assert cases
    for case in cases:
        if not case.follows:
            session.reset(model)
        outputs = session.infer(*case.inputs, model=model)
        assert compare(info.outputs, case.outputs, outputs, largest) is None, case.name


def _verify_together(names: Sequence[str], board: str) -> None:
    """Several networks beside each other in an image."""
    image = crtgen.compile([crtgen.load(_file(name)) for name in names], board).generate().build()
    with image.run(counting=False) as session:
        for name, info in zip(names, session.models, strict=True):
            _verify(session, name, info.name)


@pytest.mark.cc
@pytest.mark.parametrize("names", GROUPS)
def test_every_network_on_the_host(names: Sequence[str]) -> None:
    _verify_together(names, "host")


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547"])
def test_some_networks_on_boards(board: str) -> None:
    """States, sequences, int16."""
    require_tool("qemu-system-arm")
    _verify_together(SMALL, board)


@pytest.mark.matrix
@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2_an385", "mps2_an386", "mps3_an547"])
@pytest.mark.parametrize("name", [name for names in GROUPS for name in names])
def test_every_network_on_boards(name: str, board: str) -> None:
    require_tool("qemu-system-arm")
    image = crtgen.load(_file(name)).compile(board).generate().build()
    with image.run(counting=False) as session:
        _verify(session, name, session.models[0].name)
