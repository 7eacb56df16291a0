"""Einsum: products, sums, diagonals and what an ellipsis stands for."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from crtgen.base.errors import CorruptModelError
from crtgen.network.frontends import load_onnx

EQUATIONS = (
    ("ij->ji", [(2, 3)]),
    ("ij", [(2, 3)]),
    ("ij->i", [(2, 3)]),
    ("ii->i", [(4, 4)]),
    ("iji->", [(3, 2, 3)]),
    ("...ii->...i", [(2, 5, 3, 3)]),
    ("->", [()]),
    ("i,i", [(5,), (5,)]),
    ("i,j->ij", [(2,), (3,)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("bhid,bhjd->bhij", [(1, 2, 3, 4), (1, 2, 5, 4)]),
    ("abc,cd->ad", [(2, 3, 4), (4, 5)]),
    ("...ij,...jk->...ik", [(3, 1, 2, 4), (1, 5, 4, 3)]),
    ("...i,...i", [(1, 3), (4, 3)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    ("ij,kj,ik->", [(2, 3), (4, 3), (2, 4)]),
    ("ji,i", [(3, 2), (2,)]),
)


def _model(equation: str, shapes: list[tuple[int, ...]]) -> bytes:
    names = [f"x{n}" for n in range(len(shapes))]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(names, shapes, strict=True)
    ]
    rank = len(np.einsum(equation, *map(np.zeros, shapes)).shape)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)
    graph = helper.make_graph([node], "model", inputs, [output])
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_numpy_gives_the_same(equation: str, shapes: list[tuple[int, ...]]) -> None:
    random = np.random.default_rng(len(equation))
    inputs = [random.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    ((got,),) = load_onnx(_model(equation, shapes)).run([inputs])
    expected = np.einsum(equation, *inputs)
    assert got.shape == expected.shape
    assert np.abs(got.astype(np.float64) - expected).max() < 1e-6


def test_letters_of_no_operand() -> None:
    model = _model("ij->ij", [(2, 3)]).replace(b"ij->ij", b"ij->ik")
    with pytest.raises(CorruptModelError):
        load_onnx(model)
