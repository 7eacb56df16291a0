"""The metadata module: its bytes, what it refuses, and that it costs no RAM."""

import io
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from crtgen.base.errors import UsageError
from crtgen.base.resources import runtime_dir
from crtgen.compiler.codegen import (
    CModule,
    Param,
    Registry,
    RegistryFunction,
    generate_c,
    metadata_files,
    name_table,
)
from crtgen.compiler.codegen.metadata import describe, metadata_source
from tests.compiler.codegen.models import two_layers
from tests.support import WARNINGS, require_tool


def _module(name: str = "net") -> CModule:
    return generate_c(two_layers(name), name)


def test_name_table() -> None:
    assert name_table(["add"]) == bytes.fromhex("01 00 61 64 64 00 00")
    assert name_table([]) == bytes.fromhex("00 00 00")
    assert name_table(["a", "é"]) == bytes.fromhex("02 00 61 00 c3 a9 00 00")


def test_order_of_functions() -> None:
    names = [f.name for f in Registry.of([_module()]).functions]
    assert names == [
        "net_run",
        *("_lookup_linked_param", "net_lookup_linked_param"),
        *("tvmgen_net_get_c_metadata", "get_c_metadata", "__nop"),
    ]


def test_hosts_find_what_runs_a_model_by_its_metadata() -> None:
    """They ask for <mod_name>_run and give it inputs, outputs and each workspace pool: there is none."""
    imported = replace(_module("b"), functions=(RegistryFunction("tvmgen_b_run", "b_run_packed", "run"),))
    registry = Registry.of([_module("a"), imported])
    runs = {f"{model.module}_run" for model in describe(registry).models}
    assert runs == {"a_run", "tvmgen_b_run"} <= {f.name for f in registry.functions}
    assert metadata_source(registry).count(".num_workspace_pools = 0,") == 2


def test_two_models() -> None:
    registry = Registry.of([_module("a"), _module("b")])
    names = [f.name for f in registry.functions]
    expected = ["a_run", "b_run", "_lookup_linked_param", "a_lookup_linked_param", "b_lookup_linked_param"]
    expected += ["tvmgen_a_get_c_metadata", "tvmgen_b_get_c_metadata", "__nop"]
    assert names == expected
    count = len(_module().params)
    assert [p.sid for p in registry.params] == 2 * list(range(count))
    assert [(look.start, look.count) for look in registry.lookups] == [(0, count), (count, count)]


@pytest.mark.parametrize(
    ("functions", "params", "message"),
    [
        ([RegistryFunction("", "f")], [], "is empty"),
        ([RegistryFunction("a\0b", "f")], [], "contains NUL"),
        ([RegistryFunction("f", "f"), RegistryFunction("f", "g")], [], "function f occurs 2 times"),
        ([RegistryFunction("f", "s"), RegistryFunction("g", "s")], [], "symbol s occurs 2 times"),
        ([RegistryFunction("f", "s")], [Param(0, "s", 4)], "symbol s occurs 2 times"),
        ([RegistryFunction("get_c_metadata", "f")], [], "function get_c_metadata occurs 2 times"),
    ],
)
def test_refused(functions: list[RegistryFunction], params: list[Param], message: str) -> None:
    module = replace(_module(), functions=tuple(functions), params=tuple(params))
    with pytest.raises(UsageError, match=message):
        metadata_files([module])


def test_same_model_twice() -> None:
    with pytest.raises(UsageError, match="net_run occurs 2 times"):
        metadata_files([_module(), _module()])


@pytest.mark.cc
@pytest.mark.parametrize("names", [["net"], ["a", "b"]])
def test_no_ram(tmp_path: Path, names: list[str]) -> None:
    """Only .text and .rodata have contents, in an object for Cortex-M4."""
    gcc = require_tool("arm-none-eabi-gcc")
    ((file, text),) = metadata_files([_module(n) for n in names]).items()
    (tmp_path / file).write_text(text)
    command = [gcc, "-mcpu=cortex-m4", "-mthumb", "-O2", *WARNINGS, f"-I{runtime_dir() / 'include'}"]
    subprocess.run([*command, "-c", file, "-o", "out.o"], cwd=tmp_path, check=True, timeout=120)
    elf = ELFFile(io.BytesIO((tmp_path / "out.o").read_bytes()))
    written = {s.name: s["sh_size"] for s in elf.iter_sections() if s["sh_flags"] & 1 and s["sh_flags"] & 2}
    assert sum(written.values()) == 0, written
    constant = [s for s in elf.iter_sections() if s.name.startswith(".rodata")]
    assert sum(s["sh_size"] for s in constant) > 100
