"""Branches, loops and variables of float32: both ways of a branch, and loops as often as numbers say."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crtgen import api
from crtgen.network.ops import all_cases
from crtgen.proof.checker import Proof, prove
from crtgen.proof.printed import lines_of
from tests.network.frontends.compressed import coding, maximum, packed_bits
from tests.network.frontends.flow import MODELS, add, boolean, floats, loop
from tests.network.ops import oracle
from tests.support import nightly, require_tool
from tests.tflite_builder import Model, Operator, Subgraph, Tensor

pytestmark = pytest.mark.qemu

M4, M55 = "mps2_an386", "mps3_an547"
FEW = ("branches", "given", "loops", "chosen", "unchanged")


def proof_of(data: bytes, board: str, folder: Path, old: str = "", new: str = "") -> Proof:
    """Of an image with a text of the model's C changed."""
    require_tool("arm-none-eabi-gcc")
    model = folder / "net.tflite"
    model.write_bytes(data)
    generated = api.load(model).compile(board).generate("standalone")
    sources = dict(generated.project.sources)
    text = sources["model/net.c"].decode()
    assert old in text
    sources["model/net.c"] = text.replace(old, new, 1).encode()
    built = replace(generated, project=replace(generated.project, sources=sources)).build()
    return prove(built.path, model)


@pytest.mark.parametrize("board", [M4, nightly(M55)])
@pytest.mark.parametrize("name", [*FEW, *(nightly(n) for n in MODELS if n not in FEW)])
def test_safe(name: str, board: str, tmp_path: Path) -> None:
    proof = proof_of(MODELS[name]().data, board, tmp_path)
    assert proof.stopped == ""
    assert not proof.is_proven
    assert "net: memory is checked, 0 of " in lines_of(proof)[-1]
    least, most = proof.instructions
    assert (least < most) == (name in ("branches", "given", "nested", "chosen", "counter"))


def test_a_store_of_one_branch(tmp_path: Path) -> None:
    """Whichever way a run takes."""
    fault = "} else { *(volatile int32_t *)0x60000000 = 1;"
    proof = proof_of(MODELS["branches"]().data, M4, tmp_path, "} else {", fault)
    assert "outside of arena and stack" in proof.stopped


def test_a_loop_by_an_input(tmp_path: Path) -> None:
    """How often it runs is in no number: nothing is said of it."""
    names = ["i", "x"]
    tensors = [Tensor("i", [], "float32"), *floats("x")]
    end = Tensor("n", [], "float32", data=np.array(5, np.float32))
    one = Tensor("one", [], "float32", data=np.array(1, np.float32))
    condition = Subgraph(
        [*tensors, end, boolean("less")], [Operator("LESS", ["i", "n"], ["less"])], names, ["less"]
    )
    made = [one, Tensor("j", [], "float32"), *floats("y")]
    body = Subgraph([*tensors, *made], [add("i", "one", "j"), add("x", "x", "y")], names, ["j", "y"])
    outer = [Tensor("i", [], "float32"), Tensor("count", [], "float32"), *floats("x", "z")]
    model = Model(
        outer, [loop(["i", "x"], ["count", "z"], 1, 2)], ["i", "x"], ["z"], others=[condition, body]
    )
    proof = proof_of(model.to_bytes(), M4, tmp_path)
    assert proof.stopped
    assert "could not be followed to its end" in lines_of(proof)[-1]


def test_compressed_constants_have_no_proof(tmp_path: Path) -> None:
    """The operator is called by its custom code, whatever number the file has beside it."""
    numbers = np.arange(24, dtype=np.int8)
    data = maximum(packed_bits(numbers % 4, 2), coding(0, [1, 0xF2, 4], numbers[:4]))
    proof = proof_of(data, M4, tmp_path)
    assert "outputs are not compared: CUSTOM has no proof yet" in lines_of(proof)[-1]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("log_softmax_scale_0.06", "LOG_SOFTMAX has no proof yet"),
        ("add_int32", "layer 0, ADD: tensor 0 is not quantised"),
    ],
)
def test_an_operator_without_a_meaning(name: str, why: str, tmp_path: Path) -> None:
    """Of an integer network: what its code does is followed all the same."""
    (case,) = (c for c in all_cases() if c.name == name)
    proof = proof_of(oracle.model(case.graph()), M4, tmp_path)
    assert proof.stopped == ""
    assert f"outputs are not compared: {why}" in lines_of(proof)[-1]


@pytest.mark.parametrize(
    ("loop", "why"),
    [
        ("for (;;) {}", "an endless loop: a branch to itself"),
        ('for (;;) { __asm volatile("nop"); }', "are as they were one round before"),
        ("for (volatile int i = 0;; i ^= 1) {}", "are as they were one round before"),
        ("for (volatile int *i = &(volatile int){1}; *i;) {}", "are as they were one round before"),
    ],
)
def test_an_endless_loop_is_soon_refused(loop: str, why: str, tmp_path: Path) -> None:
    (case,) = (c for c in all_cases() if c.name == "relu_relu")
    fault = "int32_t net_compute(void)\n{\n"
    proof = proof_of(oracle.model(case.graph()), M4, tmp_path, fault, f"{fault}    {loop}\n")
    assert why in proof.stopped
