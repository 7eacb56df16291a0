"""`.tflite` networks of integers whose inputs and outputs are float32."""

from pathlib import Path

import numpy as np
import pytest

from crtgen import api
from crtgen.proof.checker import Proof, prove
from crtgen.proof.checker.algebra.expression import has_unknown
from crtgen.proof.checker.algebra.real import TO_INTEGERS
from crtgen.proof.checker.algebra.value import Symbol, WordOp
from crtgen.proof.checker.core.invalid import asked_flag, flag_word, is_invalid, noted
from tests.proof.checker.changed import built_with
from tests.support import nightly, require_tool
from tests.tflite_builder import Model, Operator, Options, Tensor

M4 = "mps2_an386"
FILE = "model/ends_asm_kernels.S"


def ends(scale: float = 0.07) -> bytes:
    """A layer of two outputs for six numbers of float32."""
    numbers = np.random.default_rng(3)
    tensors = [
        Tensor("x", (1, 6), "float32"),
        Tensor("q", (1, 6), "int8", [scale], [-9]),
        Tensor("w", (2, 6), "int8", [0.02], [0], data=numbers.integers(-127, 128, (2, 6)).astype(np.int8)),
        Tensor("s", (1, 2), "int8", [0.1], [4]),
        Tensor("y", (1, 2), "float32"),
    ]
    operators = [
        Operator("QUANTIZE", ["x"], ["q"]),
        Operator("FULLY_CONNECTED", ["q", "w"], ["s"], Options("FullyConnectedOptions")),
        Operator("DEQUANTIZE", ["s"], ["y"]),
    ]
    return Model(tensors, operators, ["x"], ["y"]).to_bytes()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "ends.tflite"
    file.write_bytes(ends())
    return file


def proof(model: Path, board: str, *changes: tuple[str, str], count: int | None = 1) -> Proof:
    require_tool("arm-none-eabi-gcc")
    generated = api.load(model).compile(board).generate("standalone")
    built = built_with(generated, FILE, *changes, count=count) if changes else generated.build()
    return prove(built.path, model)


@pytest.mark.qemu
@pytest.mark.parametrize("board", [M4, "mps3_an547", nightly("mps2_an500"), nightly("mps2_an505")])
def test_proven(board: str, model: Path) -> None:
    found = proof(model, board)
    assert found.is_proven, found.stopped or found.first_reason
    assert [layer.missing for layer in found.layers] == [0, 0, 0]


@pytest.mark.qemu
def test_another_scale(model: Path) -> None:
    """The image is another network's, whose first scale differs in its last bits."""
    require_tool("arm-none-eabi-gcc")
    built = api.load(model).compile(M4).generate("standalone").build()
    model.write_bytes(ends(float(np.nextafter(np.float32(0.07), np.float32(1)))))
    found = prove(built.path, model)
    assert not found.is_computed
    assert "the network says" in "".join(r for layer in found.layers for r in layer.reasons)


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ("vmsr    fpscr, r2", "nop", 2),  # the flag is as it was before
        ("bic     r2, r2, #1", "bic r2, r2, #2", 2),  # another flag is cleared
        nightly("lsls    r2, r2, #31", "lsls r2, r2, #30", 1),  # another flag is asked for
        ("bne     .Lends_quantise_0_beyond", "nop", 1),  # infinity less infinity
        ("vmovgt.f32 s3, s11", "vmovgt.f32 s3, s3", 1),  # it would clamp for ever
        nightly("vmovlt.f32 s2, s10", "vmovlt.f32 s2, s11", 1),
        ("movt    r2, #16911", "movt r2, #16640", 1),  # clamped within the range
        nightly("vcvt.s16.f32 s7, s7, #1", "vcvt.s16.f32 s7, s7, #2", 1),
        nightly("shadd16 r6, r6, r12", "sadd16 r6, r6, r12", 1),
        nightly("sel     r12, r3, r4", "sel r12, r4, r3", 1),
    ],
)
def test_a_wrong_quantisation(old: str, new: str, count: int, model: Path) -> None:
    found = proof(model, M4, (old, new), count=count)
    assert not found.is_computed


X = Symbol(0, 0, -(1 << 31), (1 << 31) - 1, 32)
LARGE, INFINITE = 0x42C80000, 0x7F800000


def test_the_flag_of_invalid_operations() -> None:
    product = WordOp("f_mul", X.word, LARGE)
    conversion = WordOp("f_int_16", product)
    made = noted(noted((), product), conversion)
    flag = flag_word(made)
    assert isinstance(flag, WordOp)
    assert (flag.name, flag.args) == ("f_beyond", (conversion,))
    assert [is_invalid(conversion, X, bits) for bits in (INFINITE, LARGE, 0)] == [True, False, False]
    condition = WordOp("ne", WordOp("lsl", flag, 31), 0)
    assert asked_flag(WordOp("sel", condition, 1, 2)) is condition
    # What was not converted, and what was before the flag was cleared.
    for other in (noted(made, WordOp("f_add", X.word, LARGE)), noted(None, conversion)):
        assert has_unknown(flag_word(other))
    # A constant may have been too large.
    assert noted(made, 0x7FFF) is None


def test_numbers_within_the_range_set_no_flag() -> None:
    clamped = WordOp("sel", WordOp("f_gt", X.word, LARGE), LARGE, X.word)
    both = WordOp("sel", WordOp("f_lt", clamped, LARGE | 1 << 31), LARGE | 1 << 31, clamped)
    for factor, fits in ((0x43000000, True), (0x44000000, False)):  # 128 and 512
        conversion = WordOp("f_int_16", WordOp("f_mul", both, factor))
        assert (flag_word((conversion,)) == 0) is fits


def test_each_conversion_has_a_range() -> None:
    for name in TO_INTEGERS:
        assert flag_word((WordOp(name, LARGE),)) == 0
        assert flag_word((WordOp(name, INFINITE),)) != 0
