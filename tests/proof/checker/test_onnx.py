"""Quantised ONNX networks: what the checker takes them to compute, and images of them."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from crtgen import api
from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.proof.checker import prove
from crtgen.proof.checker.binary.image import DecodedImage, read_image
from crtgen.proof.checker.network.elementwise import ElementLayer
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.proof import _network
from tests.network.frontends.onnx.quantised import (
    FORMS,
    SUMS,
    Whole,
    added,
    averaged,
    dense,
    expected,
    inputs,
    quantised,
    summed,
)
from tests.network.frontends.onnx.test_recurrent_integers import Form, recurrent_model
from tests.proof.checker.changed import built_with
from tests.proof.checker.mutations import flipped
from tests.proof.checker.test_network import run
from tests.support import nightly, require_tool

NAMES, KINDS = ("autoencoder", "plain", "separable"), ("qdq_uint8", "qdq_int8", "qdq_uint8_weights")
IN_CI = (*zip(NAMES, KINDS, strict=True), ("autoencoder", "qoperator_int8"))
OPERATORS = (("plain", "qoperator_int8"), ("separable", "qoperator_uint8"), ("residual", "qoperator_uint8"))
NETWORKS = [*IN_CI, *(nightly(n, k) for n in NAMES for k in KINDS if (n, k) not in IN_CI)]
NETWORKS += [nightly(*each) for each in OPERATORS]


@cache
def model(name: str, form: str) -> bytes:
    return quantised(name, FORMS[form])


@pytest.fixture
def file(name: str, form: str, tmp_path: Path) -> Path:
    found = tmp_path / f"{name}.onnx"
    found.write_bytes(model(name, form))
    return found


@pytest.mark.parametrize(("name", "form"), NETWORKS)
def test_meaning(name: str, form: str, file: Path) -> None:
    """Outputs equal ONNX Runtime's bit for bit."""
    network = Network(file)
    for x in inputs(name, 3):
        (found,) = run(network, x.view(np.int32))
        np.testing.assert_array_equal(
            found.astype(np.int32).view(np.float32), expected(model(name, form), x).ravel()
        )


@pytest.mark.parametrize("zero", [120, 125])
def test_averages_of_half_a_step(zero: int, tmp_path: Path) -> None:
    """Halves go to even results, also if the zero point is odd."""
    (tmp_path / "a.onnx").write_bytes(averaged(0.5, zero))
    network = Network(tmp_path / "a.onnx")
    x = np.random.default_rng(zero).uniform(-60, 60, (1, 4, 8, 16)).astype(np.float32)
    (found,) = run(network, x.view(np.int32))
    wanted = expected(averaged(0.5, zero), x).ravel()
    np.testing.assert_array_equal(found.astype(np.int32).view(np.float32), wanted)


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("name", "form", "board"),
    [
        nightly("residual", "qdq_int8", "mps2_an386"),
        nightly("residual", "qdq_int8", "mps3_an547"),
        nightly("separable", "qdq_uint8", "mps2_an386"),
        nightly("separable", "qdq_uint8", "mps3_an547"),
        nightly("residual", "qoperator_uint8", "mps2_an386"),
        nightly("autoencoder", "qoperator_int8", "mps3_an547"),
    ],
)
def test_proven(name: str, form: str, file: Path, board: str) -> None:
    require_tool("arm-none-eabi-gcc")
    image = api.load(file).compile(board).generate("standalone").build()
    proof = prove(image.path, file)
    assert proof.is_proven, proof.stopped or proof.first_reason
    assert [layer.missing for layer in proof.layers] == [0] * len(proof.layers)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """The file and an image of a small network for a board, which is proven."""
    folder = tmp_path_factory.mktemp("onnx")
    file = folder / "autoencoder.onnx"
    file.write_bytes(model("autoencoder", "qdq_int8"))

    @cache
    def build(board: str) -> tuple[Path, Path]:
        require_tool("arm-none-eabi-gcc")
        image = folder / f"{board}.elf"
        made = api.load(file).compile(board).generate("standalone").build()
        image.write_bytes(made.path.read_bytes())
        assert prove(image, file).is_proven
        return file, image

    return build


@pytest.mark.qemu
@pytest.mark.parametrize("which", ["input", "output"])
def test_another_name(built: Callable[[str], tuple[Path, Path]], which: str, tmp_path: Path) -> None:
    """What a host calls the tensors is compared with the file."""
    file, image = built("mps2_an386")
    assert prove(image, file).application.described
    changed = onnx.load(file)
    (end,) = getattr(changed.graph, which)
    before, end.name = end.name, "something_else"
    for node in changed.graph.node:
        for names in (node.input, node.output):
            names[:] = ["something_else" if name == before else name for name in names]
    renamed = tmp_path / file.name
    onnx.save(changed, renamed)
    proof = prove(image, renamed)
    assert proof.is_computed
    assert not proof.holds_from_call
    assert f"the description of {which} 0 has the name" in proof.application.wrong


def place(image: DecodedImage, function: str, name: str, which: int) -> int:
    """The address of an instruction in a function, by its name, or of one of the words behind its code."""
    whole = next(n for n in image.symbols if n.startswith(f"autoencoder_{function}"))
    first = image.symbols[whole]
    end = first + image.sizes[whole]
    if name == "word":
        return end + 4 * which
    return [a for a, i in sorted(image.instructions.items()) if first <= a < end and i.name == name][which]


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("board", "function", "name", "which", "byte", "bit"),
    [
        ("mps2_an386", "quantise_", "movw", 0, 2, 0),  # the reciprocal of the input's scale, by its last bit
        nightly("mps2_an386", "quantise_", "movw", 4, 2, 0),  # the zero point
        nightly("mps2_an386", "quantise_", "vcvtr", 2, 2, 7),  # cut towards zero
        nightly("mps2_an386", "quantise_", "qadd16", 0, 0, 0),  # another register
        nightly("mps2_an386", "dequantize_", "word", -1, 0, 0),  # the scale of the output
        ("mps2_an386", "dense_", "vcvtr", 0, 2, 7),  # cut towards zero
        nightly("mps2_an386", "dense_", "vcvtr", 0, 3, 4),  # nothing that an M4 knows
        nightly("mps3_an547", "quantize_", "movw", 3, 2, 0),  # the scale of the input
        nightly("mps3_an547", "quantize_", "vfma", 0, 2, 0),  # another register
        nightly("mps3_an547", "dequantize_", "movw", 0, 2, 0),
    ],
)
def test_a_changed_bit_is_rejected(
    built: Callable[[str], tuple[Path, Path]],
    tmp_path: Path,
    board: str,
    function: str,
    name: str,
    which: int,
    byte: int,
    bit: int,
) -> None:
    file, path = built(board)
    at = place(read_image(path), function, name, which)
    assert not prove(flipped(path, at + byte, bit, tmp_path), file).is_proven


def test_integers_at_both_ends(tmp_path: Path) -> None:
    (tmp_path / "dense.onnx").write_bytes(dense())
    network = Network(tmp_path / "dense.onnx")
    for x in np.random.default_rng(4).integers(-128, 128, (20, 1, 12)):
        (found,) = run(network, x)
        np.testing.assert_array_equal(found, expected(dense(), x.astype(np.int8)).ravel())


SHORT_WAY = {
    "nearer ties": ("(half * 2U) - 1U)) > 2U", "(half * 2U) - 1U)) > 1U"),
    "no ties": ("((moved + 2U) & ((half * 2U) - 1U)) > 2U", "half != 0U"),
    "half a step lost": ("moved = first + half", "moved = first"),
    "another step": (">> (right - 24)", ">> (right - 23)"),
    "no sign": ("(x < 0) ? -nearest : nearest", "nearest"),
    "a product less": (" + (middle >> 12);\n#else", ";\n#else"),
}
"""Changes of the short way of ``crt_scale_even`` that change results, the last one on M0+ only."""


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("board", "changes"),
    [
        ("rpi_pico", ["nearer ties"]),
        nightly("rpi_pico", [*SHORT_WAY]),
        nightly("mps2_an385", [*SHORT_WAY][:-1]),
    ],
)
def test_rescaling_without_an_fpu(board: str, changes: list[str], tmp_path: Path) -> None:
    """Sums are tried one by one: most take the short way, those near ties the long one."""
    require_tool("arm-none-eabi-gcc")
    file = tmp_path / "dense.onnx"
    file.write_bytes(dense())
    generated = api.load(file).compile(board).generate("standalone")
    image = generated.build()
    proof = prove(image.path, file)
    assert proof.is_proven, proof.stopped or proof.first_reason
    (header,) = (name for name in generated.project.sources if name.endswith("crt/kernel.h"))
    for name in changes:
        wrong = built_with(generated, header, SHORT_WAY[name])
        assert not prove(wrong.path, file).is_proven, name


@pytest.mark.parametrize(
    ("kind", "scales", "zeros"),
    [
        nightly(np.int8, *SUMS[0]),
        nightly(np.int8, *SUMS[1]),
        nightly(np.uint8, *SUMS[0]),
        (np.uint8, *SUMS[1]),
    ],
)
def test_sums_of_all_pairs(kind: Whole, scales: list[float], zeros: list[int], tmp_path: Path) -> None:
    data, file = added(kind, scales, zeros), tmp_path / "added.onnx"
    file.write_bytes(data)
    network, whole = Network(file), np.arange(-128, 128)
    layer = next(layer for layer in network.layers if layer.name == "Add")
    network.prepared(layer)
    assert isinstance(layer, ElementLayer)
    made = (layer.value(whole[:, None], whole[None, :]) - zeros[2]).astype(np.float32) * np.float32(scales[2])
    np.testing.assert_array_equal(made, summed(data, scales, zeros))


def test_what_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    for name, form, message in (
        ("separable", "qoperator_int8", "GlobalAveragePool of float32 numbers, which are not quantised"),
        ("attention", "qoperator_int8", "QLinearSoftmax is not followed"),
        ("gru", "qdq_int8", "GRU .*: its operand .* is not quantised"),
        ("attention", "qdq_int8", "Softmax has no proof yet"),
    ):
        file.write_bytes(model(name, form))
        with pytest.raises(UnsupportedError, match=message):
            _network(file)
    for op in ("LSTM", "GRU"):
        file.write_bytes(recurrent_model(Form(op, "int8", outputs=("yh",))))
        with pytest.raises(UnsupportedError, match=f"{op} has no proof yet"):
            _network(file)
    file.write_bytes(model("plain", "qdq_int8")[:1000])
    with pytest.raises(CorruptModelError, match="the file cannot be read"):
        _network(file)


@pytest.mark.qemu
def test_another_rounding_is_seen(tmp_path: Path) -> None:
    """Where the start of an image tells the core to cut numbers of float32 towards zero."""
    require_tool("arm-none-eabi-gcc")
    file = tmp_path / "autoencoder.onnx"
    file.write_bytes(model("autoencoder", "qdq_int8"))
    generated = api.load(file).compile("mps2_an386").generate("standalone")
    sources = dict(generated.project.sources)
    text = sources["platform/main.c"].decode()
    write = "int main(void)\n{\n    *(volatile uint32_t *)0xE000EF3Cu = 0x00C00000u;"
    sources["platform/main.c"] = text.replace("int main(void)\n{", write).encode()
    built = replace(generated, project=replace(generated.project, sources=sources)).build()
    assert "how numbers of float32 are rounded is set" in prove(built.path, file).reset.stopped
