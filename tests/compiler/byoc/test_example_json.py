"""ExampleJSON: read, written byte-identical, refused with the line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtgen.base.errors import CorruptModelError
from crtgen.compiler.byoc.example_json import (
    OPERATORS,
    ExampleGraph,
    ExampleNode,
    read_example_json,
    write_example_json,
)

TEXT = """\
subgraph_0
  input 0 10 10
  input 1 10 10
  input 2 10 10
  input 3 10 10
  add 4 inputs: 0 1 shape: 10 10
  sub 5 inputs: 4 2 shape: 10 10
  mul 6 inputs: 5 3 shape: 10 10
subgraph_1
  input 0
  add 1 inputs: 0 0 shape:
"""


def test_reads_subgraphs() -> None:
    first, second = read_example_json(TEXT)
    assert (first.name, len(first.nodes)) == ("subgraph_0", 7)
    assert first.nodes[4] == ExampleNode("add", (0, 1), (10, 10))
    assert first.nodes[6] == ExampleNode("mul", (5, 3), (10, 10))
    assert second.nodes == (ExampleNode("input", (), ()), ExampleNode("add", (0, 0), ()))


def test_writes_the_same_bytes() -> None:
    assert write_example_json(read_example_json(TEXT)) == TEXT
    assert read_example_json("") == ()


@st.composite
def graphs(draw: st.DrawFn) -> ExampleGraph:
    shape = tuple(draw(st.lists(st.integers(1, 99), max_size=4)))
    nodes = [ExampleNode("input", (), shape)] * draw(st.integers(1, 4))
    for _ in range(draw(st.integers(1, 5))):
        inputs = tuple(draw(st.integers(0, len(nodes) - 1)) for _ in range(2))
        nodes.append(ExampleNode(draw(st.sampled_from(OPERATORS)), inputs, shape))
    name = draw(st.sampled_from("az_")) + draw(st.text("az_09", max_size=7))
    return ExampleGraph(name, tuple(nodes))


@given(st.lists(graphs(), max_size=3, unique_by=lambda g: g.name))
def test_round_trip(many: list[ExampleGraph]) -> None:
    text = write_example_json(many)
    assert read_example_json(text) == tuple(many)
    assert write_example_json(read_example_json(text)) == text


@given(st.text(alphabet=" \n0123:abdgimnpsuteh_", max_size=60))
def test_what_is_read_is_written_as_it_was(text: str) -> None:
    try:
        read = read_example_json(text)
    except CorruptModelError:
        return
    assert write_example_json(read) == text


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("add 4", "div 4", "line 6: div is not one of add, sub, mul"),
        ("add 4", "add 5", "line 6: node 4 is expected"),
        ("inputs: 4 2", "inputs: 5 2", "line 7: the operator needs two earlier inputs"),
        ("inputs: 4 2", "inputs: 4", "line 7: the operator needs two"),
        ("inputs: 0 1 shape: 10 10", "inputs: 0 1 shape: 10", "line 6: the operator needs two"),
        ("input 3 10 10", "input 3 10 0", "line 5: node 3 is expected"),
        ("input 3 10 10", "input 3 10  10", "line 5: .* is not a node"),
        ("subgraph_1", "subgraph_0", "line 9: 'subgraph_0' is not the name"),
        ("subgraph_1", "sub graph", "line 9: 'sub graph' is not the name"),
        ("subgraph_0\n", "", "without a name computes nothing"),
        ("  add 1 inputs: 0 0 shape:\n", "", "the subgraph subgraph_1 computes nothing"),
        ("shape:\n", "shape:", "the last line is incomplete"),
    ],
)
def test_what_is_wrong_is_said(old: str, new: str, reason: str) -> None:
    assert old in TEXT
    with pytest.raises(CorruptModelError, match=reason):
        read_example_json(TEXT.replace(old, new, 1))
