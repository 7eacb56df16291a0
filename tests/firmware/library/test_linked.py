"""Hosts that run a graph themselves: they call its operators on its memory and on linked parameters."""

import numpy as np
import pytest

from crtgen import api
from crtgen.base.errors import RemoteError
from crtgen.device.rpc.client import Client
from crtgen.device.rpc.values import DataType, Tensor
from crtgen.firmware.library import read_archive
from crtgen.firmware.library.graph_json import GraphJson, Reference, read_graph_json
from crtgen.network.ir import Array
from tests.support import ROOT, models_dir, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"


class HostExecutor:
    """What TVM's graph executor does with a device, one block for each storage that is not a parameter."""

    def __init__(self, client: Client, graph: GraphJson, lookup: str = "_lookup_linked_param") -> None:
        self.client = client
        self.graph = graph
        self.library = client.system_lib()
        find = self.library.get_function(lookup)
        found = {sid: find(sid) if find else None for sid in graph.storage_sizes()}
        self.linked = {sid: handle.value for sid, handle in found.items() if handle is not None}
        blocks = {
            sid: client.allocate((size,), np.uint8).tensor.data
            for sid, size in graph.storage_sizes().items()
            if sid not in self.linked
        }
        self.storages = self.linked | blocks

    def tensor(self, ref: Reference) -> Tensor:
        entry = self.graph.entry(ref)
        dtype = DataType(entry.dtype.code, entry.dtype.bits, entry.dtype.lanes)
        return Tensor(self.storages[entry.storage_id], entry.shape, dtype)

    def run(self, *inputs: Array) -> list[Array]:
        wanted = [
            i for i in self.graph.arg_nodes if self.graph.entry(Reference(i, 0)).storage_id not in self.linked
        ]
        for i, x in zip(wanted, inputs, strict=True):
            self.client.copy_to(self.tensor(Reference(i, 0)), x)
        for i, node in enumerate(self.graph.nodes):
            if node.is_call:  # TVM's debug executor asks for __nop, too
                outputs = (Reference(i, k) for k in range(node.num_outputs))
                self.library.function(node.function)(*map(self.tensor, (*node.inputs, *outputs)))
        return [self.client.copy_from(self.tensor(head)) for head in self.graph.heads]


@pytest.mark.cc
def test_our_own_graphs() -> None:
    require_tool("gcc")
    cases = np.load(DIGITS.with_suffix(".npz"))
    compiled = api.compile([api.load(DIGITS)], "host", executor="graph")
    (part,) = compiled.parts
    graph = read_graph_json(part.graph_json)
    assert not {p.sid for p in part.module.params} & set(graph.storage_sizes())
    with compiled.generate().build().run() as session:
        for lookup in ("_lookup_linked_param", "digits_lookup_linked_param"):
            session.client.connect()
            (y,) = HostExecutor(session.client, graph, lookup).run(cases["case7_input0"])
            np.testing.assert_array_equal(y, cases["case7_output0"])


@pytest.mark.cc
@pytest.mark.models
def test_graphs_of_tvm_with_linked_parameters_and_two_models() -> None:
    """With the default pool; each model's parameters have the ids of its own graph."""
    require_tool("gcc")
    path = models_dir().parent / "mlf" / "multi_kws_ad01_c_graph.tar"
    models = {m.name: m for m in read_archive(path.read_bytes(), "x").models}
    cases = np.load(path.with_suffix(".npz"))
    with api.compile([api.load(path, trust=True)], "host").generate().build().run() as session:
        bare = session.client.system_lib().function("_lookup_linked_param")
        text = "the image has 2 models; call <model>_lookup_linked_param, such as ad01_lookup_linked_param"
        with pytest.raises(RemoteError, match=text):
            bare(0)
        for name, model in models.items():
            session.client.connect()
            graph = read_graph_json(model.graph_json)
            executor = HostExecutor(session.client, graph, f"{name}_lookup_linked_param")
            assert len(executor.linked) == len(model.params)
            (y,) = executor.run(cases[f"{name}.case0_input0"])
            np.testing.assert_array_equal(y, cases[f"{name}.case0_output0"])
