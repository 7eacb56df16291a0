"""Archives of our own models: reproducible, true to the image, and read back as they were."""

import hashlib
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crtgen import api
from crtgen.base.errors import CorruptModelError, UnsupportedError, UsageError
from crtgen.base.resources import runtime_dir
from crtgen.firmware.library.archive import read_tar, write_tar
from crtgen.firmware.library.mlf import read_archive, write_archive
from crtgen.lab.measure.verification import verify
from crtgen.network import frontends
from tests.support import ROOT, compile_each, model_path, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"
NAMES = ("kws_int8", "ad01_int8")
GUARDS = 2 * 16
"""Bytes of the guards around the arena of a server's models."""


@pytest.fixture(autouse=True)
def _epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def digits(executor: str = "aot", board: str = "mps2_an386") -> api.Compiled:
    return api.compile([api.load(DIGITS)], board, executor=executor)


def test_two_exports_are_equal_and_have_the_time_of_the_environment() -> None:
    one, two = digits().archive(), digits().archive()
    assert hashlib.sha256(one).digest() == hashlib.sha256(two).digest()
    metadata = json.loads(read_tar(one, "x")["metadata.json"])
    assert metadata["version"] == 7
    assert metadata["modules"]["digits"]["export_datetime"] == "2023-11-14 22:13:20Z"
    assert metadata["modules"]["digits"]["target"] == ["c -mcpu=cortex-m4"]


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_an_archive_gives_the_modules_that_went_in(tmp_path: Path, executor: str) -> None:
    compiled = digits(executor)
    path = tmp_path / "digits.tar"
    path.write_bytes(compiled.archive())
    again = api.compile([api.load(path, trust=True)], "mps2_an386")
    ((mine,), (theirs,)) = compiled.modules, again.modules
    assert dict(theirs.files) == dict(mine.files)
    assert (theirs.info, theirs.functions, theirs.params) == (mine.info, mine.functions, mine.params)
    assert again.generate().project.digest == compiled.generate().project.digest
    data = path.read_bytes()
    assert write_archive(read_archive(data, "x")) == data
    assert json.loads(read_tar(data, "x")["metadata.json"])["modules"]["digits"]["executors"] == [executor]


MAIN = """
#include <tvm/runtime/c_runtime_api.h>
#include <tvm/runtime/crt/module.h>
void TVMAPISetLastError(const char *text) { (void)text; }
const TVMModule *TVMSystemLibEntryPoint(void);
int main(void) { return TVMSystemLibEntryPoint()->registry->names[0] == 0; }
"""


@pytest.mark.cc
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_every_source_compiles_with_the_archive_and_headers_of_tvm_alone(
    tmp_path: Path, executor: str
) -> None:
    """Linked, they need one function of TVM's API for C; the metadata module of both models is among them."""
    gcc = require_tool("gcc")
    graph = frontends.load(DIGITS)
    models = [api.Model(replace(graph, name=name)) for name in ("digits", "other")]
    archive = api.compile(models, "host", executor=executor).archive()
    for path, data in read_tar(archive, "x").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    theirs, host = tmp_path / "theirs", tmp_path / "codegen" / "host"
    for folder in ("tvm", "dlpack"):
        shutil.copytree(runtime_dir() / "include" / folder, theirs / folder)
    (tmp_path / "main.c").write_text(MAIN)
    sources = [*sorted((host / "src").glob("*.c")), tmp_path / "main.c"]
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{host / 'include'}", f"-I{theirs}"]
    output = compile_each([gcc, *strict], sources, tmp_path / "program", ["-lm"])
    assert subprocess.run([output], timeout=60, check=False).returncode == 0


def test_a_core_that_lacks_something_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "digits.tar"
    path.write_bytes(digits().archive())
    with pytest.raises(UnsupportedError, match="compiled for cortex-m4: cortex-m3 lacks dsp"):
        api.load(path, trust=True).compile("mps2_an385")
    path.write_bytes(digits(board="mps2_an385").archive())
    assert api.load(path, trust=True).compile("mps3_an547").modules[0].info.name == "digits"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (b"{", "Invalid JSON"),
        (b"{}", "Field required"),
        (None, "does not fit the code"),
        (b"format 2", "the archive has format 2, this crtgen reads format 1"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, change: bytes | None, reason: str) -> None:
    files = read_tar(digits().archive(), "x")
    if change is None:
        files["codegen/host/src/digits_lib9.c"] = b""
    elif change == b"format 2":
        own = json.loads(files["crtgen/digits.json"])
        files["crtgen/digits.json"] = json.dumps({**own, "format": 2}).encode()
    else:
        files["crtgen/digits.json"] = change
    path = tmp_path / "x.tar"
    path.write_bytes(write_tar(files, 0))
    with pytest.raises(CorruptModelError, match=reason):
        api.load(path, trust=True).compile("mps2_an386")


def test_code_is_not_archived_again(tmp_path: Path) -> None:
    path = tmp_path / "digits.tar"
    path.write_bytes(digits().archive())
    with pytest.raises(UsageError, match="cannot be archived again"):
        api.load(path, trust=True).compile("mps2_an386").archive()


@pytest.fixture(scope="module")
def two_models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An archive of two reference models for the Cortex-M4, and the cases of both."""
    folder = tmp_path_factory.mktemp("two")
    compiled = api.compile([api.load(model_path(name)) for name in NAMES], "mps2_an386")
    (folder / "two.tar").write_bytes(compiled.archive())
    cases = {
        f"{name}.{key}": array
        for name in NAMES
        for key, array in np.load(model_path(name).with_suffix(".npz")).items()
        if key.startswith(("case0_", "case1_"))
    }
    np.savez(folder / "two.npz", **cases)
    return folder / "two.tar", folder / "two.npz"


@pytest.mark.models
@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547"])
def test_two_models_in_one_firmware(two_models: tuple[Path, Path], board: str) -> None:
    """All cases of both in one session; the sizes in the metadata are those of the ELF."""
    require_tool("qemu-system-arm")
    path, cases = two_models
    image = api.load(path, trust=True).compile(board).generate().build()
    with image.run() as session:
        verdicts = verify(session, path, cases)
    assert [(v.model, v.difference) for v in verdicts] == [(n, None) for n in sorted(NAMES) for _ in range(2)]
    models = json.loads(read_tar(path.read_bytes(), "x")["metadata.json"])["modules"]
    mains = {name: m["memory"]["functions"]["main"][0] for name, m in models.items()}
    sizes = {s.name: s.size for s in image.size.sizes.symbols}
    assert sizes["crt_shared_arena"] == GUARDS + max(m["workspace_size_bytes"] for m in mains.values())
    for name, main in mains.items():
        linked = sum(size for symbol, size in sizes.items() if symbol.startswith(f"__tvm_param__{name}_"))
        assert main["constants_size_bytes"] == linked
        assert main["io_size_bytes"] == sum(
            t["size"] for k in ("inputs", "outputs") for t in main[k].values()
        )


@pytest.mark.models
@pytest.mark.qemu
def test_each_model_has_its_own_arena_if_so_wished(two_models: tuple[Path, Path]) -> None:
    require_tool("qemu-system-arm")
    path, cases = two_models
    compiled = api.load(path, trust=True).compile("mps2_an386")
    image = compiled.generate(share_arena=False).build()
    arenas = {s.name: s.size for s in image.size.sizes.symbols if s.name.endswith("arena")}
    assert arenas == {f"{m.info.name}_arena": GUARDS + m.info.arena for m in compiled.modules}
    with image.run() as session:
        assert not any(v.difference for v in verify(session, path, cases))
        x = np.load(cases)
        with session.client.aot_executor(NAMES[0]) as one, session.client.aot_executor(NAMES[1]) as other:
            for executor, name in ((one, NAMES[0]), (other, NAMES[1])):
                executor.set_input(0, x[f"{name}.case0_input0"])
            for executor in (one, other):
                executor.run()
            for executor, name in ((one, NAMES[0]), (other, NAMES[1])):
                np.testing.assert_array_equal(executor.get_output(0), x[f"{name}.case0_output0"])


def test_names_that_clash_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two models are called digits"):
        api.compile([api.load(DIGITS), api.load(DIGITS)], "mps2_an386")
    shutil.copy(DIGITS, tmp_path / "Digits.tflite")
    with pytest.raises(UsageError, match="two models are called digits"):  # one file on macOS and Windows
        api.compile([api.load(DIGITS), api.load(tmp_path / "Digits.tflite")], "mps2_an386")
    compiled = digits()
    with pytest.raises(UsageError, match="occurs 2 times"):
        replace(compiled, parts=compiled.parts * 2, plans=compiled.plans * 2).archive()
