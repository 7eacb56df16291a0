"""Graph JSON, TVM's description of a network for its graph executor, checked (formats.md, section 5)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from crtgen.firmware.library.checker import Checker
from crtgen.firmware.library.datatype import DLDataType

__all__ = ["GraphEntry", "GraphJson", "GraphNode", "Reference", "read_graph_json"]

_KEYS = frozenset({"nodes", "arg_nodes", "heads", "attrs", "node_row_ptr"})
_NODE_KEYS = frozenset({"op", "name", "inputs"})
_ATTRS = {"dltype": ("list_str", str), "storage_id": ("list_int", int), "shape": ("list_shape", list)}
_OPTIONAL_ATTRS = {"device_index": ("list_int", int)}
_OP_ATTRS = ("func_name", "num_inputs", "num_outputs", "flatten_data")


@dataclass(frozen=True, slots=True)
class Reference:
    node: int
    index: int


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A call of ``function``, or an argument of the network if ``function`` is empty."""

    name: str
    function: str
    inputs: tuple[Reference, ...]
    num_outputs: int
    flatten_data: bool

    @property
    def is_call(self) -> bool:
        return bool(self.function)


@dataclass(frozen=True, slots=True)
class GraphEntry:
    shape: tuple[int, ...]
    dtype: DLDataType
    storage_id: int
    device: int

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class GraphJson:
    """A network as calls of functions on tensors, in the order in which they run."""

    nodes: tuple[GraphNode, ...]
    arg_nodes: tuple[int, ...]
    heads: tuple[Reference, ...]
    row_ptr: tuple[int, ...]
    entries: tuple[GraphEntry, ...]

    def entry_index(self, ref: Reference) -> int:
        return self.row_ptr[ref.node] + ref.index

    def entry(self, ref: Reference) -> GraphEntry:
        return self.entries[self.entry_index(ref)]

    @property
    def arguments(self) -> tuple[GraphNode, ...]:
        return tuple(self.nodes[i] for i in self.arg_nodes)

    def storage_sizes(self) -> dict[int, int]:
        """Return the size of each storage, which is that of its largest tensor in bytes, by ascending id."""
        sizes: dict[int, int] = {}
        for entry in self.entries:
            sizes[entry.storage_id] = max(sizes.get(entry.storage_id, 0), entry.nbytes)
        return dict(sorted(sizes.items()))


def read_graph_json(text: str, where: str = "graph JSON") -> GraphJson:
    """Return the graph, with all its indices checked; any error is a ``CorruptModelError`` that describes
    it.
    """
    parser = _GraphParser(where)
    return parser.graph(parser.document(text))


class _GraphParser(Checker):
    def graph(self, document: Any) -> GraphJson:
        top = self.keys(document, "the graph", _KEYS, ("metadata",))
        nodes = tuple(self.node(n, i) for i, n in enumerate(self.items(top["nodes"], "nodes", dict)))
        entries = self.entries(top["attrs"])
        row_ptr = self.naturals(top["node_row_ptr"], "node_row_ptr")
        self.check_rows(nodes, row_ptr, len(entries))
        heads = tuple(self.reference(h, "heads", nodes) for h in self.items(top["heads"], "heads", list))
        for head in heads:
            self.check_index(head, nodes, "heads")
        arg_nodes = self.naturals(top["arg_nodes"], "arg_nodes")
        self.check_arguments(nodes, arg_nodes)
        return GraphJson(nodes, arg_nodes, heads, row_ptr, entries)

    def node(self, value: Any, index: int) -> GraphNode:
        what = f"node {index}"
        node = self.keys(value, what, _NODE_KEYS, ("attrs",))
        name = node["name"]
        if not isinstance(name, str):
            self.fail(f"the name of {what} is not a string")
        inputs = tuple(
            self.reference(r, f"{what} ({name})") for r in self.items(node["inputs"], "inputs", list)
        )
        if any(ref.node >= index for ref in inputs):
            self.fail(f"{what} ({name}) reads a node that does not come before it")
        if node["op"] == "null":
            if inputs:
                self.fail(f"{what} ({name}) is an argument and has inputs")
            return GraphNode(name, "", (), 1, False)
        if node["op"] != "tvm_op":
            self.fail(f"{what} ({name}) has the operator {node['op']!r}, which is neither null nor tvm_op")
        return self.call(node.get("attrs"), f"{what} ({name})", name, inputs)

    def call(self, value: Any, what: str, name: str, inputs: tuple[Reference, ...]) -> GraphNode:
        if not isinstance(value, dict):
            self.fail(f"{what} has no key 'attrs'")
        for key in _OP_ATTRS:
            if not isinstance(value.get(key), str):
                self.fail(f"the attributes of {what} have no string {key!r}")
        counts = [value[key] for key in ("num_inputs", "num_outputs", "flatten_data")]
        if not all(c.isascii() and c.isdigit() and len(c) < 10 for c in counts) or not value["func_name"]:
            self.fail(f"{what} has attributes that are no numbers, or no function")
        num_inputs, num_outputs, flatten = map(int, counts)
        if num_inputs != len(inputs):
            self.fail(f"{what} says {num_inputs} inputs and has {len(inputs)}")
        return GraphNode(name, value["func_name"], inputs, num_outputs, flatten != 0)

    def reference(self, value: Any, what: str, nodes: Sequence[GraphNode] | None = None) -> Reference:
        # ``[node, index(, version)]``; with ``nodes``, the node has to exist.
        numbers = self.naturals(value, f"a reference in {what}")
        if len(numbers) not in (2, 3):
            self.fail(f"a reference in {what} has {len(numbers)} numbers")
        if nodes is not None and numbers[0] >= len(nodes):
            self.fail(f"{what} refers to node {numbers[0]} of {len(nodes)}")
        return Reference(numbers[0], numbers[1])

    def entries(self, value: Any) -> tuple[GraphEntry, ...]:
        attrs = self.keys(value, "attrs", frozenset(_ATTRS), tuple(_OPTIONAL_ATTRS))
        columns = {key: self.column(attrs[key], key, *_ATTRS[key]) for key in _ATTRS}
        count = len(columns["dltype"])
        devices = [0] * count
        if "device_index" in attrs:
            devices = self.column(attrs["device_index"], "device_index", *_OPTIONAL_ATTRS["device_index"])
        if {len(devices), *map(len, columns.values())} != {count}:
            self.fail("the lists in attrs have different lengths")
        ids = self.naturals(columns["storage_id"], "storage_id")
        shapes = [self.naturals(s, "a shape") for s in columns["shape"]]
        dtypes = [DLDataType.parse(d, self.where) for d in columns["dltype"]]
        return tuple(map(GraphEntry, shapes, dtypes, ids, devices))

    def column(self, value: Any, key: str, tag: str, kind: type) -> list[Any]:
        if not isinstance(value, list) or len(value) != 2 or value[0] != tag:
            self.fail(f"{key} is not of the form [{tag!r}, [...]]")
        return self.items(value[1], key, kind)

    def check_rows(self, nodes: Sequence[GraphNode], row_ptr: Sequence[int], entries: int) -> None:
        rows = [0]
        for node in nodes:
            rows.append(rows[-1] + node.num_outputs)
        if list(row_ptr) != rows or entries != rows[-1]:
            self.fail(
                f"node_row_ptr or the lists in attrs do not fit the nodes, which have {rows[-1]} outputs"
            )
        for node in nodes:
            for ref in node.inputs:
                self.check_index(ref, nodes, node.name)

    def check_index(self, ref: Reference, nodes: Sequence[GraphNode], what: str) -> None:
        if ref.index >= nodes[ref.node].num_outputs:
            self.fail(f"{what} refers to output {ref.index} of {nodes[ref.node].name}, which does not exist")

    def check_arguments(self, nodes: Sequence[GraphNode], arg_nodes: Sequence[int]) -> None:
        arguments = [i for i, node in enumerate(nodes) if not node.is_call]
        if sorted(arg_nodes) != arguments:
            self.fail(f"arg_nodes is {list(arg_nodes)} but the nodes without operator are {arguments}")
        names: Mapping[str, int] = {nodes[i].name: i for i in arg_nodes}
        if len(names) != len(arg_nodes):
            self.fail("two arguments have the same name")
