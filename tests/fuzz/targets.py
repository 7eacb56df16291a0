"""What is fuzzed: every kind of file that crtgen reads, and the devices that it talks to."""

import io
import json
import subprocess
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from crtgen import api
from crtgen.api.slot.delta import DELTA_MAGIC, Delta
from crtgen.base.resources import boards_dir
from crtgen.boards import find_board, load_board
from crtgen.boards.core import find_core
from crtgen.compiler.codegen.slot_image import SlotImage, SlotTensor
from crtgen.compiler.request import Request
from crtgen.firmware.library import (
    Library,
    link,
    load_package,
    read_exported,
    read_params,
    static_modules,
    write_params,
)
from crtgen.firmware.library.archive import read_tar, write_tar
from crtgen.firmware.library.elf import read_elf
from crtgen.firmware.library.graph_executor import graph_module
from crtgen.firmware.library.graph_json import read_graph_json
from crtgen.firmware.library.module import ConstLoader, ExecutorFactory
from crtgen.firmware.library.params import NDArray
from crtgen.firmware.project import FirmwareRequest, generate_project, read_manifest
from crtgen.lab.measure.cases import read_cases
from crtgen.network.frontends import load_tflite
from crtgen.network.ir import DType, Graph
from crtgen.network.ops import all_cases
from tests.firmware.library.graphs import foo, text
from tests.firmware.library.test_exported import exported, lib
from tests.firmware.project.building import toy_project
from tests.firmware.project.toy import toy
from tests.fuzz.device import device_inputs, meet_device
from tests.fuzz.engine import Target
from tests.fuzz.formats import format_targets
from tests.fuzz.mutate import mutate_bytes, mutate_json
from tests.fuzz.onnx_costs import costs_target
from tests.fuzz.onnx_files import onnx_target
from tests.network.frontends.compressed import coding, maximum, packed_bits
from tests.network.ops import oracle
from tests.support import ROOT, require_tool

__all__ = ["TARGETS", "compiled_graph", "model_seeds"]

_DIGITS = ROOT / "demo" / "digits.tflite"


def _any(random: Random, seeds: Sequence[bytes]) -> bytes:
    return mutate_bytes(random, random.choice(seeds), random.choice(seeds))


@cache
def model_seeds() -> tuple[bytes, ...]:
    """A small model for every test case of every operator, and one with several layers."""
    cases = (
        case for case in all_cases() if not case.name.endswith(("_onnx", "_larq", "_features", "_uint8"))
    )
    return (*(oracle.model(case.graph()) for case in cases), *_compressed(), _DIGITS.read_bytes())


def _compressed() -> Iterator[bytes]:
    """A model of each coding of weights."""
    numbers, tree = np.arange(24, dtype=np.int8), np.array([0x8805, 0x8803], np.uint16)
    yield maximum(packed_bits(numbers % 4, 2), coding(0, [1, 0xF2, 4], numbers[:4]))
    yield maximum(packed_bits(numbers % 2, 1), coding(1, [1, 0], tree))
    yield maximum(packed_bits(numbers % 2, 1), coding(2, [1], numbers[:12]))


def _model(data: bytes, folder: Path) -> bool:
    graph = load_tflite(data)
    # Every eighth of the accepted goes the whole way, for one of three boards.
    number = zlib.crc32(data) % 24
    if number < 3:
        compiled_graph(graph, ("host", "mps2_an386", "mps3_an547")[number])
    return True


def compiled_graph(graph: Graph, board: str) -> None:
    """The graph as C."""
    api.compile([api.Model(graph)], board)


@cache
def _archive_seeds() -> tuple[bytes, ...]:
    small = [load_tflite(data, f"m{i}") for i, data in enumerate(model_seeds()[:40:9])]
    ours = [api.compile([api.Model(g)], "host").archive() for g in small]
    graph = api.compile([api.Model(small[0])], "host", executor="graph").archive()
    two = api.compile([api.Model(g) for g in small[:2]], "host").archive()
    return (*ours, graph, two)


def _mutated_archive(random: Random, seeds: Sequence[bytes]) -> bytes:
    """Half of them have another JSON, a quarter another file, the others are damaged as a whole."""
    data = random.choice(seeds)
    kind = random.randrange(8)
    if kind == 0:
        return mutate_bytes(random, data, random.choice(seeds))
    files = dict(read_tar(data, "x"))
    names = sorted(n for n in files if n.endswith((".json", ".graph")) and files[n])
    if kind > 2:
        name = random.choice(names)
        files[name] = mutate_json(random, files[name])
    else:
        name = random.choice(sorted(files))
        if kind == 1:
            files[name] = mutate_bytes(random, files[name])
        elif random.random() < 0.5:
            files[random.choice(("crtgen/x.json", "codegen/host/src/m0_lib0.c", "a/b"))] = files.pop(name)
        else:
            del files[name]
    return write_tar(files, 0)


def _package(data: bytes, folder: Path, name: str) -> bool:
    path = folder / name
    path.write_bytes(data)
    parts = load_package(path).parts(find_core("host"))
    library = link(parts, find_core("host"))
    if zlib.crc32(data) % 64 == 0:
        _project(library, folder)
    return True


def _project(library: Library, folder: Path) -> None:
    firmware = FirmwareRequest(
        library.modules,
        library.files,
        Request(find_board("host")),
        objects=library.objects,
        shared_arena=library.shared_arena,
    )
    generate_project(firmware).extract(folder / "project", force=True)


def _archive(data: bytes, folder: Path) -> bool:
    return _package(data, folder, "a.tar")


@cache
def _exported_seeds() -> tuple[bytes, ...]:
    """Libraries with a graph and parameters; the last also has constants, which plain C cannot load."""
    document = foo()
    names = [node["name"] for node in document["nodes"] if node["op"] != "null"]
    signature = "(TVMValue* args, int* type_codes, int n, void* r, int* t, void* h)"
    code = "".join(f"int32_t {name}{signature} {{\n  return 0;\n}}\n" for name in names).encode()
    array = NDArray(np.arange(6, dtype=np.float32).reshape(2, 3))
    loader = ConstLoader(
        name="c", arrays={"k": array}, users={names[0]: ("k",)}, const_vars=("k",), imports=(lib(),)
    )
    roots = [
        ExecutorFactory(name="m", graph_json=text(document), params={}, imports=(below,))
        for below in (lib(), loader)
    ]
    return tuple(exported(root, **{"lib0.c": code}) for root in roots)


def _mutated_exported(random: Random, seeds: Sequence[bytes]) -> bytes:
    data = random.choice(seeds)
    if random.random() < 0.2:
        return mutate_bytes(random, data)
    files = dict(read_tar(data, "x"))
    name = random.choice(sorted(files))
    files[name] = (
        _mutated_blob(random, files[name]) if name == "devc.c" else mutate_bytes(random, files[name])
    )
    return write_tar(files, 0)


def _mutated_blob(random: Random, source: bytes) -> bytes:
    """C with an array of bytes: those are changed."""
    head, brace, rest = source.partition(b"{")
    body, end, tail = rest.partition(b"}")
    try:
        numbers = bytes(int(item, 0) for item in body.decode().split(",") if item.strip())
    except ValueError:
        return mutate_bytes(random, source)
    changed = mutate_bytes(random, numbers)
    return head + brace + ", ".join(map(hex, changed)).encode() + end + tail


def _exported(data: bytes, folder: Path) -> bool:
    library = read_exported(data, "x.tar")
    static_modules(library, "X86_64", True)
    return _package(data, folder, "x.tar")


@cache
def _object_seeds() -> tuple[bytes, ...]:
    """An object and a shared library with a function, as the host's compiler makes them."""
    code = "int f(void *a, int *type_codes, int n, void *r, int *t, void *h) { return n; }\n"
    with TemporaryDirectory(prefix="fuzz-") as folder:
        source = Path(folder) / "f.c"
        source.write_text(code)
        command = [require_tool("gcc"), "-O1", str(source), "-o"]
        subprocess.run([*command, f"{folder}/f.o", "-c"], check=True, timeout=120)
        subprocess.run([*command, f"{folder}/f.so", "-shared"], check=True, timeout=120)
        return (Path(folder) / "f.o").read_bytes(), (Path(folder) / "f.so").read_bytes()


def _object(data: bytes, folder: Path) -> bool:
    elf = read_elf(data, "f.o")
    return "f" in elf.functions and elf.data("nothing") is None and not elf.context


def _graph(data: bytes, folder: Path) -> bool:
    graph = read_graph_json(data.decode(errors="replace"))
    functions = [node.function for node in graph.nodes]
    module = graph_module("m", graph, {}, functions)
    return bool(module.files)


def _params(data: bytes, folder: Path) -> bool:
    return read_params(data) is not None


@cache
def _board_seeds() -> tuple[bytes, ...]:
    return tuple(file.read_bytes() for file in sorted(boards_dir().glob("*.toml"))[::3])


def _mutated_board(random: Random, seeds: Sequence[bytes]) -> bytes:
    data = random.choice(seeds)
    if random.random() < 0.5:
        return mutate_bytes(random, data, random.choice(seeds))
    lines = data.splitlines()
    key, equals, _ = random.choice(lines).partition(b"=")
    value = json.dumps(
        random.choice((-1, 1 << 40, "", "x", [], ["a"], {}, 1e308, True, "4 GiB", "0 B"))
    ).encode()
    at = random.randrange(len(lines) + 1)
    return b"\n".join((*lines[:at], key + equals + value, *lines[at + random.randrange(2) :]))


def _board(data: bytes, folder: Path) -> bool:
    file = folder / "board.toml"
    file.write_bytes(data)
    return load_board(file) is not None


@cache
def _npz_seeds() -> tuple[bytes, ...]:
    cases: dict[str, Any] = {f"case0_{side}0": np.ones((1, 4), np.int8) for side in ("input", "output")}
    plain, compressed = io.BytesIO(), io.BytesIO()
    np.savez(plain, **cases)
    np.savez_compressed(compressed, **cases)
    return plain.getvalue(), compressed.getvalue()


def _npz(data: bytes, folder: Path) -> bool:
    file = folder / "cases.npz"
    file.write_bytes(data)
    info = toy().info
    return bool(read_cases(file, info.inputs, info.outputs))


def _mutated_npz(random: Random, seeds: Sequence[bytes]) -> bytes:
    if random.random() < 0.5:
        return _any(random, seeds)
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(seeds[0])) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            new.writestr(name, mutate_bytes(random, old.read(name)))
    return buffer.getvalue()


@cache
def _manifest_seeds() -> tuple[bytes, ...]:
    return tuple(toy_project(board, "server").files["project.json"] for board in ("host", "mps2_an386"))


def _manifest(data: bytes, folder: Path) -> bool:
    project = folder / "manifest"
    project.mkdir(exist_ok=True)
    (project / "project.json").write_bytes(data)
    read_manifest(project)
    toy_project("host", "library").extract(project, force=True)
    return True


def _by_json(random: Random, seeds: Sequence[bytes]) -> bytes:
    return mutate_json(random, random.choice(seeds))


@cache
def _slot_seeds() -> tuple[bytes, ...]:
    """An image for a slot, and a delta from it to another one."""
    old = SlotImage(
        name="m",
        version=1,
        origin=0x1000,
        work=0x2000,
        work_size=64,
        stack=100,
        core=1,
        entry=0x1080,
        stateful=False,
        inputs=(SlotTensor("x", (1, 2, 3), DType.INT8, 0.5, 1),),
        outputs=(SlotTensor("y", (4,), DType.FLOAT32, 0.0, 0),),
        code=bytes(range(200)),
    )
    new = replace(old, version=2, origin=0x8000, code=bytes(range(200))[::-1])
    return old.data, Delta.between(old, new, 16).data


def _mutated_slot(random: Random, seeds: Sequence[bytes]) -> bytes:
    """Half of the images have the CRC of what they hold."""
    data = _any(random, seeds)
    if random.random() < 0.5 and len(data) > 16:
        return data[:12] + zlib.crc32(data[16:]).to_bytes(4, "little") + data[16:]
    return data


def _slot(data: bytes, folder: Path) -> bool:
    if data.startswith(DELTA_MAGIC):
        made = Delta.read(data, "x")
        assert made.data == data
        return sum(len(part) if isinstance(part, bytes) else part for _, part in made.parts()) == made.size
    return SlotImage.read(data, "x").data == data


TARGETS = {
    target.name: target
    for target in (
        Target("models", model_seeds, _any, _model),
        Target("archives", _archive_seeds, _mutated_archive, _archive),
        Target("exported", _exported_seeds, _mutated_exported, _exported),
        Target("objects", _object_seeds, _any, _object),
        Target("graphs", lambda: (text(foo()).encode(),), _by_json, _graph),
        Target("params", lambda: (write_params({"p": NDArray(np.ones((2, 3), np.int8))}),), _any, _params),
        Target("boards", _board_seeds, _mutated_board, _board),
        Target("devices", device_inputs, _any, meet_device),
        Target("slots", _slot_seeds, _mutated_slot, _slot),
        Target("npz", _npz_seeds, _mutated_npz, _npz),
        onnx_target(compiled_graph),
        costs_target(compiled_graph),
        *format_targets(),
        Target("manifests", _manifest_seeds, _by_json, _manifest),
    )
}
