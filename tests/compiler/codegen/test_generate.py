"""Generated C: what it says, that it is the same each time, and that it runs however it is called."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from crtgen.base.errors import UsageError
from crtgen.base.resources import runtime_dir
from crtgen.compiler.codegen import generate_c, metadata_files
from crtgen.compiler.kernels import Target, select
from crtgen.compiler.plan import make_plan
from crtgen.network.ir import DType, Graph, Node, Value
from crtgen.network.ops import FullyConnected
from tests.compiler.codegen.models import two_layers
from tests.support import BRIEF, CHECKED, require_tool

X = np.array([-128, 127, 3, 0, 60, -60, 5, 99, -99, 17, 1, -1], np.int8)


def test_files_and_figures() -> None:
    plan = two_layers()
    module = generate_c(plan, "net")
    assert set(module.files) == {
        *("net.h", "net.c", "net_internal.h", "net_kernels.c", "net_weights.c", "net_registry.c"),
    }
    info = module.info
    assert info.macs == 5 * 12 + 5 * 5
    assert info.weights == 5 * 12 + 5 * 5 + 2 * 5 * 4
    assert info.arena == plan.arena
    assert [(layer.name, layer.operator) for layer in info.layers] == [
        ("reshape", "reshape"),
        ("dense0", "fully_connected"),
        ("dense1", "fully_connected"),
        ("logistic", "logistic"),
    ]
    assert [(f.name, f.symbol) for f in module.functions] == [("net_run", "net_run_packed")]
    assert "#define NET_INPUT_X_SCALE 0.05f" in module.files["net.h"]
    assert "#define NET_OUTPUT_Y_ZERO_POINT -128" in module.files["net.h"]


def test_params_are_the_arrays() -> None:
    module = generate_c(two_layers(), "net")
    defined = re.findall(r"^const (\w+) (\w+)\[(\d+)\]", module.files["net_weights.c"], re.MULTILINE)
    sizes = {"int8_t": 1, "int32_t": 4}
    assert [(p.symbol, p.nbytes) for p in module.params] == [(s, sizes[t] * int(n)) for t, s, n in defined]
    assert [p.sid for p in module.params] == list(range(len(defined)))
    assert module.params[0].symbol == "__tvm_param__net_dense0_weights"


def test_same_bytes() -> None:
    assert generate_c(two_layers(), "net").files == generate_c(two_layers(), "net").files


def test_equal_layers_share_code() -> None:
    module = generate_c(two_layers(), "net")
    functions = re.findall(r"^void (\w+)\(", module.files["net_internal.h"], re.MULTILINE)
    assert functions == ["net_fully_connected_0", "net_fully_connected_1", "net_logistic_2"]


@pytest.mark.parametrize("name", ["", "3d", "a-b", "naïve"])
def test_bad_name(name: str) -> None:
    with pytest.raises(UsageError, match="is not a C identifier"):
        generate_c(two_layers(), name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("string", "C has a header string.h"),
        ("features", "features.h"),
        ("crt_memory", "crt_ is the C runtime's"),
    ],
)
def test_a_name_that_others_use(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"a model cannot be called {name}: .*{why}"):
        generate_c(two_layers(), name)


def test_calls_of_a_model_with_a_long_name() -> None:
    name = "a" * 40
    line, _ = re.findall(r"^ +\S+_0\(.*$", generate_c(two_layers(), name).files[f"{name}.c"], re.MULTILINE)
    assert line == f"    {name}_fully_connected_0((void *)({name.upper()}_ARENA + {name.upper()}_AT_FLAT),"


def test_infinite_weight() -> None:
    weights = Value.constant("w", np.array([[np.inf]], np.float32))
    values = [Value("x", (1, 1), DType.FLOAT32), weights, Value.constant("b", np.zeros(1, np.float32))]
    node = Node("dense", FullyConnected(), ("x", "w", "b"), ("y",))
    graph = Graph.build("net", [*values, Value("y", (1, 1), DType.FLOAT32)], [node], ["x"], ["y"])
    module = generate_c(make_plan(graph, select(graph, Target())), "net")
    assert "__builtin_inff()" in module.files["net_weights.c"]


@pytest.mark.cc
@pytest.mark.parametrize("layer", ["dense", "a */ b\n", '"%s??/\\'])
def test_every_way_to_call(tmp_path: Path, layer: str) -> None:
    plan = two_layers(layer=layer)
    module = generate_c(plan, "net")
    files = {**module.files, **metadata_files([module])}
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    sources = [f for f in files if f.endswith(".c")]
    image, registry = Path(__file__).parent / "image.c", runtime_dir() / "src" / "crt_registry.c"
    command = [require_tool("gcc"), *CHECKED, *BRIEF, f"-I{tmp_path}"]
    command += [f"-I{runtime_dir() / 'include'}", *sources, str(image), str(registry), "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    done = subprocess.run([tmp_path / "program"], check=True, capture_output=True, text=True, timeout=120)
    y = plan.graph.evaluate({"x": X.reshape(1, 2, 3, 2)})["y"].ravel()
    text = " ".join(map(str, y.tolist()))
    first = int(plan.graph.values["w0"].array()[0, 0])
    assert done.stdout.splitlines() == [
        f"typed {text}",
        f"places {text}",
        f"model {text}",
        "net 4 1 12 1",
        f"packed {text}",
        "status 0 code 4",
        "too few 0x800",
        "too large 0x801",
        "no tensor 0x801",
        f"param 0 3 {first}",
        "miss 0 4 1",
        "same 1",
        "net x 3 y",
    ]
    assert len(set(y.tolist())) > 1
