"""Which nodes go to which generator."""

from typing import Any, ClassVar

import numpy as np
import pytest

from crtgen import api
from crtgen.base.errors import UnsupportedError, UsageError
from crtgen.compiler.byoc import (
    CCompiler,
    ExampleJson,
    External,
    Generated,
    Generator,
    partition,
    to_example_json,
)
from crtgen.compiler.byoc.example_json import read_example_json, write_example_json
from crtgen.compiler.byoc.generator import Pattern
from crtgen.compiler.kernels import Const, Target, select
from crtgen.network.ir import Array, DType, Graph, Node, Op, Quant, Signature, Value
from crtgen.network.ops import Add, FullyConnected, Mul, Relu, Sub
from tests.compiler.byoc.graphs import arithmetic, inputs_of, numpy_result
from tests.compiler.codegen.models import two_layer_graph
from tests.support import ROOT

S = (4,)


class Sums(CCompiler):
    name = "sums"
    patterns = ((Add,),)


class Pairs(CCompiler):
    """A sum and its product, as one."""

    name = "pairs"
    patterns = ((Add, Mul),)
    merges = False


def nodes_of(graph: Graph) -> list[tuple[str, ...]]:
    return [
        (n.op.generator.name, *(m.name for m in n.op.subgraph.nodes))
        if isinstance(n.op, External)
        else (n.name,)
        for n in graph.nodes
    ]


def same_results(before: Graph, after: Graph) -> None:
    inputs = inputs_of(before, 7)
    values = after.evaluate(dict(zip(after.inputs, inputs, strict=True)))
    for name, expected in zip(before.outputs, numpy_result(before, inputs), strict=True):
        assert values[name].tobytes() == expected.tobytes()


def test_neighbours_become_one() -> None:
    graph = arithmetic("g", DType.INT16, [(Add(), "a", "b"), (Add(), "v0", "a"), (Mul(), "v1", "b")],
                       {"a": S, "b": S})  # fmt: skip
    after, rewrites = partition(graph, [CCompiler()])
    assert nodes_of(after) == [("ccompiler", "n0", "n1", "n2")]
    assert [str(h) for h in rewrites] == ["partition: n0 to n2: ccompiler computes add, add, mul"]
    same_results(graph, after)


def test_a_subgraph_never_waits_for_itself() -> None:
    """n0 and n2 are neighbours, but n1, which is not theirs, lies between."""
    graph = arithmetic("g", DType.INT8, [(Add(), "a", "b"), (Mul(), "v0", "b"), (Add(), "v0", "v1")],
                       {"a": S, "b": S})  # fmt: skip
    after, _ = partition(graph, [Sums()], fallback=True)
    assert nodes_of(after) == [("sums", "n0"), ("n1",), ("sums", "n2")]
    same_results(graph, after)


def test_two_subgraphs_never_wait_for_each_other() -> None:
    """Each pair could be one, but not both: n0 is read by n3, n2 by n1."""

    class Products(CCompiler):
        name = "products"
        patterns = ((Mul,),)

    calls = [(Add(), "a", "b"), (Mul(), "a", "b"), (Add(), "v0", "v1"), (Mul(), "v1", "v0")]
    graph = arithmetic("g", DType.INT16, calls, {"a": S, "b": S}, ["v2", "v3"])
    after, _ = partition(graph, [Sums(), Products()])
    assert sorted(map(len, nodes_of(after))) == [2, 2, 3]
    same_results(graph, after)


def test_order_is_kept_where_a_later_node_is_drawn_forward() -> None:
    calls = [(Add(), "a", "b"), (Mul(), "a", "a"), (Add(), "v0", "v1"), (Mul(), "v2", "v1")]
    graph = arithmetic("g", DType.INT16, calls, {"a": S, "b": S}, ["v3"])
    after, _ = partition(graph, [Sums()], fallback=True)
    assert nodes_of(after) == [("n1",), ("sums", "n0", "n2"), ("n3",)]
    same_results(graph, after)


def test_chains() -> None:
    """The middle of a chain must have no other reader."""
    calls = [(Add(), "a", "b"), (Mul(), "v0", "b"), (Add(), "v1", "a"), (Mul(), "v2", "v2")]
    graph = arithmetic("g", DType.INT16, calls, {"a": S, "b": S}, ["v3"])
    after, _ = partition(graph, [Pairs()])
    assert nodes_of(after) == [("pairs", "n0", "n1"), ("pairs", "n2", "n3")]
    seen = arithmetic("g", DType.INT16, calls, {"a": S, "b": S}, ["v3", "v0"])
    after, _ = partition(seen, [Pairs()], fallback=True)
    assert nodes_of(after) == [("n0",), ("n1",), ("pairs", "n2", "n3")]


def test_the_first_generator_has_the_first_choice() -> None:
    graph = arithmetic("g", DType.INT16, [(Add(), "a", "b"), (Mul(), "v0", "b")], {"a": S, "b": S})
    assert nodes_of(partition(graph, [Sums(), CCompiler()])[0]) == [("sums", "n0"), ("ccompiler", "n1")]
    assert nodes_of(partition(graph, [CCompiler(), Sums()])[0]) == [("ccompiler", "n0", "n1")]


def test_shapes_that_do_not_broadcast_to_one_are_apart() -> None:
    calls = [(Add(), "a", "a"), (Add(), "v0", "b"), (Add(), "v0", "c")]
    graph = arithmetic("g", DType.INT16, calls, {"a": (1, 3), "b": (5, 3), "c": (7, 3)}, ["v1", "v2"])
    after, _ = partition(graph, [CCompiler()])
    assert nodes_of(after) == [("ccompiler", "n0", "n1"), ("ccompiler", "n2")]
    same_results(graph, after)


def _quantised() -> Graph:
    quant = Quant.tensor(0.1, 3)
    values = [Value(n, S, DType.INT8, quant) for n in ("a", "b", "s", "y")]
    nodes = [Node("sum", Add(), ("a", "b"), ("s",)), Node("clamp", Relu(), ("s",), ("y",))]
    return Graph.build("net", values, nodes, ["a", "b"], ["y"])


def test_what_nobody_does_is_named() -> None:
    with pytest.raises(UnsupportedError) as caught:
        partition(_quantised(), [CCompiler(), ExampleJson()])
    assert caught.value.message.splitlines() == [
        "the code generators do not do every operator",
        "sum (add): ccompiler: its values are quantised; examplejson: its values are quantised",
        "clamp (relu): ccompiler: it has no pattern with relu; examplejson: it has no pattern with relu",
    ]
    assert "--fallback" in caught.value.hint


def test_fallback() -> None:
    after, rewrites = partition(_quantised(), [CCompiler()], fallback=True)
    assert nodes_of(after) == [("sum",), ("clamp",)]
    assert rewrites == ()


def test_no_generator_changes_nothing() -> None:
    graph = _quantised()
    assert partition(graph, [])[0] is graph


def test_a_name_twice() -> None:
    with pytest.raises(UsageError, match="ccompiler is named twice"):
        partition(_quantised(), [CCompiler(), CCompiler()])


class OwnConstants(Generator):
    """Adds a constant of its own to whatever it is given; ``constant`` is its name."""

    name = "own"
    patterns: ClassVar[tuple[Pattern, ...]] = ((Add,), (Sub,))
    constant = "table"

    def generate(self, subgraph: Graph, target: Target) -> Generated:
        data = subgraph.values[subgraph.outputs[0]]
        return Generated(
            body=f"    y0[0] = {self.constant}[0];", consts=(Const.of(self.constant, _zeros(data)),)
        )


class OtherConstants(OwnConstants):
    name = "other"
    patterns = ((Mul,),)


def _zeros(value: Value) -> Array:
    return np.zeros(value.shape, value.dtype.numpy)


def test_constants_of_two_generators_never_clash() -> None:
    from crtgen.api import Model

    graph = arithmetic("g", DType.INT16, [(Add(), "a", "b"), (Mul(), "v0", "b"), (Sub(), "v1", "a")],
                       {"a": S, "b": S})  # fmt: skip
    (module,) = Model(graph).compile("host", generators=[OwnConstants(), OtherConstants()]).modules
    symbols = [p.symbol for p in module.params]
    assert symbols == [f"__tvm_param__g_n{i}_table" for i in range(3)]


@pytest.mark.parametrize("name", ["2nd", "a b", ""])
def test_a_constant_needs_a_name_of_c(name: str) -> None:
    class Wrong(OwnConstants):
        constant = name

    graph = arithmetic("g", DType.INT16, [(Add(), "a", "b")], {"a": S, "b": S})
    after, _ = partition(graph, [Wrong()])
    with pytest.raises(UsageError, match="is not the name of a constant"):
        select(after, Target())


def test_the_reasons_of_the_examples() -> None:
    def reason(generator: Generator, op: Op, *values: Value) -> str:
        ((shape, dtype),) = op.infer(values)
        return generator.reason(op, Signature(values, (Value("y", shape, dtype, values[0].quant),)))

    wide, row = Value("a", (2, 4), DType.INT16), Value("b", (4,), DType.INT16)
    assert reason(CCompiler(), Add(), wide, row) == ""
    assert reason(ExampleJson(), Add(), wide, row) == "its operands have different shapes"
    scaled = Value("q", (4,), DType.INT8, Quant.tensor(0.5))
    assert reason(CCompiler(), Mul(), scaled, scaled) == "its values are quantised"


def test_figures_are_those_of_the_network() -> None:
    """Weights and multiplications within subgraphs count as any others."""
    from crtgen.api import Model

    class Everything(OwnConstants):
        name = "everything"
        patterns = ((FullyConnected,),)

    graph = two_layer_graph("net", "dense")
    plain, external = (Model(graph).compile("host", generators=g, fallback=True).modules[0].info
                       for g in ((), (Everything(),)))  # fmt: skip
    assert [layer.kernel for layer in external.layers].count("everything") == 2
    assert (external.weights, external.macs) == (plain.weights, plain.macs) == (60 + 20 + 25 + 20, 60 + 25)


def test_example_json_becomes_a_table() -> None:
    calls = [(Add(), "a", "b"), (Mul(), "v0", "c")]
    graph = arithmetic("g", DType.INT16, calls, {"a": (10, 10), "b": (10, 10), "c": (10, 10)}, [], ["c"])
    after, _ = partition(graph, [ExampleJson()])
    (node,) = after.nodes
    assert isinstance(node.op, External)
    text = to_example_json(node.op.subgraph)
    assert text == (
        "subgraph\n"
        "  input 0 10 10\n"
        "  input 1 10 10\n"
        "  input 2 10 10\n"
        "  add 3 inputs: 0 1 shape: 10 10\n"
        "  mul 4 inputs: 3 2 shape: 10 10\n"
    )
    assert write_example_json(read_example_json(text)) == text
    kernel = select(after, Target())[node.name]
    assert "{0, 0, 1}, /* add */" in kernel.view.body
    assert "{2, 3, 2}, /* mul */" in kernel.view.body
    assert "shape" not in kernel.view.body + kernel.support
    assert kernel.scratch == 200


@pytest.mark.cc
def test_the_generator_of_the_page_computes_what_it_claims() -> None:
    """docs/byoc.md: its first block of Python, as somebody would copy it."""
    page = (ROOT / "docs" / "byoc.md").read_text()
    source = page.partition("## A generator")[2].partition("```python\n")[2].partition("```")[0]
    made: dict[str, Any] = {}
    exec(compile(source, "docs/byoc.md", "exec"), made)
    shapes = dict.fromkeys(("x", "scale", "shift"), (1, 2, 3, 4))
    calls = ((Mul(), "x", "scale"), (Add(), "v0", "shift"))
    graph = arithmetic("page", DType.FLOAT32, calls, shapes, constants=("scale", "shift"))
    compiled = api.Model(graph).compile("host", generators=[made["Mine"]()])
    (layer,) = compiled.modules[0].info.layers
    assert layer.operator == "external"
    inputs = inputs_of(graph, 7)
    with compiled.generate().build().run() as session:
        (found,) = session.infer(*inputs)
    (expected,) = numpy_result(graph, inputs)
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-6)
