"""States: what lives from run to run, in a model's own memory, until it is reset."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.base.resources import runtime_dir
from crtgen.compiler.codegen import generate_c
from crtgen.compiler.kernels import Target, select
from crtgen.compiler.plan import Plan, loop_over_rows, make_plan
from crtgen.firmware.library.own_graph import with_graph_executor
from crtgen.network.ir import Array, DType, Graph, Node, Quant, Storage, Value
from crtgen.network.ops import Add, Relu, Reshape
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.support import CHECKED, require_tool

QUANT = Quant.tensor(0.1, 0)
FIRST = np.array([[5, -6, 7]], np.int8)


def counter(initial: Array = FIRST) -> Graph:
    """What came in so far, added up; the output is clamped."""
    state = Value.state("total", initial, QUANT)
    values = [state, *(Value(n, initial.shape, DType.INT8, QUANT) for n in ("x", "sum", "y"))]
    nodes = [Node("add", Add(), ("x", "total"), ("sum",)), Node("clamp", Relu(), ("sum",), ("y",))]
    return Graph.build("counter", values, nodes, ["x"], ["y"], [("total", "sum")])


def planned(graph: Graph) -> Plan:
    target = Target()
    graph, _ = run_passes(graph, DEFAULT_PASSES)
    plan, _ = loop_over_rows(make_plan(graph, select(graph, target)), target)
    return plan


def test_storage() -> None:
    values = counter().values
    assert values["total"].storage is Storage.STATE
    assert values["x"].storage is Storage.TEMPORARY
    assert Value.constant("c", FIRST).storage is Storage.CONSTANT
    assert not values["total"].is_constant


def test_a_state_is_not_in_the_arena_and_nothing_is_folded_into_it() -> None:
    plan = planned(counter())
    assert plan.state_bytes == 3
    assert "total" not in plan.slots
    assert plan.homes == {"total": "total", "sum": "total"}, "the sum is computed where the total is"
    assert [step.name for step in plan.steps] == ["add", "clamp"]


_MAIN = """
#include <stdio.h>
#include "counter.h"
static void run(const int8_t *x)
{
    int8_t y[3];
    counter_run(&(struct counter_inputs){x}, &(struct counter_outputs){y});
    printf("%d %d %d\\n", y[0], y[1], y[2]);
}
int main(void)
{
    const int8_t x[] = {1, 2, 3};
    run(x);
    run(x);
    counter_reset();
    run(x);
    return 0;
}
"""


@pytest.mark.cc
@pytest.mark.parametrize("initial", [FIRST, np.zeros((1, 3), np.int8)], ids=["values", "zeros"])
def test_runs_and_reset(tmp_path: Path, initial: Array) -> None:
    gcc, graph = require_tool("gcc"), counter(initial)
    module = generate_c(planned(graph), "counter")
    for file, text in module.files.items():
        (tmp_path / file).write_text(text)
    (tmp_path / "main.c").write_text(_MAIN)
    sources = [str(tmp_path / f) for f in (*module.files, "main.c") if f.endswith((".c", ".S"))]
    sources = [path for path in sources if "registry" not in path]
    command = [gcc, *CHECKED, f"-I{tmp_path}", f"-I{runtime_dir() / 'include'}", *sources]
    subprocess.run([*command, "-o", str(tmp_path / "counter")], check=True, timeout=120)
    done = subprocess.run([tmp_path / "counter"], check=True, timeout=60, capture_output=True, text=True)
    x = np.array([[1, 2, 3]], np.int8)
    first = graph.evaluate({"x": x})
    second = graph.evaluate({"x": x, "total": first["sum"]})
    expected = [result["y"].ravel().tolist() for result in (first, second, first)]
    assert expected[0] != expected[1]
    assert [list(map(int, line.split())) for line in done.stdout.splitlines()] == expected


def test_only_a_model_with_states_has_a_reset() -> None:
    values = [Value(n, (1, 3), DType.INT8, QUANT) for n in ("x", "y")]
    plain = Graph.build("plain", values, [Node("clamp", Relu(), ("x",), ("y",))], ["x"], ["y"])
    files = generate_c(planned(plain), "plain").files
    assert not any("_reset" in text or "_state[" in text for text in files.values())
    files = generate_c(planned(counter()), "counter").files
    assert "void counter_reset(void);" in files["counter.h"]
    assert "counter_begun" in files["counter.c"]
    assert "counter_begun" not in generate_c(planned(counter(0 * FIRST)), "counter").files["counter.c"]


def test_what_becomes_of_a_state_is_checked() -> None:
    graph = counter()
    values, nodes = list(graph.values.values()), graph.nodes
    for states, message in (
        ([], "does not update the state total"),
        ([("total", "sum"), ("total", "y")], "updates a state twice"),
        ([("total", "sum"), ("x", "sum")], "x, which is not a value"),
    ):
        with pytest.raises(CorruptModelError, match=message):
            Graph.build("g", values, nodes, ["x"], ["y"], states)
    wider = Value("wide", (1, 1, 3), DType.INT8, QUANT)
    more = [*nodes, Node("other", Reshape((1, 1, 3)), ("x",), ("wide",))]
    with pytest.raises(CorruptModelError, match="becomes another type, wide"):
        Graph.build("g", [*values, wider], more, ["x"], ["y"], [("total", "wide")])


def test_a_view_of_a_state_lies_where_the_state_does() -> None:
    state = Value.state("s", FIRST, QUANT)
    values = [state, Value("x", (3,), DType.INT8, QUANT), Value("v", (3,), DType.INT8, QUANT)]
    values += [Value("y", (3,), DType.INT8, QUANT)]
    nodes = [Node("view", Reshape((3,)), ("s",), ("v",)), Node("add", Add(), ("x", "v"), ("y",))]
    graph = Graph.build("g", values, nodes, ["x"], ["y"], [("s", "s")])
    assert make_plan(graph, select(graph, Target())).homes == {"s": "s", "v": "s"}


def test_the_graph_executor_has_no_states() -> None:
    plan = planned(counter())
    with pytest.raises(UnsupportedError, match="the graph executor has no states"):
        with_graph_executor(plan, generate_c(plan, "counter"))
