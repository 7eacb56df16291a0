"""Fixtures that every test may use, and the compiler cache that the builds of all tests share."""

import gc
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from crtgen.base.errors import UsageError
from crtgen.compiler.byoc import CmsisNn
from crtgen.firmware.builder.driver import BuildRun
from tests.vela_server import VelaServer

if find_spec("cmake"):  # its program in the package, not a script of Python that starts that
    from cmake import CMAKE_BIN_DIR

    os.environ["PATH"] = os.pathsep.join([CMAKE_BIN_DIR, os.environ["PATH"]])
if shutil.which("ccache"):
    os.environ.setdefault("CMAKE_C_COMPILER_LAUNCHER", "ccache")
    place = ["ccache", "--get-config", "cache_dir"]  # for tests with another home, too
    os.environ.setdefault("CCACHE_DIR", subprocess.run(place, capture_output=True, text=True).stdout.strip())
    os.environ.setdefault("CCACHE_BASEDIR", tempfile.gettempdir())
    os.environ.setdefault("CCACHE_NOHASHDIR", "1")

settings.register_profile("crtgen", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("crtgen")  # no test depends on an idle machine


def pytest_collection_finish() -> None:
    """What is there by now stays to the end: to look for garbage among it took a seventh of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(autouse=True)
def _no_boards_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A board that a test names by its file is known for as long as that test runs."""
    monkeypatch.setattr("crtgen.boards.known._named", {})


@pytest.fixture(autouse=True)
def _nothing_allowed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has allowed anything, nothing was built before, and no folder is named."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.getbasetemp() / "allowed" / uuid4().hex))
    images = tmp_path_factory.getbasetemp() / "images" / uuid4().hex
    monkeypatch.setattr("crtgen.cli.kept._images", lambda: images)
    monkeypatch.delenv("CRTGEN_TRUST", raising=False)
    monkeypatch.setattr("crtgen.base.folder._named", None)


@pytest.fixture(autouse=True, scope="session")
def _vela_is_started_once() -> Iterator[None]:
    """Each process of the tests has one of Vela, if there is one."""
    server, patch = VelaServer(), pytest.MonkeyPatch()
    patch.setattr("crtgen.compiler.byoc.ethos_u.vela.run_to_end", server.run)
    yield
    patch.undo()
    server.end()


_VARIABLES = ("PATH", "CC", "CFLAGS", "ASFLAGS", "LDFLAGS")
_make = BuildRun.make


@pytest.fixture(autouse=True)
def _equal_projects_are_built_once(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another test built of the same files, with the same compiler, is copied: half of all builds."""
    base = tmp_path_factory.getbasetemp()
    builds = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "builds"

    def make(run: BuildRun, jobs: int) -> None:
        known = builds / _digest(run)
        if known.is_dir() and not run.is_configured():
            shutil.copytree(known, run.build, dirs_exist_ok=True)
            return
        _make(run, jobs)
        if not known.exists():
            own = builds / uuid4().hex
            shutil.copytree(run.build, own)
            try:
                own.rename(known)
            except OSError:  # another process was faster
                shutil.rmtree(own)

    monkeypatch.setattr(BuildRun, "make", make)


def _digest(run: BuildRun) -> str:
    """Of all that a build depends on."""
    variables = {k: v for k, v in run.environment().items() if k in _VARIABLES or k.startswith("CMAKE_")}
    found = hashlib.sha256(repr((run.toolchain, run.ninja, sorted(variables.items()))).encode())
    for path in sorted(p for p in run.root.rglob("*") if p.is_file() and run.build not in p.parents):
        found.update(f"{path.relative_to(run.root)}\0{path.stat().st_size}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


@pytest.fixture
def compiled_anew(_equal_projects_are_built_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that compare what a compiler makes twice, or look at a build."""
    monkeypatch.setenv("CCACHE_DISABLE", "1")
    monkeypatch.setattr(BuildRun, "make", _make)


@pytest.fixture
def cmsis_nn() -> CmsisNn:
    """The code generator, where a copy of CMSIS-NN's sources is at hand."""
    try:
        return CmsisNn()
    except UsageError:
        pytest.skip("CMSIS-NN was not tested: its sources are not there, set CMSIS_NN_PATH")
