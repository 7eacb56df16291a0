"""Equal code is in an image once, whichever layers and models use it."""

from dataclasses import replace

import numpy as np
import pytest

import crtgen
from crtgen.compiler.codegen import generate_c
from crtgen.lab.measure.cases import read_cases
from tests.compiler.codegen.models import two_layers
from tests.support import model_path, nightly, require_tool


def _twins(name: str) -> list[crtgen.Model]:
    """A model, and another one of the same shapes whose first weights are turned round."""
    model = crtgen.load(model_path(name))
    assert isinstance(model, crtgen.Model)
    values = dict(model.graph.values)
    weights = next(v for v in values.values() if v.is_constant and len(v.shape) == 4)
    assert weights.data is not None
    values[weights.name] = replace(weights, data=np.ascontiguousarray(weights.data[:, ::-1]))
    other = replace(model.graph, name="other", values=values)
    return [model, crtgen.Model(other)]


def test_two_models() -> None:
    first = generate_c(two_layers("one"), "one")
    second = generate_c(two_layers("two"), "two", [first])
    assert "two_kernels.c" not in second.files
    assert [layer.function for layer in second.info.layers] == [layer.function for layer in first.info.layers]
    assert second.files["two_internal.h"].count("void one_") == first.files["one_internal.h"].count(
        "void one_"
    )


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize("target", ["c", nightly("llvm")])
def test_an_image_of_twins(target: str) -> None:
    require_tool("qemu-system-arm")
    if target == "llvm":
        pytest.importorskip("llvmlite")
    models = _twins("kws_int8")
    alone = crtgen.compile(models[:1]).generate(target=target).build()
    both = crtgen.compile(models).generate(target=target).build()
    assert (
        both.size.sizes.flash - alone.size.sizes.flash < 24_376 + 6_000
    )  # weights and biases, and the calls
    cases = model_path("kws_int8").with_suffix(".npz")
    with both.run(counting=False) as session:
        info = session.model("kws_int8")
        case = read_cases(cases, info.inputs, info.outputs)[0]
        for model in models:
            outputs = session.infer(*case.inputs, model=model.name)
            values = model.graph.evaluate(dict(zip(model.graph.inputs, case.inputs, strict=True)))
            for found, name in zip(outputs, model.graph.outputs, strict=True):
                np.testing.assert_array_equal(found, values[name])
        np.testing.assert_array_equal(session.infer(*case.inputs, model="kws_int8")[0], case.outputs[0])
