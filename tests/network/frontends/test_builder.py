"""The writer of test models, read back with the `tflite` package alone."""

import numpy as np
import pytest
import tflite

from tests.tflite_builder import Model, Operator, Options, Tensor


def _model() -> Model:
    weights = np.arange(6, dtype=np.int8).reshape(3, 2)
    tensors = [
        Tensor("x", [1, 2], "int8", [0.5], [-3], signature=[-1, 2]),
        Tensor("w", [3, 2], "int8", [0.25, 0.5, 1.0], [0, 0, 0], 0, weights),
        Tensor("y", [1, 3], "int8", [2.0], [7]),
    ]
    options = Options("FullyConnectedOptions", FusedActivationFunction=1, KeepNumDims=True)
    operators = [Operator("FULLY_CONNECTED", ["x", "w", None], ["y"], options, version=4)]
    return Model(tensors, operators, ["x"], ["y"], "net", "written by a test")


def test_everything_written_is_read_back() -> None:
    model = tflite.Model.GetRootAs(_model().to_bytes(), 0)
    graph = model.Subgraphs(0)
    assert (model.Version(), model.Description(), graph.Name()) == (3, b"written by a test", b"net")
    x, w, y = (graph.Tensors(i) for i in range(3))
    assert (x.ShapeAsNumpy().tolist(), x.ShapeSignatureAsNumpy().tolist()) == ([1, 2], [-1, 2])
    assert (x.Quantization().Scale(0), x.Quantization().ZeroPoint(0)) == (0.5, -3)
    assert w.Quantization().ScaleAsNumpy().tolist() == [0.25, 0.5, 1.0]
    assert model.Buffers(w.Buffer()).DataAsNumpy().tolist() == [0, 1, 2, 3, 4, 5]
    assert model.Buffers(y.Buffer()).DataLength() == 0
    operator = graph.Operators(0)
    assert operator.InputsAsNumpy().tolist() == [0, 1, -1]
    assert operator.OutputsAsNumpy().tolist() == [2]
    code = model.OperatorCodes(operator.OpcodeIndex())
    assert (code.BuiltinCode(), code.Version()) == (tflite.BuiltinOperator.FULLY_CONNECTED, 4)
    options = tflite.FullyConnectedOptions()
    options.Init(operator.BuiltinOptions().Bytes, operator.BuiltinOptions().Pos)
    assert (options.FusedActivationFunction(), options.KeepNumDims()) == (1, True)


def test_data_is_aligned_and_the_bytes_depend_on_the_model_alone() -> None:
    first, second = _model().to_bytes(), _model().to_bytes()
    assert first == second
    assert first.index(bytes(range(6))) % 16 == 0


def test_two_tensors_of_one_name_are_refused() -> None:
    tensor = Tensor("x", [1], "float32")
    with pytest.raises(ValueError, match="same name"):
        Model([tensor, tensor], [], ["x"], ["x"]).to_bytes()
