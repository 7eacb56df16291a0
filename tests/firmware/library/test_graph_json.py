"""The graph JSON reader: what it reads, and that it names what is wrong."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtgen.base.errors import CorruptModelError
from crtgen.firmware.library.graph_json import Reference, read_graph_json
from tests.firmware.library.graphs import document, foo, text
from tests.support import models_dir


def test_reads_calls_in_order() -> None:
    graph = read_graph_json(text(foo()))
    assert [node.function for node in graph.nodes] == [
        "",
        "tvmgen_foo_quantize",
        "tvmgen_foo_pool",
        "tvmgen_foo_dense",
    ]
    assert graph.arg_nodes == (0,)
    assert graph.heads == (Reference(3, 0),)
    assert [node.name for node in graph.arguments] == ["data"]
    assert graph.entry(Reference(2, 0)).shape == (1, 512, 1, 1)
    assert str(graph.entry(Reference(1, 0)).dtype) == "int8"


def test_storage_of_the_image_network() -> None:
    sizes = read_graph_json(text(foo())).storage_sizes()
    assert sizes == {0: 602112, 1: 150528, 2: 512, 3: 4000}
    assert sum(sizes.values()) == 757152


def test_shared_storage_is_as_large_as_the_largest() -> None:
    nodes = [("x", "", []), ("a", "f", [(0, 0)]), ("b", "f", [(1, 0)]), ("c", "f", [(2, 0)])]
    entries = [([4], "float32", 0), ([3], "int8", 1), ([5], "int8", 0), ([9], "int16", 1)]
    assert read_graph_json(text(document(nodes, entries, [(3, 0)]))).storage_sizes() == {0: 16, 1: 18}


def test_sizes_of_odd_types() -> None:
    nodes = [("x", "", []), ("y", "f", [(0, 0)])]
    entries = [([3, 5], "bool", 0), ([3], "int4", 1)]
    assert read_graph_json(text(document(nodes, entries, [(1, 0)]))).storage_sizes() == {0: 15, 1: 3}


def test_several_outputs_shift_the_entries() -> None:
    nodes = [("x", "", []), ("split", "f", [(0, 0)]), ("y", "g", [(1, 1)])]
    entries = [([8], "int8", 0), ([3], "int8", 1), ([5], "int8", 2), ([5], "int8", 3)]
    graph = read_graph_json(text(document(nodes, entries, [(2, 0), (1, 0)], {"split": 2})))
    assert graph.row_ptr == (0, 1, 3, 4)
    assert graph.entry(Reference(1, 1)).shape == (5,)
    assert graph.entry(Reference(2, 0)).storage_id == 3


def test_metadata_is_ignored_and_device_index_optional() -> None:
    graph = foo()
    graph["metadata"] = {"anything": 1}
    del graph["attrs"]["device_index"]
    assert read_graph_json(text(graph)).entries[0].device == 0


@pytest.mark.parametrize("key", ["nodes", "arg_nodes", "heads", "attrs", "node_row_ptr"])
def test_a_missing_key_is_named(key: str) -> None:
    graph = foo()
    del graph[key]
    with pytest.raises(CorruptModelError, match=f"the graph has no key '{key}'"):
        read_graph_json(text(graph))


@pytest.mark.parametrize("key", ["dltype", "storage_id", "shape"])
def test_a_missing_attribute_is_named(key: str) -> None:
    graph = foo()
    del graph["attrs"][key]
    with pytest.raises(CorruptModelError, match=f"attrs has no key '{key}'"):
        read_graph_json(text(graph))


@pytest.mark.parametrize("key", ["op", "name", "inputs", "attrs"])
def test_a_missing_key_of_a_node_is_named(key: str) -> None:
    graph = foo()
    del graph["nodes"][2][key]
    with pytest.raises(CorruptModelError, match=rf"node 2.* has no key '{key}'"):
        read_graph_json(text(graph))


@pytest.mark.parametrize("key", ["func_name", "num_inputs", "num_outputs", "flatten_data"])
def test_a_missing_attribute_of_a_node_is_named(key: str) -> None:
    graph = foo()
    del graph["nodes"][2]["attrs"][key]
    with pytest.raises(CorruptModelError, match=rf"node 2 \(tvmgen_foo_pool\) have no string '{key}'"):
        read_graph_json(text(graph))


@pytest.mark.parametrize("place", [(), ("attrs",), ("nodes", 1)])
def test_an_unknown_key_is_an_error(place: tuple[Any, ...]) -> None:
    graph = foo()
    target = graph
    for step in place:
        target = target[step]
    target["surprise"] = 1
    with pytest.raises(CorruptModelError, match="unknown key 'surprise'"):
        read_graph_json(text(graph))


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("heads", 0), [4, 0, 0], "heads refers to node 4 of 4"),
        (("heads", 0), [3, 1, 0], "output 1 of tvmgen_foo_dense"),
        (("heads", 0), [3], "1 numbers"),
        (("heads", 0), [-1, 0, 0], "negative"),
        (("arg_nodes",), [], r"arg_nodes is \[\]"),
        (("arg_nodes",), [0, 1], r"the nodes without operator are \[0\]"),
        (("arg_nodes",), [True], "not a list of int"),
        (("nodes", 1, "inputs", 0), [0, 2, 0], "output 2 of data"),
        (("nodes", 1, "inputs", 0), [1, 0, 0], "does not come before it"),
        (("nodes", 1, "inputs", 0), [3, 0, 0], "does not come before it"),
        (("nodes", 1, "inputs"), [], "says 1 inputs and has 0"),
        (("nodes", 0, "inputs"), [[0, 0, 0]], "reads a node"),
        (("nodes", 1, "op"), "conv", "neither null nor tvm_op"),
        (("nodes", 1, "attrs", "num_outputs"), "x", "no numbers"),
        (("nodes", 1, "attrs", "num_outputs"), "2", "node_row_ptr"),
        (("node_row_ptr",), [0, 1, 2, 3], "node_row_ptr"),
        (("node_row_ptr",), [0, 1, 3, 3, 4], "node_row_ptr"),
        (("attrs", "storage_id"), ["list_int", [0, 1, 2]], "different lengths"),
        (("attrs", "storage_id"), ["list_int", [0, 1, 2, -1]], "negative"),
        (("attrs", "storage_id"), ["list_str", [0, 1, 2, 3]], "list_int"),
        (("attrs", "device_index"), ["list_int", [1]], "different lengths"),
        (("attrs", "dltype", 1, 0), "float33x", "not an element type"),
        (("attrs", "shape", 1, 0), [1.5], "not a list of int"),
    ],
)
def test_what_is_wrong_is_said(path: tuple[Any, ...], value: Any, reason: str) -> None:
    graph = foo()
    target: Any = graph
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    with pytest.raises(CorruptModelError, match=reason):
        read_graph_json(text(graph))


def test_a_key_that_occurs_twice() -> None:
    with pytest.raises(CorruptModelError, match="'heads' occurs twice"):
        read_graph_json('{"heads": [], "heads": []}')


@pytest.mark.parametrize("bad", ["", "[]", "{", "null", "[" * 100000])
def test_no_graph_at_all(bad: str) -> None:
    with pytest.raises(CorruptModelError):
        read_graph_json(bad)


@given(st.data())
def test_any_value_anywhere(data: st.DataObject) -> None:
    """Whatever stands in place of a value, the answer is a graph or our own error."""
    graph = copy.deepcopy(foo())
    target: Any = graph
    while True:
        key = data.draw(st.sampled_from(sorted(target) if isinstance(target, dict) else range(len(target))))
        if not isinstance(target[key], dict | list) or not target[key] or data.draw(st.booleans()):
            break
        target = target[key]
    json_values = st.none() | st.booleans() | st.integers(-2, 9) | st.text(max_size=3)
    target[key] = data.draw(st.recursive(json_values, st.lists, max_leaves=4))
    try:
        read = read_graph_json(json.dumps(graph))
    except CorruptModelError:
        return
    assert len(read.entries) == read.row_ptr[-1]


@pytest.mark.models
def test_graphs_that_tvm_wrote() -> None:
    folder = models_dir().parent / "exported"
    graph = read_graph_json((folder / "byoc_thumb.graph.json").read_text())
    assert [n.function for n in graph.nodes] == ["", "tvmgen_byoc_ccompiler_main_0", "tvmgen_byoc_fused_exp"]
    assert graph.storage_sizes() == {0: 400, 1: 400, 2: 400}
