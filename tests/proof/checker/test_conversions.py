"""Conversions between floats and integers: what the header's functions compute for every value."""

from functools import partial
from pathlib import Path

import pytest

from crtgen import api
from crtgen.boards import board_of_core
from crtgen.proof.checker import prove
from crtgen.proof.checker.binary.image import read_image
from crtgen.proof.checker.network.reading import read_network
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.surroundings.conversions import Conversions, follow_conversions
from crtgen.proof.printed import as_dict, lines_of
from tests.proof.checker.mutations import flipped
from tests.proof.checker.test_application import LINK, linked, rebuilt
from tests.support import nightly
from tests.tflite_builder import Model, Operator, Options, Tensor

pytestmark = pytest.mark.qemu

_CALL = """
        static float real[32];
        for (int i = 0; i < 32; i++) real[i] = sensor[i];
        elements_quantize_x(real, x);
        if (elements_run(&inputs, &outputs) == 0) { elements_dequantize_y(y, real); decision = real[3] > 0; }
"""
_NAMES = ("elements_dequantize_y", "elements_quantize_x")
FPU, NONE = "cortex-m4", "cortex-m0plus"


def followed(image: Path, model: Path, name: str) -> Conversions:
    return follow_conversions(read_image(image), read_network(model), name)


@pytest.mark.parametrize(
    "core", [FPU, NONE, nightly("cortex-m3"), nightly("cortex-m33"), nightly("cortex-m55")]
)
def test_conversions_of_an_application(core: str, tmp_path: Path) -> None:
    image = linked(tmp_path, _CALL, core=core)
    proof = prove(image, tmp_path / "elements.tflite")
    said = "\n".join(lines_of(proof, from_call=True))
    assert proof.holds_from_call, said
    assert proof.application.conversions.followed == _NAMES
    assert f"{_NAMES[0]} and {_NAMES[1]} compute the documented formulas for every value" in said
    trusted = proof.application.conversions.trusted
    assert ("__aeabi_fdiv" in trusted) == (core in (NONE, "cortex-m3"))
    assert ("are IEEE 754's, as with" in said) == bool(trusted)
    assert as_dict(proof)["application"]["conversions_followed"] == list(_NAMES)


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("application")
    linked(folder, _CALL)
    return folder


_DIVIDED = "real[i] / ELEMENTS_INPUT_X_SCALE"
_ABOVE = "(rounded > -131.0f) ? rounded : -131.0f"
_STORED = "stored[i] = (int8_t)((int32_t)limited + 3);"
_WRONG = {
    # a product with 1 / scale: other floats are rounded otherwise in the last bit
    "a product": (_DIVIDED, "real[i] * (1.0f / ELEMENTS_INPUT_X_SCALE)", "the formula says"),
    "a border": ("-0.5f : 0.5f", "-0.5f : 0.49999997f", "the formula says"),
    "NaN": (_ABOVE, "(rounded < -131.0f) ? -131.0f : rounded", "NaN becomes 3, the formula says -128"),
    "infinity": (_STORED, f"if (real[i] <= 3e38f) {_STORED}", "what NaN becomes is not known"),
    "one float": (
        "limited + 3);",
        "limited + 3 + (real[i] == 1.25f));",
        "1.25 becomes 29, the formula says 28",
    ),
    "its bits": ("limited + 3);", "limited + 3 + (((const int *)real)[i] == 0x3FA00000));", ""),
    "another element": (_STORED, _STORED.replace("[i]", "[i ^ 1]"), "element 0 of the result is not known"),
    "the last": ("i < ELEMENTS_INPUT_X_ELEMENTS", "i < 31", "element 31 of the result is not known"),
    "one more": ("i < ELEMENTS_INPUT_X_ELEMENTS", "i < 33", "a load from"),
    "its neighbour": (_STORED, f"{_STORED} if (i == 31) stored[32] = 0;", "a store to"),
    "a state": (_STORED, f"static int8_t n; n++; {_STORED}", "a load from"),
    "zero point": ("(int32_t)stored[i] - 11", "(int32_t)stored[i] - 12", "the formula says"),
    "scale": ("real[i] = ELEMENTS_OUTPUT_Y_SCALE", "real[i] = 0.0300000049f", "the formula says"),
}


_OFTEN = ("a product", "NaN", "another element", "zero point")


@pytest.mark.parametrize("which", [w if w in _OFTEN else nightly(w) for w in _WRONG])
def test_a_wrong_conversion(which: str, application: Path) -> None:
    old, new, reason = _WRONG[which]
    source = application / "model" / "elements.c"
    text = source.read_text()
    assert text.count(old) == 1, text[-1500:]
    source.write_text(text.replace(old, new))
    try:
        image = rebuilt(application)
    finally:
        source.write_text(text)
    with pytest.raises(Refusal) as refusal:
        followed(image, application / "elements.tflite", "elements")
    assert reason in str(refusal.value)


def test_another_way_to_write_the_formula(application: Path) -> None:
    source = application / "model" / "elements.c"
    text = source.read_text()
    source.write_text(text.replace("scaled < 0.0f", "scaled <= 0.0f"))  # 0 becomes the zero point either way
    try:
        image = rebuilt(application)
    finally:
        source.write_text(text)
    assert followed(image, application / "elements.tflite", "elements").followed == _NAMES


def test_a_library_that_is_broken(tmp_path: Path) -> None:
    """The compiler's library is tried: a flipped bit of its addition is found."""
    image = linked(tmp_path, _CALL, core=NONE)
    addition = read_image(image).symbols["__aeabi_fadd"]
    for place in (addition + 8, addition + 0x20):
        changed = flipped(image, place, 0, tmp_path)
        with pytest.raises(Refusal, match="__aeabi_fadd"):
            followed(changed, tmp_path / "elements.tflite", "elements")


_START = """
#include <pair.h>
void Reset_Handler(void);
__attribute__((section(".isr_vector"), used)) static const void *const table[2] = {0, Reset_Handler};
float real[8]; TYPE stored[8];
void Reset_Handler(void)
{
    for (;;) { CALLS }
}
"""


@pytest.mark.parametrize("kind", ["int16", nightly("uint8")])
def test_other_types(kind: str, tmp_path: Path) -> None:
    """Two inputs of one network: each function has its own input's scale."""
    zero = {"int16": 0, "uint8": 117}[kind]
    scales = {"left": 0.0123, "right": 0.4, "both": 1.7}
    tensors = [Tensor(name, (1, 7), kind, [scale], [zero]) for name, scale in scales.items()]
    operators = [Operator("ADD", ["left", "right"], ["both"], Options("AddOptions"))]
    model = tmp_path / "pair.tflite"
    model.write_bytes(Model(tensors, operators, ["left", "right"], ["both"]).to_bytes())
    compiled = api.load(model).compile(board_of_core(FPU))
    folder = tmp_path / "project"
    compiled.generate("library").extract(folder)
    calls = "pair_quantize_left(real, stored); pair_quantize_right(real, stored);"
    calls += " pair_dequantize_both(stored, real);"
    (folder / "app.ld").write_text(LINK)
    (folder / "main.c").write_text(_START.replace("TYPE", f"{kind}_t").replace("CALLS", calls))
    find = partial(followed, model=model, name="pair")
    assert len(find(rebuilt(folder)).followed) == 3
    source = folder / "model" / "pair.c"
    source.write_text(source.read_text().replace("PAIR_INPUT_LEFT_SCALE", "PAIR_INPUT_RIGHT_SCALE"))
    with pytest.raises(Refusal, match=r"pair_quantize_left: .* the formula says"):
        find(rebuilt(folder))
