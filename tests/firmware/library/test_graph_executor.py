"""The static graph executor: its tables, and that the C runs."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.base.resources import runtime_dir
from crtgen.compiler.codegen.module import LayerInfo
from crtgen.firmware.library.graph_executor import ExecutorTables, graph_module, graph_tables, render_graph
from crtgen.firmware.library.graph_json import read_graph_json
from crtgen.firmware.library.params import NDArray
from crtgen.network.ir import Array, DType
from tests.firmware.library.graphs import FLAGS, Node, document, foo, run_host, text
from tests.support import require_tool

FOO = ("tvmgen_foo_quantize", "tvmgen_foo_pool", "tvmgen_foo_dense")

OPERATOR = """
static int32_t packed(TVMValue *a, int n) { (void)a; return n; }
#define INT8(i) ((int8_t *)((DLTensor *)a[i].v_handle)->data)
#define OP(name) int32_t name(TVMValue *a, int *c, int n, TVMValue *r, int *rc, void *s); \\
    int32_t name(TVMValue *a, int *c, int n, TVMValue *r, int *rc, void *s)
#define UNUSED (void)c, (void)r, (void)rc, (void)s, (void)packed
"""


def tables(
    graph: object, params: dict[str, Array] | None = None, functions: tuple[str, ...] = ()
) -> ExecutorTables:
    read = read_graph_json(text(graph))
    named = functions or tuple(node.function for node in read.nodes)
    return graph_tables("net", read, {k: NDArray(v) for k, v in (params or {}).items()}, named)


def chain(length: int) -> dict[str, object]:
    """``length`` different operators one after the other, on two storages after the input's."""
    nodes: list[Node] = [("x", "", [])] + [(f"op{i}", f"f{i}", [(i, 0)]) for i in range(length)]
    entries = [([1, 16], "int8", 0)] + [([1, 16], "int8", 1 + i % 2) for i in range(length)]
    return document(nodes, entries, [(length, 0)])


def test_the_image_network() -> None:
    result = tables(foo())
    assert [call.function for call in result.calls] == list(FOO)
    assert result.pool == 757152
    assert [place.offset for place in result.places] == [0, 602112, 752640, 753152]
    assert [(p.name, p.nbytes) for p in (*result.inputs, *result.outputs)] == [
        ("data", 602112),
        ("output", 4000),
    ]
    assert [call.args for call in result.calls] == [(0, 1), (1, 2), (2, 3)]


def test_an_unknown_function_fails_at_generation() -> None:
    with pytest.raises(CorruptModelError, match="tvmgen_foo_pool calls tvmgen_foo_pool, which no module"):
        tables(foo(), functions=("tvmgen_foo_quantize", "tvmgen_foo_dense"))


def test_shared_storage_gives_slots_of_the_larger() -> None:
    nodes = [("x", "", []), ("a", "f", [(0, 0)]), ("b", "g", [(1, 0)]), ("c", "f", [(2, 0)])]
    entries = [([16], "int8", 0), ([48], "int8", 1), ([64], "int8", 0), ([32], "int8", 1)]
    result = tables(document(nodes, entries, [(3, 0)]))
    assert [place.offset for place in result.places] == [0, 64]
    assert result.pool == 64 + 48
    assert result.consumes_inputs


def test_inputs_that_are_kept() -> None:
    assert not tables(foo()).consumes_inputs


def test_a_parameter_as_input_0() -> None:
    nodes = [("w", "", []), ("x", "", []), ("y", "f", [(0, 0), (1, 0)])]
    entries = [([2], "int8", 0), ([2], "int8", 1), ([2], "int8", 2)]
    result = tables(document(nodes, entries, [(2, 0)]), {"w": np.array([5, -7], np.int8)})
    assert [port.name for port in result.inputs] == ["x"]
    (param,) = result.params
    assert (param.symbol, param.sid, param.nbytes, param.lines) == (
        "__tvm_param__net_w",
        0,
        2,
        ("0x05, 0xf9,",),
    )
    assert [place.c("arena") for place in result.places] == [
        "(void *)(uintptr_t)__tvm_param__net_w",
        "arena",
        "arena + 16",
    ]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"v": np.zeros(2, np.int8)}, "v is not an argument"),
        ({"w": np.zeros(3, np.int8)}, r"int8 \[3\] but the graph has int8 \[2\]"),
        ({"w": np.zeros(2, np.uint8)}, "uint8"),
    ],
)
def test_parameters_that_do_not_fit(value: dict[str, Array], reason: str) -> None:
    nodes = [("w", "", []), ("y", "f", [(0, 0)])]
    with pytest.raises(CorruptModelError, match=reason):
        tables(document(nodes, [([2], "int8", 0), ([2], "int8", 1)], [(1, 0)]), value)


def test_a_parameter_that_a_call_would_overwrite() -> None:
    nodes = [("w", "", []), ("y", "f", [(0, 0)])]
    graph = document(nodes, [([2], "int8", 0), ([2], "int8", 0)], [(1, 0)])
    with pytest.raises(CorruptModelError, match="y is in the storage of the parameter w"):
        tables(graph, {"w": np.zeros(2, np.int8)})


def test_two_devices_are_refused() -> None:
    graph = foo()
    graph["attrs"]["device_index"][1][2] = 2
    with pytest.raises(UnsupportedError, match="several devices"):
        tables(graph)


def test_names_that_c_does_not_have() -> None:
    graph = foo()
    graph["nodes"][1]["attrs"]["func_name"] = 'f(); system("x")'
    with pytest.raises(CorruptModelError, match="not the name of a C function"):
        tables(graph)
    graph = foo()
    graph["nodes"][0]["name"] = 'da"ta*/'
    source = render_graph(tables(graph))
    assert '.name = "da\\042ta*/"' in source


def test_arguments_with_one_c_name() -> None:
    nodes = [("a.b", "", []), ("a_b", "", []), ("y", "f", [(0, 0), (1, 0)])]
    result = tables(document(nodes, [([2], "int8", i) for i in range(3)], [(2, 0)]))
    assert [port.c_name for port in result.inputs] == ["a_b", "a_b_2"]


def test_a_nop_renames_a_tensor() -> None:
    nodes = [("x", "", []), ("a", "f", [(0, 0)]), ("reshape", "__nop", [(1, 0)]), ("b", "g", [(2, 0)])]
    entries = [([4], "int8", 0), ([4], "int8", 1), ([2, 2], "int8", 1), ([4], "int8", 2)]
    result = tables(document(nodes, entries, [(3, 0)]))
    assert [call.function for call in result.calls] == ["f", "g"]
    assert result.types[result.tensors[result.calls[1].args[0]].type].shape == (2, 2)
    entries[2] = ([2, 2], "int8", 3)
    with pytest.raises(CorruptModelError, match="reshape: a __nop must share storage with its input"):
        tables(document(nodes, entries, [(3, 0)]))


def test_flattened_arguments() -> None:
    graph = document([("x", "", []), ("y", "f", [(0, 0)])], [([2, 3], "int8", 0), ([6], "int8", 1)], [(1, 0)])
    graph["nodes"][1]["attrs"]["flatten_data"] = "1"
    result = tables(graph)
    assert result.types[result.tensors[result.calls[0].args[0]].type].shape == (6,)
    assert result.types[result.inputs[0].tensor.type].shape == (2, 3)


def test_a_chain_of_60_has_narrow_indices() -> None:
    result = tables(chain(60))
    assert (result.index_type, [len(call.args) for call in result.calls]) == ("uint8_t", [2] * 60)


def test_more_than_256_tensors_take_wider_indices() -> None:
    nodes: list[Node] = [("x", "", [])] + [(f"op{i}", "f", [(i, 0)]) for i in range(300)]
    entries = [([1], "int8", i) for i in range(301)]
    result = tables(document(nodes, entries, [(300, 0)]))
    assert (result.index_type, len(result.calls)) == ("uint16_t", 300)


def test_the_module_for_the_metadata() -> None:
    module = graph_module("foo", read_graph_json(text(foo())), {}, FOO, ["scores"])
    assert module.info.arena == 757152
    assert [i.name for i in (*module.info.inputs, *module.info.outputs)] == ["data", "scores"]
    assert [f.symbol for f in module.functions] == list(FOO)
    (written,) = module.info.layers[0].writes
    assert (written.offset, written.shape, written.dtype) == (602112, (1, 3, 224, 224), DType.INT8)
    assert module.info.layers[0] == LayerInfo("tvmgen_foo_quantize", "call", "imported", writes=(written,))
    assert list(module.files) == ["foo_graph.c"]


@pytest.mark.cc
def test_runs_with_scalars_parameters_and_11_arguments(tmp_path: Path) -> None:
    """y = sum of ten inputs with their ranks as weights, z = y * w where w is a scalar parameter."""
    nodes: list[Node] = [("w", "", []), *((f"x{i}", "", ()) for i in range(10))]
    nodes += [("sum", "weighted", [(i + 1, 0) for i in range(10)]), ("mul", "times", [(0, 0), (11, 0)])]
    shapes = [[], *([[2]] * 5), *([[1, 2]] * 5), [2], [2]]
    entries = [(shape, "int8", i) for i, shape in enumerate(shapes)]
    result = tables(document(nodes, entries, [(12, 0), (11, 0)]), {"w": np.array(-3, np.int8)})
    operators = (
        OPERATOR
        + """
OP(weighted) {
    UNUSED;
    for (int k = 0; k < 2; k++) {
        int sum = 0;
        for (int i = 0; i < n - 1; i++)
            sum += INT8(i)[k] * ((DLTensor *)a[i].v_handle)->ndim;
        INT8(n - 1)[k] = (int8_t)sum;
    }
    return n == 11 && c[10] == kTVMDLTensorHandle ? 0 : 99;
}
OP(times) {
    UNUSED;
    const DLTensor *w = a[0].v_handle;
    if (n != 3 || w->ndim != 0 || w->strides != NULL || w->device.device_type != kDLCPU) return 98;
    for (int k = 0; k < 2; k++) INT8(2)[k] = (int8_t)(INT8(0)[0] * INT8(1)[k]);
    return 0;
}
"""
    )
    main = """
    for (int i = 0; i < net_model.num_inputs; i++) {
        ((int8_t *)net_model.inputs[i].data)[0] = (int8_t)i;
        ((int8_t *)net_model.inputs[i].data)[1] = 1;
    }
    int32_t error = net_model.run();
    const int8_t *z = net_model.outputs[0].data, *y = net_model.outputs[1].data;
    printf("%d %d %d %d %d %d", (int)error, net_model.num_inputs, y[0], y[1], z[0], z[1]);
    return 0;
"""
    # 0+1+2+3+4 with rank 1, 5+6+7+8+9 with rank 2.
    expected = f"0 10 {10 + 2 * 35} 15 {((10 + 70) * -3 + 128) % 256 - 128} -45"
    assert run_host(tmp_path, render_graph(result), operators, ["weighted", "times"], main) == expected


@pytest.mark.cc
def test_a_failing_operator_stops_the_run_and_is_named(tmp_path: Path) -> None:
    operators = (
        OPERATOR
        + """
static int runs;
OP(f0) { UNUSED; (void)n; (void)a; runs++; return 0; }
OP(f1) { UNUSED; (void)n; (void)a; return 1537; }
OP(f2) { UNUSED; (void)n; (void)a; runs += 100; return 0; }
"""
    )
    main = """
    int32_t error = net_model.run();
    printf("%d %s %d", (int)error, TVMGetLastError(), runs);
    return 0;
"""
    output = run_host(tmp_path, render_graph(tables(chain(3))), operators, ["f2", "f1", "f0"], main)
    assert output == "1537 f1 1"


@pytest.mark.qemu
def test_tables_of_a_chain_of_60_on_m4(tmp_path: Path) -> None:
    """Under 1 KB of constants besides text, no heap symbol, and no RAM but the pool."""
    gcc = require_tool("arm-none-eabi-gcc")
    source, obj = tmp_path / "graph.c", tmp_path / "graph.o"
    source.write_text(render_graph(tables(chain(60))))
    include = f"-I{runtime_dir() / 'include'}"
    command = [gcc, *FLAGS, "-mcpu=cortex-m4", "-mthumb", include, "-c", str(source), "-o", str(obj)]
    subprocess.run(command, check=True, timeout=120)
    sections = subprocess.run(
        ["arm-none-eabi-size", "-A", str(obj)], check=True, timeout=120, capture_output=True, text=True
    ).stdout
    sizes = {f[0]: int(f[1]) for f in map(str.split, sections.splitlines()) if len(f) == 3 and f[1].isdigit()}
    constants = sum(size for name, size in sizes.items() if name.startswith(".rodata"))
    assert 60 * 7 <= constants < 1024
    assert sizes[".data"] == 0
    assert sum(size for name, size in sizes.items() if name.startswith(".bss")) == 48
    symbols = subprocess.run(
        ["arm-none-eabi-nm", "-u", str(obj)], check=True, timeout=120, capture_output=True, text=True
    ).stdout
    assert not {"malloc", "free", "calloc", "TVMBackendAllocWorkspace"} & set(symbols.split())
