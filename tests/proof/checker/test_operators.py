"""Operators one by one: what the checker takes them to compute, and images of them on cores of each kind."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from crtgen import api
from crtgen.base.contents import Contents
from crtgen.network.ir import Op, Quant, Signature, Value
from crtgen.network.ops import ArgMax, ArgMin, Case
from crtgen.network.ops.svdf import Svdf
from crtgen.proof.checker import prove
from crtgen.proof.checker.binary.decoders import agree
from crtgen.proof.checker.binary.image import DecodedImage, read_image
from crtgen.proof.checker.network.network import Network
from tests.network.ops import oracle
from tests.proof.checker.cases import CASES
from tests.proof.checker.test_network import run
from tests.support import models_dir, require_tool


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The cases as `.tflite` files."""
    folder, found = tmp_path_factory.mktemp("operators"), {}
    for case in CASES:
        found[case.name] = folder / f"{case.name}.tflite"
        found[case.name].write_bytes(oracle.model(case.graph()))
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_meaning(case: Case, files: dict[str, Path]) -> None:
    """Three voices: the checker, TensorFlow Lite Micro, and crtgen's own reference."""
    graph, network = case.graph(), Network(files[case.name])
    inputs = case.inputs(1)
    given = tuple(inputs[name] for name in graph.inputs)
    (micro,) = oracle.run_all(files[case.name].read_bytes(), [given])
    (own,) = graph.run([given])
    bits = (x.view(np.int32) if x.dtype == np.float32 else x for x in given)
    found, *_ = run(network, *bits)
    if own[0].dtype == np.float32:
        found = found.astype(np.int32).view(np.float32)
    np.testing.assert_array_equal(found, micro[0].ravel())
    np.testing.assert_array_equal(found, own[0].ravel())


def unproven(files: Sequence[Path], board: str, directory: Path) -> dict[str, str]:
    """Build one image of all models, and prove each; gives those that are not, with the reason.

    The decoders are asked about the instructions of all proofs at once.
    """
    require_tool("arm-none-eabi-gcc")
    image = directory / "firmware.elf"
    built = api.compile([api.load(file) for file in files], board).generate("standalone").build()
    image.write_bytes(built.path.read_bytes())
    code = set[int]()

    def later(_: DecodedImage, used: Iterable[int]) -> dict[str, str]:
        code.update(used)
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crtgen.proof.checker.proof.read_image", cache(read_image))
        patch.setattr("crtgen.proof.checker.proof.agree", later)
        proofs = {file.stem: prove(image, file) for file in files}
    assert agree(read_image(image), code)
    return {name: p.stopped or p.first_reason for name, p in proofs.items() if not p.is_computed}


NOT_FOLLOWED = {
    "mps2_an385": {
        "lstm_int16",
        "lstm_int16_batch",
        "quantize_f32",
        "quantize_f32_int16",
        "quantize_f32_saturated",
        "dequantize_int16",
    },
    "mps2_an386": {"lstm_int8_batch"},
    "mps2_an505": {"lstm_int8_batch"},
    "mps3_an547": set[str](),
    "rpi_pico": {
        "average_pool2d_int16",
        "svdf_int16",
        *(case.name for case in CASES if case.name.startswith(("lstm", "quantize_f32", "dequantize"))),
    },
}
"""By board, what docs/prove.md says is not proven."""

LSTMS = {case.name for case in CASES if case.name.startswith("lstm")}
_REPEATED = {"tanh_int16_0.00024", "quantize_f32_int16"} | LSTMS - {"lstm_int16"}
LONG = dict.fromkeys(("mps2_an386", "mps3_an547"), _REPEATED | {"softmax_fine"})
"""Left to the night: test_lstm.py proves lstm_int8 on both cores, and digits has a softmax."""


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps3_an547"])
def test_proven(board: str, files: dict[str, Path], tmp_path: Path) -> None:
    """Each in an image with the others; the other cores are proven nightly, by ``test_all_proven``."""
    found = unproven([file for name, file in files.items() if name not in LONG[board]], board, tmp_path)
    assert found.keys() == NOT_FOLLOWED[board] - LONG[board], found


@pytest.mark.qemu
@pytest.mark.nightly
@pytest.mark.parametrize("board", NOT_FOLLOWED)
def test_all_proven(board: str, files: dict[str, Path], tmp_path: Path) -> None:
    found = unproven(list(files.values()), board, tmp_path)
    assert found.keys() == NOT_FOLLOWED[board], found


def _changed(case: Case) -> bytes:
    """The file of a network that differs a little: a scale, a weight, the least in place of the greatest."""
    x, *others = case.sig.inputs
    y, *after = case.sig.outputs
    op: Op = case.op
    if isinstance(op, ArgMax):
        op = ArgMin(op.axis)
    elif isinstance(op, Svdf):
        time = others[1].array().astype(np.int64)
        time.flat[0] ^= 1
        others[1] = Value.constant("t", time.astype(others[1].dtype.numpy), others[1].quant)
    else:
        assert y.quant is not None
        y = replace(y, quant=Quant.tensor(float(y.quant.scales[0]) * 1.001, int(y.quant.zero_points[0])))
    return oracle.model(Case(case.name, op, Signature((x, *others), (y, *after))).graph())


FAULTY = (
    "arg_max_last",
    "batch_matmul_int8_0",
    "batch_matmul_int16_0",
    "svdf_int8",
    "svdf_batch",
    "select_int16",
)


@pytest.mark.qemu
@pytest.mark.parametrize(
    "board",
    [
        pytest.param("mps2_an385", marks=pytest.mark.nightly),
        "mps2_an386",
        pytest.param("mps2_an505", marks=pytest.mark.nightly),
        pytest.param("mps3_an547", marks=pytest.mark.nightly),
        pytest.param("rpi_pico", marks=pytest.mark.nightly),
    ],
)
def test_a_fault_is_refused(board: str, files: dict[str, Path], tmp_path: Path) -> None:
    """Networks that choose or multiply matrices: proven, and refused if the file differs a little.

    SELECT has no number that could differ: the other operand is chosen in its image.
    """
    require_tool("arm-none-eabi-gcc")
    right = [files[name] for name in FAULTY]
    generated = api.compile([api.load(file) for file in right], board).generate("standalone")
    source = "model/select_int16_kernels.c"
    text = generated.project.sources[source].replace(b"(a ? b : c)", b"(a ? c : b)")
    assert text != generated.project.sources[source]
    sources = Contents({**generated.project.sources, source: text})
    image = replace(generated, project=replace(generated.project, sources=sources)).build()
    wrong = {name: tmp_path / f"{name}.tflite" for name in FAULTY[:-1]}
    for name, file in wrong.items():
        file.write_bytes(_changed(next(case for case in CASES if case.name == name)))
    for name, file in wrong.items():
        assert prove(image.path, files[name]).is_computed, name
        assert not prove(image.path, file).is_computed, name
    assert not prove(image.path, files["select_int16"]).is_computed


SHARED = """
    seanet/add0 seanet/add16 seanet/conv0 seanet/conv11 seanet/leaky_relu0 seanet/leaky_relu9 seanet/pad0
    seanet/pad12 seanet/quantize0 seanet/strided_slice0 seanet/strided_slice21 seanet/sub0
    seanet/transpose_conv0 streaming/v2_vad_logits streaming/hey_jarvis_logits streaming/v2_okay_nabu
    streaming/v2_okay_nabu_logits
"""
LSTM = "tflm/trained_lstm_int8"


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.nightly
@pytest.mark.parametrize("board", ["mps2_an385", "mps2_an386", "mps3_an547", "rpi_pico"])
def test_networks_of_others(board: str, tmp_path: Path) -> None:
    """int16, states, several inputs: together in one image."""
    folder = models_dir().parent / "networks"
    names = [*SHARED.split(), *([LSTM] if board in ("mps2_an386", "mps3_an547") else [])]
    assert unproven([folder / f"{name}.tflite" for name in names], board, tmp_path) == {}
