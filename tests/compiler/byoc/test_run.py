"""ccompiler and ExampleJSON on the host and on QEMU, against numpy."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from crtgen.api import Model
from crtgen.base.resources import runtime_dir
from crtgen.compiler.byoc import CCompiler, ExampleJson, External, Generator, partition
from crtgen.network.ir import DType, Graph
from crtgen.network.ops import Add, Mul, Sub
from tests.compiler.byoc.graphs import arithmetic, inputs_of, numpy_result
from tests.support import WARNINGS, nightly, require_tool

TYPES = (DType.FLOAT32, DType.INT8, DType.INT16)
SHAPES = ((7,), (5, 6), (2, 3, 5), (2, 3, 4, 3))


class Sums(CCompiler):
    name = "sums"
    patterns = ((Add,), (Sub,))


class Products(ExampleJson):
    name = "products"
    patterns = ((Mul,),)


def chain(dtype: DType, shape: tuple[int, ...]) -> Graph:
    """Sums, products, sums, products: two subgraphs of each generator, interleaved, with a constant."""
    calls = [
        (Add(), "a", "b"),
        (Sub(), "v0", "c"),
        (Mul(), "v1", "b"),
        (Mul(), "v2", "v1"),
        (Sub(), "v3", "a"),
        (Add(), "v4", "v1"),
        (Mul(), "v5", "v3"),
        (Mul(), "v6", "v6"),
    ]
    shapes = {"a": shape, "b": shape, "c": shape}
    return arithmetic(f"chain_{dtype.value}_{len(shape)}", dtype, calls, shapes, ["v7", "v5"], ["c"])


def run(graphs: Sequence[Graph], board: str, generators: Sequence[Generator]) -> None:
    """All graphs in one image; each of two inputs equals numpy, bit for bit."""
    from crtgen.api import compile

    compiled = compile([Model(g) for g in graphs], board, generators=generators)
    assert all(
        isinstance(n.op, External) for plan in compiled.plans for s in plan.steps for n in s.item.nodes
    )
    with compiled.generate().build().run(counting=False) as session:
        for graph in graphs:
            for seed in (1, 2):
                inputs = inputs_of(graph, seed)
                outputs = session.infer(*inputs, model=graph.name)
                for found, expected in zip(outputs, numpy_result(graph, inputs), strict=True):
                    np.testing.assert_array_equal(found, expected, err_msg=graph.name)


BOARDS = [
    pytest.param("host", marks=pytest.mark.cc),
    pytest.param("mps2_an386", marks=[pytest.mark.qemu, pytest.mark.nightly]),
]
GENERATORS: dict[str, tuple[Generator, ...]] = {
    "ccompiler": (CCompiler(),),
    "examplejson": (ExampleJson(),),
    "interleaved": (Sums(), Products()),
}


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("shapes", [SHAPES[:2], nightly(SHAPES[2:])], ids=["first", "others"])
def test_types_and_ranks(board: str, name: str, shapes: Sequence[tuple[int, ...]]) -> None:
    if board != "host":
        require_tool("qemu-system-arm")
    graphs = [chain(dtype, shape) for dtype in TYPES for shape in shapes]
    run([_one_output(g) for g in graphs] if name == "examplejson" else graphs, board, GENERATORS[name])


def _one_output(graph: Graph) -> Graph:
    return Graph.build(graph.name, list(graph.values.values()), graph.nodes, graph.inputs, graph.outputs[:1])


@pytest.mark.cc
def test_broadcasting_wide_types_and_several_outputs() -> None:
    """ccompiler only: shapes of different rank, 32 and 64 bits, a scalar, the same operand twice."""
    calls = [
        (Add(), "a", "b"),
        (Mul(), "v0", "c"),
        (Sub(), "v1", "a"),
        (Mul(), "d", "d"),
        (Add(), "v2", "v3"),
    ]
    shapes: dict[str, tuple[int, ...]] = {"a": (3, 1, 4), "b": (2, 1), "c": (), "d": (4,)}
    graphs = [
        arithmetic(f"wide_{dtype.value}", dtype, calls, shapes, ["v4", "v0", "v3"], ["b"])
        for dtype in (DType.INT32, DType.INT64, DType.UINT8, DType.FLOAT32)
    ]
    run(graphs, "host", [CCompiler()])


@pytest.mark.cc
def test_by_llvm() -> None:
    pytest.importorskip("llvmlite")
    graph = chain(DType.INT16, (3, 4))
    image = Model(graph).compile("host", generators=[Sums(), Products()]).generate(target="llvm").build()
    with image.run() as session:
        inputs = inputs_of(graph, 3)
        for found, expected in zip(session.infer(*inputs), numpy_result(graph, inputs), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.qemu
def test_no_heap() -> None:
    require_tool("arm-none-eabi-gcc")
    image = (
        Model(chain(DType.FLOAT32, (5, 6))).compile(generators=[Sums(), Products()]).generate("standalone")
    )
    names = {symbol.name for symbol in image.build().size.sizes.symbols}
    assert not names & {"malloc", "free", "calloc", "realloc", "_malloc_r", "_sbrk"}


def test_the_chain_has_two_subgraphs_of_each() -> None:
    after, _ = partition(chain(DType.INT8, (3,)), [Sums(), Products()])
    ops = [node.op for node in after.nodes]
    assert [op.generator.name for op in ops if isinstance(op, External)] == ["sums", "products"] * 2


@pytest.mark.cc
@pytest.mark.parametrize("dtype", [*TYPES, DType.INT32, DType.INT64, DType.UINT8])
def test_no_warnings(tmp_path: Path, dtype: DType) -> None:
    """The generated C is as strict as that of crtgen's own kernels."""
    graph = chain(dtype, (3, 4))
    for name, generators in GENERATORS.items():
        chosen = _one_output(graph) if name == "examplejson" else graph
        (module,) = Model(chosen).compile("host", generators=generators).modules
        for file, text in module.files.items():
            (tmp_path / file).write_text(text)
        sources = [file for file in module.files if file.endswith(".c")]
        command = [require_tool("gcc"), "-O2", *WARNINGS, f"-I{runtime_dir() / 'include'}", "-fsyntax-only"]
        subprocess.run([*command, *sources], cwd=tmp_path, check=True, timeout=120)
