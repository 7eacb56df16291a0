"""What external code generators make: entries of the registry, modules with devices, archives."""

from pathlib import Path

import numpy as np
import pytest

from crtgen import api
from crtgen.api import Model
from crtgen.base.errors import RemoteError
from crtgen.compiler.byoc import External
from crtgen.compiler.codegen import Registry
from crtgen.device.session import Session
from crtgen.network.ir import DType
from crtgen.network.ops import Add, Mul
from tests.compiler.byoc.graphs import arithmetic, inputs_of, numpy_result
from tests.compiler.byoc.test_run import Products, Sums, chain
from tests.support import nightly, require_tool

GENERATORS = (Sums(), Products())
NAMES = [
    "tvmgen_chain_int16_2_sums_main_0",
    "tvmgen_chain_int16_2_sums_main_1",
    "tvmgen_chain_int16_2_products_main_0",
    "tvmgen_chain_int16_2_products_main_1",
]
BOARDS = [
    pytest.param("host", marks=pytest.mark.cc),
    pytest.param("mps2_an386", marks=[pytest.mark.qemu, pytest.mark.nightly]),
]


def compiled(board: str = "mps2_an386", executor: str = "aot") -> api.Compiled:
    """Two subgraphs of each generator; those of products have scratch."""
    return api.compile([Model(chain(DType.INT16, (5, 6)))], board, executor=executor, generators=GENERATORS)


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_entries_follow_what_runs_the_model(executor: str) -> None:
    names = [f.name for f in Registry.of(compiled(executor=executor).modules).functions]
    run = ["chain_int16_2_run"] if executor == "aot" else []
    lookups = ["_lookup_linked_param", "chain_int16_2_lookup_linked_param"]
    metadata = ["tvmgen_chain_int16_2_get_c_metadata", "get_c_metadata"]
    assert names == [*run, *NAMES, *lookups, *metadata, "__nop"]


def test_two_models_and_fallback() -> None:
    """What runs models, what generators made, what is crtgen's own."""
    models = [Model(chain(DType.FLOAT32, shape)) for shape in ((3,), (2, 4))]
    sums = [f"tvmgen_chain_float32_{rank}_sums_main_{i}" for rank in (1, 2) for i in range(2)]
    made = api.compile(models, generators=[Sums()], fallback=True)
    names = [f.name for f in Registry.of(made.modules).functions]
    assert names[:6] == ["chain_float32_1_run", "chain_float32_2_run", *sums]
    made = api.compile(models, generators=[Sums()], fallback=True, executor="graph")
    functions = Registry.of(made.modules).functions
    assert [f.name for f in functions[:4]] == sums
    assert {f.role for f in functions[4:]} == {"own"}
    assert len(functions) > 4 + 3


def call_each(session: Session, made: api.Compiled) -> None:
    """Every subgraph by its entry, on numbers of its own."""
    library = session.client.system_lib()
    nodes = [(s, s.item.nodes[0].op) for s in made.plans[0].steps]
    steps = [(step, op.subgraph) for step, op in nodes if isinstance(op, External)]
    entries = {layer.name: layer.entry for layer in made.modules[0].info.layers}
    assert sorted(entries.values()) == sorted(NAMES)
    assert any(step.scratch is not None for step, _ in steps)
    for seed, (step, graph) in enumerate(steps, 7):
        inputs = inputs_of(graph, seed)
        expected = numpy_result(graph, inputs)
        outputs = [session.client.allocate(e.shape, e.dtype) for e in expected]
        assert library.function(entries[step.name])(*inputs, *outputs) is None
        for found, wanted in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(found.read(), wanted)


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize(
    ("executor", "target"),
    [("aot", "c"), nightly("graph", "c"), nightly("aot", "llvm"), ("graph", "llvm")],
)
def test_direct_calls(board: str, executor: str, target: str) -> None:
    if board != "host":
        require_tool("qemu-system-arm")
    if target == "llvm":
        pytest.importorskip("llvmlite")
    made = compiled(board, executor)
    with made.generate(target=target).build().run(counting=False) as session:
        call_each(session, made)
        graph = made.plans[0].graph
        inputs = inputs_of(graph, 1)
        for found, expected in zip(
            session.infer(*inputs), numpy_result(chain(DType.INT16, (5, 6)), inputs), strict=True
        ):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.cc
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_direct_calls_in_an_archive(tmp_path: Path, executor: str) -> None:
    made = compiled("host", executor)
    path = tmp_path / "chain.tar"
    path.write_bytes(made.archive())
    again = api.compile([api.load(path, trust=True)], "host")
    assert again.modules[0].externals == made.modules[0].externals
    with again.generate().build().run() as session:
        call_each(session, made)


@pytest.mark.cc
def test_a_direct_call_checks_its_tensors_and_voids_those_of_the_model() -> None:
    """The scratch of a call is in the arena, where the inputs of the model are as well."""
    made = compiled("host")
    step = next(s for s in made.plans[0].steps if s.scratch is not None)
    graph = step.item.nodes[0].op.subgraph  # type: ignore[attr-defined]
    entry = next(layer.entry for layer in made.modules[0].info.layers if layer.name == step.name)
    x = inputs_of(graph, 1)
    with made.generate().build().run() as session:
        function = session.client.system_lib().function(entry)
        (expected,) = numpy_result(graph, x)
        with session.client.allocate(expected.shape, expected.dtype) as y:
            with pytest.raises(RemoteError, match=rf"{entry} takes \d arguments"):
                function(*x)
            with pytest.raises(RemoteError, match=f"argument 0 of {entry} has to be a tensor"):
                function(*(v[1:] for v in x), y)
            with session.client.aot_executor(made.modules[0].info.name) as executor:
                for i, value in enumerate(inputs_of(made.plans[0].graph, 2)):
                    executor.set_input(i, value)
                function(*x, y)
                np.testing.assert_array_equal(y.read(), expected)
                with pytest.raises(RemoteError, match="the inputs of chain_int16_2 are not set"):
                    executor.run()


@pytest.mark.cc
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_a_tensor_within_the_scratch_is_refused(executor: str) -> None:
    """A host may hand over the place of an input, where another layer's scratch is."""
    sums_of_all = [(Add(), "a", "b"), (Add(), "c", "d"), (Add(), "v0", "v1")]
    powers = [(Mul(), "v2", "v2"), (Mul(), "v3", "v2"), (Mul(), "v4", "v3")]
    shapes = dict.fromkeys("abcd", (5, 6))
    graph = arithmetic("net", DType.INT16, [*sums_of_all, *powers], shapes)
    made = api.compile([Model(graph)], "host", executor=executor, generators=GENERATORS)
    plan, (sums, products) = made.plans[0], made.plans[0].steps
    scratch, places = products.scratch, [plan.slots[name] for name in graph.inputs]
    assert sums.scratch is None
    assert scratch is not None
    inside = [p.offset < scratch.offset + scratch.size and scratch.offset < p.offset + p.size for p in places]
    assert any(inside)
    x = inputs_of(graph, 1)[0]
    with made.generate().build().run() as session:
        function = session.client.system_lib().function("tvmgen_net_products_main_0")
        with (
            session.client.aot_executor("net") as run,
            session.client.allocate(x.shape, x.dtype) as y,
            session.client.allocate(x.shape, x.dtype) as free,
        ):
            free.write(x)
            function(free, y)
            expected = numpy_result(products.item.nodes[0].op.subgraph, [x])[0]  # type: ignore[attr-defined]
            np.testing.assert_array_equal(y.read(), expected)
            place = run.input(inside.index(True))
            place.write(x)
            with pytest.raises(RemoteError, match="tvmgen_net_products_main_0 failed with code 2051"):
                function(place, y)


@pytest.mark.qemu
def test_the_stack_of_direct_calls_is_counted() -> None:
    """Entries have no ending that a table of calls could go by: the registry names them."""
    require_tool("arm-none-eabi-gcc")
    stack = compiled().generate().build().size.stack
    assert stack is not None
    assert stack.proven
    assert set(NAMES) <= {frame.name for frame in stack.frames}


def test_each_generator_has_a_file() -> None:
    (module,) = compiled().modules
    assert [(m.name, m.file) for m in module.externals] == [
        ("sums", "chain_int16_2_external_sums_kernels.c"),
        ("products", "chain_int16_2_external_products_kernels.c"),
    ]
    assert "chain_int16_2_kernels.c" not in module.files
    texts = [module.files[m.file] for m in module.externals]
    assert ["examplejson" in text for text in texts] == [False, True]
    assert [len(m.consts) for m in module.externals] == [1, 0]
    assert all(
        const in text
        for m in module.externals
        for const in m.consts
        for text in [module.files["chain_int16_2_weights.c"]]
    )
