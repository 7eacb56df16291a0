"""Every archive and library of TVM: it builds, runs and gives the outputs beside it, or is refused."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crtgen import api
from crtgen.base.errors import MismatchError, ModelError, RemoteError, UnsupportedError, UsageError
from crtgen.boards import find_board
from crtgen.compiler.codegen import Registry
from crtgen.firmware.library import Package, load_package, read_params
from crtgen.firmware.library.archive import read_tar, write_tar
from crtgen.firmware.library.exported import read_exported
from crtgen.firmware.library.tree import check_crt_exportable, check_symbols, walk
from crtgen.lab.measure.verification import verify
from tests.support import models_dir, nightly, require_tool

pytestmark = pytest.mark.models

SMALL = (
    "synth_add_c_aot_packed",
    "synth_add_c_aot_unpacked",
    "synth_add_c_graph",
    "synth_add_c_graph_link",
    "synth_byoc_c_aot_unpacked",
    "synth_byoc_c_graph",
    "synth_multiio_c_aot_unpacked",
    "synth_multiio_c_graph",
    "kws_c_aot_packed_syslib",
    "kws_c_aot_unpacked_usmp",
    "kws_c_graph_link",
    "kws_c_graph_nolink",
)
LARGE = (
    "ad01_c_aot_unpacked",
    "ad01_c_graph_link",
    "multi_kws_ad01_c_aot_unpacked",
    "multi_kws_ad01_c_graph",
    "multi_kwsaot_ad01graph_c",
)


@pytest.fixture(autouse=True)
def _errors_of_gcc_14(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older compilers warn of what GCC 14 refuses."""
    refused = (
        "incompatible-pointer-types",
        "int-conversion",
        "implicit-function-declaration",
        "implicit-int",
    )
    monkeypatch.setenv("CFLAGS", " ".join(f"-Werror={name}" for name in refused))


def mlf(name: str) -> Path:
    return models_dir().parent / "mlf" / name


def exported(name: str) -> Path:
    return models_dir().parent / "exported" / name


def image_of(path: Path, board: str) -> api.Image:
    require_tool("gcc" if board == "host" else "qemu-system-arm")
    return api.compile([api.load(path, trust=True)], board).generate().build()


def check(path: Path, board: str, expect: Path) -> api.Image:
    """All models of a file, in one session."""
    image = image_of(path, board)
    with image.run() as session:
        verdicts = verify(session, path, expect)
        names = [info.name for info in session.models]
    assert [v.model for v in verdicts] == names
    assert [str(v.difference) for v in verdicts if v.difference] == []
    assert len(names) == (2 if path.name.startswith("multi") else 1)
    return image


_BY_LLVM = "kws_llvmthumbcpu_graph_link"
_IN_CI = (
    "kws_c_aot_unpacked_usmp",
    "multi_kwsaot_ad01graph_c",
    _BY_LLVM,
)
"""Each executor and compiler on a board; the host runs all that are small."""


@pytest.mark.cc
@pytest.mark.parametrize("name", SMALL)
def test_on_the_host(name: str) -> None:
    check(mlf(f"{name}.tar"), "host", mlf(f"{name}.npz"))


@pytest.mark.qemu
@pytest.mark.parametrize("name", [n if n in _IN_CI else nightly(n) for n in (*SMALL, *LARGE, _BY_LLVM)])
def test_on_cortex_m4(name: str) -> None:
    """As TVM computed it; with no heap, and no JSON left."""
    image = check(mlf(f"{name}.tar"), "mps2_an386", mlf(f"{name}.npz"))
    assert {"malloc", "_malloc_r", "sbrk"}.isdisjoint(s.name for s in image.size.sizes.symbols)
    assert b"storage_id" not in image.path.read_bytes()
    assert [s.name for s in image.size.sizes.symbols if s.name.endswith("arena")] == (
        ["crt_shared_arena"] if name.startswith("multi") else [f"{image.built.manifest.models[0].name}_arena"]
    )


@pytest.mark.parametrize(
    ("name", "board", "reason"),
    [
        (
            "kws_llvmthumb_graph_link",
            "mps2_an386",
            "nothing defines: gemm_1x1x1_reset_PRQUCUNJ, gemm_1x1x1_update_PRQUCUNJ",
        ),
        (
            "kws_cmsisnn_m4_aot_usmp",
            "mps2_an386",
            "needs the sources of cmsis-nn: arm_nnfunctions.h, arm_nn_types.h, arm_nn_math_types.h",
        ),
        ("kws_llvmthumbcpu_graph_link", "host", r"kws_lib1\.o is code for ARM"),
        ("kws_llvmthumbcpu_graph_link", "mps2_an385", r"kws_lib1\.o needs a floating-point unit"),
    ],
)
def test_refused(name: str, board: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CMSIS_NN_PATH", raising=False)
    monkeypatch.setenv("ZEPHYR_BASE", "/nowhere/zephyr")
    with pytest.raises(ModelError, match=reason):
        api.compile([api.load(mlf(f"{name}.tar"), trust=True)], board).generate()


@pytest.mark.cc
def test_a_wrong_output_is_found(tmp_path: Path) -> None:
    cases = dict(np.load(mlf("multi_kws_ad01_c_graph.npz")))
    cases["kws.case0_output0"] = cases["kws.case0_output0"] + np.int8(1)
    np.savez(tmp_path / "wrong.npz", **cases)
    path = mlf("multi_kws_ad01_c_graph.tar")
    with image_of(path, "host").run() as session:
        verdicts = verify(session, path, tmp_path / "wrong.npz")
        for code in (path, tmp_path):
            with pytest.raises(UsageError, match=f"{code}: code has no reference"):
                verify(session, code)
    assert [bool(v.difference) for v in verdicts] == [False, True]
    assert MismatchError.exit_code == 8


@pytest.mark.qemu
def test_models_in_turn_with_one_arena() -> None:
    """Interleaved, and with the outputs of the first read after the second has its inputs: refused."""
    path = mlf("multi_kws_ad01_c_graph.tar")
    cases = np.load(path.with_suffix(".npz"))
    with image_of(path, "mps2_an386").run() as session:
        for model in ("kws", "ad01", "kws", "ad01"):
            (y,) = session.infer(cases[f"{model}.case0_input0"], model=model)
            np.testing.assert_array_equal(y, cases[f"{model}.case0_output0"])
        with session.client.aot_executor("kws") as kws, session.client.aot_executor("ad01") as ad01:
            kws.set_input(0, cases["kws.case0_input0"])
            kws.run()
            ad01.set_input(0, cases["ad01.case0_input0"])
            with pytest.raises(RemoteError, match="the outputs of kws are void"):
                kws.get_output(0)
            with pytest.raises(RemoteError, match="the inputs of kws are not set"):
                kws.run()
            ad01.run()
            np.testing.assert_array_equal(ad01.get_output(0), cases["ad01.case0_output0"])


@pytest.mark.qemu
def test_operators_are_functions_and_models() -> None:
    """int8 a[2] + b[1]: by name over the RPC, and as a model of one call."""
    path = mlf("operator_add_c.tar")
    a, b = np.array([5, -7], np.int8), np.array([100], np.int8)
    image = image_of(path, "mps2_an386")
    assert image.size.stack is not None
    assert "add" in {frame.name for frame in image.size.stack.frames}
    with image.run() as session:
        assert [i.shape for i in session.model().inputs] == [(2,), (1,)]
        assert session.infer(a, b)[0].tolist() == [105, 93]
        function = session.client.system_lib().function("add")
        with session.client.allocate((2,), np.int8) as out:
            assert function(a, b, out) is None
            assert out.read().tolist() == [105, 93]


def test_the_registry_is_that_of_tvm() -> None:
    """This archive has the one that TVM made, with its name table as a string of C."""
    path = mlf("kws_c_aot_packed_syslib.tar")
    text = read_tar(path.read_bytes(), "x")["codegen/host/src/kws_lib0.c"].decode()
    (table,) = re.findall(r'"\\021\\000(.*)\\000"', text)
    theirs = table.replace("\\000", " ").split()
    (module,) = api.load(path, trust=True).compile("mps2_an386").modules
    ours = [f.name for f in Registry.of([module]).functions]
    assert ours == [*theirs, "get_c_metadata", "__nop"]
    assert theirs[-1] == "tvmgen_kws_get_c_metadata"
    assert [f.role for f in module.functions] == ["run", *["own"] * 15]


def test_module_trees() -> None:
    """What calls the operators imports the modules of the archive; loaded constants are linked."""
    (tree,) = api.load(mlf("kws_llvmthumbcpu_graph_link.tar")).compile("mps2_an386").trees
    assert [(m.name, m.key, str(m.context)) for m in walk(tree)] == [
        ("kws", "c", "cpu:0"),
        ("kws_lib1.o", "static_library", "cpu:0"),
    ]
    assert len(tree.imports[0].get_func_names()) == 14
    assert tree.get_func_names() == ()
    (tree,) = api.load(exported("byoc_thumb.tar")).compile("mps2_an386").trees
    check_symbols(tree)
    check_crt_exportable(walk(tree))
    found = [(m.name, m.key, m.get_func_names(), len(m.get_const_vars())) for m in tree.imports]
    assert found == [
        ("lib0.c", "c", ("tvmgen_byoc_ccompiler_main_0",), 3),
        ("lib1.o", "static_library", ("tvmgen_byoc_fused_exp",), 0),
    ]


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("name", "first"), [("synth_byoc_c_graph", []), ("synth_byoc_c_aot_unpacked", ["tvmgen_byoc_run"])]
)
def test_subgraphs_of_an_external_generator_are_functions(name: str, first: list[str]) -> None:
    """(x + a - b) * c by TVM's ccompiler, called by name, with the buffers that it allocates.

    Only a graph says what they take; without one they cannot be called from outside.
    """
    compiled = api.compile([api.load(mlf(f"{name}.tar"), trust=True)], "mps2_an386")
    subgraphs = ["tvmgen_byoc_ccompiler_main_0", "tvmgen_byoc_ccompiler_main_4"]
    names = [f.name for f in Registry.of(compiled.modules).functions]
    assert names[: len(first) + 2] == [*first, *subgraphs]
    random = np.random.default_rng(1)
    x, a, b, c = (random.uniform(-2, 2, (10, 10)).astype(np.float32) for _ in range(4))
    require_tool("qemu-system-arm")
    with compiled.generate().build().run(counting=False) as session:
        for function in map(session.client.system_lib().function, subgraphs):
            with session.client.allocate(x.shape, x.dtype) as y:
                if first:
                    with pytest.raises(RemoteError, match="its arguments are not known"):
                        function(x, a, b, c, y)
                    continue
                function(x, a, b, c, y)
                np.testing.assert_array_equal(y.read(), (x + a - b) * c)


@pytest.mark.cc
@pytest.mark.parametrize("name", ["plain_host.tar", "plain_host.so", "byoc_host.tar"])
def test_exported_libraries_on_the_host(name: str) -> None:
    image = check(exported(name), "host", exported(f"{name.partition('_')[0]}.npz"))
    assert b"__tvm_dev_mblob" not in image.path.read_bytes()


@pytest.mark.qemu
@pytest.mark.parametrize("name", ["plain", "byoc"])
def test_an_exported_library_on_cortex_m4(name: str) -> None:
    """``byoc`` has a module of a code generator whose constants are in the blob: they become const data."""
    image = check(exported(f"{name}_thumb.tar"), "mps2_an386", exported(f"{name}.npz"))
    assert b"__tvm_dev_mblob" not in image.path.read_bytes()
    symbols = {s.name: s for s in image.size.sizes.symbols}
    assert {"malloc", "_malloc_r", "sbrk"}.isdisjoint(symbols)
    if name == "byoc":
        consts = [symbols[f"__tvm_param__tvmgen_byoc_ccompiler_main_0_const_{i}"] for i in range(3)]
        assert [(c.section, c.size) for c in consts] == [("rodata", 400)] * 3


@pytest.mark.parametrize(
    ("name", "board", "reason"),
    [
        ("plain_host.tar", "mps2_an386", r"lib0\.o is code for X86_64, not for ARM"),
        ("plain_thumb.tar", "host", r"lib0\.o is code for ARM, not for X86_64"),
        ("plain_host.so", "mps2_an386", "code for X86_64"),
        ("byoc_host.tar", "mps2_an386", r"lib1\.o is code for X86_64, not for ARM"),
        ("byoc_thumb.tar", "mps2_an385", r"lib1\.o needs a floating-point unit"),
    ],
)
def test_exported_libraries_that_are_refused(name: str, board: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        api.compile([api.load(exported(name))], board).generate()


def test_graph_and_parameters_are_found_beside_a_library_or_given(tmp_path: Path) -> None:
    files = {suffix: exported(f"plain_thumb.{suffix}") for suffix in ("tar", "params", "graph.json")}
    params = read_params(files["params"].read_bytes())
    package = load_package(files["tar"])
    assert list(package.params) == list(params)
    assert package.graph_json == files["graph.json"].read_text()
    alone = tmp_path / "x.tar"
    alone.write_bytes(files["tar"].read_bytes())
    assert load_package(alone).params == {}
    library = read_exported(alone.read_bytes(), "x.tar")
    without = Package("x", "x.tar", replace(library, root=library.root.imports[0]), "")
    with pytest.raises(UnsupportedError, match=r"x\.tar: the package holds no graph") as caught:
        without.parts(find_board("mps2_an386").core)
    assert caught.value.hint == "name the file with the graph JSON: --graph-json"
    given = load_package(alone, files["params"], files["graph.json"])
    assert list(given.params) == list(params)
    assert given.graph_json == package.graph_json
    with pytest.raises(UsageError, match="an archive has its own graph"):
        load_package(mlf("synth_add_c_graph.tar"), files["params"])
    with pytest.raises(UsageError, match="belong to an exported library"):
        api.load(models_dir() / "kws_int8.tflite", params=files["params"])


@pytest.mark.cc
def test_the_operator_that_fails_is_named(tmp_path: Path) -> None:
    files = read_tar(mlf("synth_multiio_c_graph.tar").read_bytes(), "x")
    (name,) = (n for n in files if n.endswith(".c") and b"for (" in files[n])
    before, last, after = files[name].rpartition(b"return 0;")
    files[name] = before + b"return -5;" + after
    assert last
    path = tmp_path / "bad.tar"
    path.write_bytes(write_tar(files, 0))
    with image_of(path, "host").run() as session:
        inputs = [np.zeros(i.shape, i.dtype.numpy) for i in session.model().inputs]
        with pytest.raises(RemoteError, match=r"run of multiio failed with code -5: tvmgen_multiio_\w+$"):
            session.infer(*inputs)
