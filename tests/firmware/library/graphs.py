"""Graph JSON for tests, and a host program around a generated graph executor."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crtgen.base.resources import runtime_dir
from tests.support import compile_each, require_tool

Node = tuple[str, str, Sequence[tuple[int, int]]]
"""Name, function (empty for an argument), inputs."""

FLAGS = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror")


def document(
    nodes: Sequence[Node],
    entries: Sequence[tuple[Sequence[int], str, int]],
    heads: Sequence[tuple[int, int]],
    outputs: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """A graph of nodes (name, function or "", inputs) with entries (shape, type, storage)."""
    counts = [(outputs or {}).get(name, 1) for name, _, _ in nodes]
    return {
        "nodes": [_node(*node, count) for node, count in zip(nodes, counts, strict=True)],
        "arg_nodes": [i for i, (_, function, _) in enumerate(nodes) if not function],
        "heads": [[node, index, 0] for node, index in heads],
        "attrs": {
            "dltype": ["list_str", [dtype for _, dtype, _ in entries]],
            "device_index": ["list_int", [1] * len(entries)],
            "storage_id": ["list_int", [sid for _, _, sid in entries]],
            "shape": ["list_shape", [list(shape) for shape, _, _ in entries]],
        },
        "node_row_ptr": [sum(counts[:i]) for i in range(len(counts) + 1)],
    }


def _node(name: str, function: str, inputs: Sequence[tuple[int, int]], outputs: int) -> dict[str, Any]:
    refs = [[node, index, 0] for node, index in inputs]
    if not function:
        return {"op": "null", "name": name, "inputs": refs}
    attrs = {
        "func_name": function,
        "num_inputs": str(len(refs)),
        "num_outputs": str(outputs),
        "flatten_data": "0",
        "hash": "0123456789abcdef",
    }
    return {"op": "tvm_op", "name": name, "attrs": attrs, "inputs": refs}


def foo() -> dict[str, Any]:
    """Three operators on an image: float32, int8, int8, float32."""
    nodes = [
        ("data", "", []),
        ("tvmgen_foo_quantize", "tvmgen_foo_quantize", [(0, 0)]),
        ("tvmgen_foo_pool", "tvmgen_foo_pool", [(1, 0)]),
        ("tvmgen_foo_dense", "tvmgen_foo_dense", [(2, 0)]),
    ]
    entries = [
        ([1, 3, 224, 224], "float32", 0),
        ([1, 3, 224, 224], "int8", 1),
        ([1, 512, 1, 1], "int8", 2),
        ([1, 1000], "float32", 3),
    ]
    return document(nodes, entries, [(3, 0)])


def text(graph: Any) -> str:
    return json.dumps(graph)


def run_host(directory: Path, executor: str, operators: str, functions: Sequence[str], main: str) -> str:
    """Compile an executor with operators, a registry and the body of ``main``; its standard output."""
    names = "".join(f'"{name}\\0" ' for name in functions)
    count = len(functions).to_bytes(2, "little")
    head = f"\\{count[0]:03o}\\{count[1]:03o}"
    harness = f"""
#include <stdio.h>
#include <string.h>
#include <crt/backend.h>
#include <crt/model.h>
struct crt_backend crt_backend;
extern const struct crt_model net_model;
{operators}
static const TVMBackendPackedCFunc funcs[] = {{{", ".join(functions)}}};
static const TVMFuncRegistry registry = {{"{head}" {names}, funcs}};
static const TVMModule module = {{&registry}};
const TVMModule *TVMSystemLibEntryPoint(void) {{ return &module; }}
int main(void) {{
{main}
}}
"""
    (directory / "graph.c").write_text(executor)
    (directory / "main.c").write_text(harness)
    src = runtime_dir() / "src"
    runtime = [src / f"crt_{part}.c" for part in ("backend", "registry", "pool")]
    command = [require_tool("gcc"), *FLAGS, f"-I{runtime_dir() / 'include'}"]
    sources = [directory / "graph.c", directory / "main.c", *runtime]
    program = compile_each(command, sources, directory / "program")
    return subprocess.run([program], check=True, timeout=120, capture_output=True, text=True).stdout
