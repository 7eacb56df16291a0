"""Exported libraries: the blob is found and decoded, and what cannot run on a target is named."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.firmware.library.archive import read_tar, write_tar
from crtgen.firmware.library.blob import write_blob
from crtgen.firmware.library.elf import read_elf
from crtgen.firmware.library.exported import BLOB_SYMBOL, read_exported, static_modules
from crtgen.firmware.library.graph_json import read_graph_json
from crtgen.firmware.library.module import ConstLoader, CSource, DeviceSource, ExecutorFactory, Module
from crtgen.firmware.library.params import NDArray
from tests.support import models_dir

LIB = b"""
TVM_DLL int32_t fused_add(TVMValue* args, int* type_code, int num_args, void* r, int* rc, void* s) {
  return 0;
}
static int32_t helper(int a) { return a; }
"""


def devc(root: Module) -> bytes:
    """The blob as the C array that a host without LLVM gets."""
    blob = write_blob(root)
    body = ",\n  ".join(",".join(f"0x{b:x}" for b in blob[i : i + 20]) for i in range(0, len(blob), 20))
    return (
        f"extern const unsigned char {BLOB_SYMBOL}[];\n"
        f"const unsigned char {BLOB_SYMBOL}[{len(blob)}] = {{\n  {body}\n}};\n"
    ).encode()


def lib(*imports: Module) -> CSource:
    return CSource(name="lib0.c", code="", imports=imports)


def exported(root: Module, **files: bytes) -> bytes:
    named = {name.replace("_dot_", "."): data for name, data in files.items()}
    return write_tar({"lib0.c": LIB, "devc.c": devc(root), **named}, 0)


def folder() -> Path:
    return models_dir().parent / "exported"


def test_a_library_of_c() -> None:
    weights = {"w": NDArray(np.array([1.5], np.float32))}
    root = ExecutorFactory(name="net", graph_json="{}", params=weights, imports=(lib(),))
    library = read_exported(exported(root), "net.tar")
    assert library.functions == ("fused_add",)
    assert library.factory is not None
    assert (library.factory.name, library.factory.graph_json) == ("net", "{}")
    assert library.factory.params["w"].array.tolist() == [1.5]
    assert [m.name for m in static_modules(library, "ARM", hosted=False)] == ["lib0.c"]


def test_without_a_blob_the_code_is_all() -> None:
    library = read_exported(write_tar({"lib0.c": LIB}, 0), "net.tar")
    assert (library.functions, library.factory, library.constants) == (("fused_add",), None, {})


def test_cuda_is_named() -> None:
    gpu = DeviceSource(name="gpu", device="cuda", format="ptx", kernels={}, data=b"", functions=("k",))
    library = read_exported(exported(lib(gpu)), "net.tar")
    with pytest.raises(UnsupportedError, match="the cuda module cannot run on the C runtime"):
        static_modules(library, "ARM", hosted=False)


def test_constants_loaded_at_start_up_are_named() -> None:
    arrays = {"fused_add_const_0": NDArray(np.array([7], np.int8))}
    loader = ConstLoader(
        name="c", arrays=arrays, users={"fused_add": ("fused_add_const_0",)}, imports=(lib(),)
    )
    library = read_exported(exported(loader), "net.tar")
    assert library.constants["fused_add_const_0"].array.tolist() == [7]
    with pytest.raises(UnsupportedError, match=r"lib0\.c: .* fused_add .* fused_add_const_0"):
        static_modules(library, "ARM", hosted=False)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"README": b""}, "README is not part of an exported library"),
        ({"devc_dot_c": b"int a;"}, f"does not define {BLOB_SYMBOL}"),
        ({"devc_dot_c": f"unsigned char {BLOB_SYMBOL}[2] = {{1, x}};".encode()}, "not an array of bytes"),
        ({"devc_dot_c": f"unsigned char {BLOB_SYMBOL}[2] = {{1, 256}};".encode()}, "not an array of bytes"),
        ({"devc_dot_c": f"unsigned char {BLOB_SYMBOL}[2] = {{1, 2}};".encode()}, "the length needs 8 bytes"),
        ({"devc_dot_o": b"no ELF"}, "not an ELF file"),
        ({"lib1_dot_o": b"\x7fELF"}, "not an ELF file"),
        ({"lib0_dot_c": b"\xff"}, "not UTF-8"),
    ],
)
def test_what_is_wrong_is_said(files: dict[str, bytes], reason: str) -> None:
    with pytest.raises(CorruptModelError, match=reason):
        read_exported(exported(lib(), **files), "net.tar")


def test_no_code() -> None:
    with pytest.raises(CorruptModelError, match="no code"):
        read_exported(write_tar({"devc.c": devc(lib())}, 0), "net.tar")


@pytest.mark.models
@pytest.mark.parametrize("name", ["plain_host.tar", "plain_thumb.tar", "plain_host.so"])
def test_plain_libraries_of_tvm(name: str) -> None:
    library = read_exported((folder() / name).read_bytes(), name)
    assert library.functions == ("tvmgen_plain_fused_add_tanh",)
    assert library.constants == {}
    factory = library.factory
    assert factory is not None
    assert factory.graph_json is not None
    assert factory.graph_json == (folder() / f"{name.partition('.')[0]}.graph.json").read_text()
    assert read_graph_json(factory.graph_json).storage_sizes() == {0: 24, 1: 24, 2: 24}


@pytest.mark.models
@pytest.mark.parametrize("name", ["byoc_host", "byoc_thumb"])
def test_constants_of_tvm(name: str) -> None:
    """exp((x + c0 - c1) * c2) with the constants of the blob is what TVM computed."""
    library = read_exported((folder() / f"{name}.tar").read_bytes(), name)
    assert library.functions == ("tvmgen_byoc_ccompiler_main_0", "tvmgen_byoc_fused_exp")
    c0, c1, c2 = (library.constants[f"tvmgen_byoc_ccompiler_main_0_const_{i}"].array for i in range(3))
    cases = np.load(folder() / "byoc.npz")
    expected = np.exp((cases["case0_input0"] + c0 - c1) * c2)
    np.testing.assert_allclose(cases["case0_output0"], expected, rtol=1e-5)
    machine = "ARM" if name == "byoc_thumb" else "X86_64"
    first, _ = static_modules(library, machine, hosted=False)
    assert first.const_vars == tuple(f"__tvm_param__tvmgen_byoc_ccompiler_main_0_const_{i}" for i in range(3))
    assert first.is_crt_exportable
    assert isinstance(first, CSource)
    assert "::" not in first.code
    assert first.code.count("&tvmgen_byoc_ccompiler_main_0_loaded[") == 3


@pytest.mark.models
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("_consts[2]->data", "_consts[3]->data"),
        ("_consts[2]->data", "_consts[n]->data"),
        ("ICHECK(!tvm", "CHECK(!tvm"),
        ("float* buf_0 =", "std::vector<float> more; float* buf_0 ="),
        ("_consts[", "_constants["),
    ],
)
def test_c_with_constants_that_is_not_what_tvm_writes_is_refused(old: str, new: str) -> None:
    files = read_tar((folder() / "byoc_thumb.tar").read_bytes(), "x")
    assert old.encode() in files["lib0.c"]
    files["lib0.c"] = files["lib0.c"].replace(old.encode(), new.encode())
    library = read_exported(write_tar(files, 0), "byoc.tar")
    with pytest.raises(UnsupportedError, match=r"lib0\.c: the c module with tvmgen_byoc_ccompiler_main_0"):
        static_modules(library, "ARM", hosted=False)


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "machine", "hosted", "reason"),
    [
        ("plain_host.tar", "X86_64", True, None),
        ("plain_thumb.tar", "ARM", False, None),
        ("plain_host.so", "X86_64", True, None),
        ("plain_host.tar", "ARM", False, r"lib0\.o is code for X86_64, not for ARM"),
        ("plain_thumb.tar", "X86_64", True, r"lib0\.o is code for ARM, not for X86_64"),
        ("plain_host.so", "X86_64", False, "linked shared library"),
        ("plain_host.so", "ARM", False, "code for X86_64"),
    ],
)
def test_which_library_runs_where(name: str, machine: str, hosted: bool, reason: str | None) -> None:
    library = read_exported((folder() / name).read_bytes(), name)
    if reason is None:
        (module,) = static_modules(library, machine, hosted)
        assert module.functions == ("tvmgen_plain_fused_add_tanh",)
    else:
        with pytest.raises(UnsupportedError, match=reason):
            static_modules(library, machine, hosted)


@pytest.mark.models
def test_a_library_of_tvm_truncated_or_damaged() -> None:
    data = (folder() / "plain_thumb.tar").read_bytes()
    for size in range(0, len(data), 61):
        with pytest.raises(CorruptModelError):
            read_exported(data[:size], "x")
    files = read_tar(data, "x")
    for size in range(0, len(files["devc.o"]) - 1, 37):
        with pytest.raises(CorruptModelError):
            read_exported(write_tar({**files, "devc.o": files["devc.o"][:size]}, 0), "x")


@pytest.mark.models
def test_symbols_of_an_object() -> None:
    with tarfile.open(fileobj=io.BytesIO((folder() / "plain_thumb.tar").read_bytes())) as tar:
        member = tar.extractfile("lib0.o")
        assert member is not None
        elf = read_elf(member.read(), "lib0.o")
    assert (elf.machine, elf.is_shared) == ("ARM", False)
    assert elf.functions == ("tvmgen_plain_fused_add_tanh",)
    assert elf.undefined == ("__aeabi_unwind_cpp_pr0", "expf")
    assert elf.data("__tvm_main__") == b"tvmgen_plain_fused_add_tanh\0"
    assert elf.data("nothing") is None
