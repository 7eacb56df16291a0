"""The module blob: its bytes, round trips, and what happens to damaged ones."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtgen.base.errors import CorruptModelError, ModelError, UnsupportedError
from crtgen.firmware.library.blob import read_blob, write_blob
from crtgen.firmware.library.datatype import DLDataType
from crtgen.firmware.library.module import (
    ConstLoader,
    CSource,
    DeviceFunction,
    DeviceSource,
    ExecutorFactory,
    JsonModule,
    LlvmModule,
    MergedModule,
    Module,
)
from crtgen.firmware.library.params import NDArray


def u64(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def text(value: str) -> bytes:
    return u64(len(value)) + value.encode()


def framed(stream: bytes) -> bytes:
    return u64(len(stream)) + stream


KERNEL = DeviceFunction("k", (DLDataType(3, 64), DLDataType(0, 32)), ("blockIdx.x",))
CUDA = DeviceSource(name="gpu", device="cuda", format="ptx", kernels={"k": KERNEL}, data=b"\0code\xff")
CUDA_BODY = (
    text("ptx")
    + u64(1) + text("k") + text("k")
    + u64(2) + bytes([3, 64, 1, 0, 0, 32, 1, 0])
    + u64(1) + text("blockIdx.x")
    + u64(6) + b"\0code\xff"
)  # fmt: skip
LLVM_CUDA = framed(
    u64(3) + text("_lib") + text("cuda") + CUDA_BODY + text("_import_tree") + u64(3, 0, 1, 1) + u64(1, 1)
)


def everything() -> Module:
    """A tree with a body of each kind."""
    lib = CSource(name="lib0.c", code="")
    weights = {"w": NDArray(np.arange(6, dtype=np.int8).reshape(2, 3)), "b": NDArray(np.array(7, np.int32))}
    loader = ConstLoader(name="consts", arrays=weights, users={"f": ("b", "w"), "g": ()}, imports=(lib, CUDA))
    subgraph = JsonModule(name="s", generator="dnnl", symbol="s", graph_json="{}", const_vars=("c",))
    old = ConstLoader(name="old", arrays={}, users={}, loader_key="metadata", imports=(subgraph,))
    aot = ExecutorFactory(name="aot", graph_json=None, params={})
    return ExecutorFactory(name="net", graph_json="{...}", params=weights, imports=(loader, old, aot))


EVERYTHING = write_blob(everything())


def keys(root: Module) -> list[object]:
    return [root.key, *(keys(m) for m in root.imports)]


def test_llvm_importing_cuda() -> None:
    assert write_blob(LlvmModule(name="host", content="", imports=(CUDA,))) == LLVM_CUDA


def test_reads_llvm_importing_cuda() -> None:
    member = LlvmModule(name="host", content="")
    root = read_blob(LLVM_CUDA, [member])
    assert isinstance(root, MergedModule)
    assert root.members == (member,)
    (gpu,) = root.imports
    assert isinstance(gpu, DeviceSource)
    assert (gpu.key, gpu.format, gpu.data, gpu.functions) == ("cuda", "ptx", b"\0code\xff", ("k",))
    assert gpu.kernels == {"k": KERNEL}


def test_every_kind_of_body() -> None:
    root = read_blob(EVERYTHING)
    assert keys(root) == [
        "GraphExecutorFactory",
        ["const_loader", ["_lib"], ["cuda"]],
        ["metadata", ["dnnl"]],
        ["AotExecutorFactory"],
    ]
    assert isinstance(root, ExecutorFactory)
    assert (root.name, root.graph_json, list(root.params)) == ("net", "{...}", ["w", "b"])
    loader = root.imports[0]
    assert isinstance(loader, ConstLoader)
    assert loader.users == {"f": ("b", "w"), "g": ()}
    assert loader.arrays["w"].array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert loader.arrays["b"].array.shape == ()
    subgraph = root.imports[1].imports[0]
    assert isinstance(subgraph, JsonModule)
    assert (subgraph.symbol, subgraph.graph_json, subgraph.const_vars) == ("s", "{}", ("c",))
    assert write_blob(root) == EVERYTHING


def test_a_single_dso_root_has_no_tree() -> None:
    assert write_blob(LlvmModule(name="host", content="")) == framed(u64(0))
    assert keys(read_blob(framed(u64(0)))) == ["_lib"]


def test_without_a_tree_the_root_imports_everything() -> None:
    root = read_blob(framed(u64(2) + (text("cuda") + CUDA_BODY) * 2))
    assert keys(root) == ["_lib", ["cuda"], ["cuda"]]


def test_a_diamond_is_one_module_again() -> None:
    bottom = CUDA
    left, right = (ConstLoader(name=n, arrays={}, users={}, imports=(bottom,)) for n in "lr")
    root = read_blob(write_blob(ConstLoader(name="top", arrays={}, users={}, imports=(left, right))))
    assert root.imports[0].imports[0] is root.imports[1].imports[0]


@pytest.mark.parametrize("blob", [LLVM_CUDA, EVERYTHING], ids=["llvm-cuda", "everything"])
def test_truncated_at_every_byte(blob: bytes) -> None:
    for size in range(len(blob)):
        with pytest.raises(CorruptModelError):
            read_blob(blob[:size])


@pytest.mark.parametrize("blob", [LLVM_CUDA, EVERYTHING], ids=["llvm-cuda", "everything"])
def test_truncated_at_every_byte_with_the_length_that_is_left(blob: bytes) -> None:
    for size in range(len(blob) - 8):
        with pytest.raises(CorruptModelError):
            read_blob(framed(blob[8 : 8 + size]))


@given(st.data())
def test_a_damaged_byte_gives_an_error_of_ours_or_a_tree(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(EVERYTHING) - 1))
    damaged = EVERYTHING[:at] + bytes([data.draw(st.integers(0, 255))]) + EVERYTHING[at + 1 :]
    try:
        root = read_blob(damaged)
    except ModelError:
        return
    assert len(keys(root)) == 4


@given(st.binary(max_size=200))
def test_any_bytes(stream: bytes) -> None:
    try:
        read_blob(framed(stream))
    except ModelError:
        return
    assert stream == u64(0)


def test_an_unknown_key_names_the_known_loaders() -> None:
    with pytest.raises(UnsupportedError, match="'zz'") as caught:
        read_blob(framed(u64(3) + text("_lib") + text("zz") + bytes(16)))
    for known in ("_lib", "const_loader", "metadata", "cuda", "GraphExecutorFactory"):
        assert known in caught.value.hint


def test_two_libs() -> None:
    stream = u64(3) + text("_lib") * 2 + text("_import_tree") + u64(3, 0, 1, 1) + u64(1, 1)
    with pytest.raises(CorruptModelError, match="_lib occurs twice") as caught:
        read_blob(framed(stream))
    assert "cuda" in caught.value.hint


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        (u64(2, 0, 1) + u64(1, 1), "2 row pointers for 2 modules"),
        (u64(3, 1, 1, 1) + u64(1, 1), "row pointers"),
        (u64(3, 0, 1, 0) + u64(0), "row pointers"),
        (u64(3, 0, 1, 2) + u64(1, 1), "row pointers"),
        (u64(3, 0, 1, 1) + u64(1, 0), "module 0 of 2 imports"),
        (u64(3, 0, 1, 1) + u64(1, 2), "module 0 of 2 imports"),
        (u64(3, 0, 2, 2) + u64(2, 1, 1), "module 0 of 2 imports"),
        (u64(3, 0, 1, 2) + u64(2, 1, 0), "module 1 of 2 imports"),
        (u64(3, 0, 0, 0) + u64(0), "imported by none"),
    ],
)
def test_a_tree_that_is_none(tree: bytes, reason: str) -> None:
    stream = u64(3) + text("_lib") + text("cuda") + CUDA_BODY + text("_import_tree") + tree
    with pytest.raises(CorruptModelError, match=reason):
        read_blob(framed(stream))


def test_bytes_after_the_tree() -> None:
    with pytest.raises(CorruptModelError, match="1 bytes follow"):
        read_blob(framed(LLVM_CUDA[8:] + b"\0"))


def test_a_constant_that_no_loader_has() -> None:
    body = u64(0) + u64(0) + u64(1) + text("f") + u64(1) + u64(1) + text("w")
    with pytest.raises(CorruptModelError, match="f uses w"):
        read_blob(framed(u64(1) + text("const_loader") + body))
