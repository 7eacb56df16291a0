"""Fixtures that every test may use, and the compiler cache that the builds of all tests share."""

import gc
import os
import shutil
import tempfile
from importlib.util import find_spec
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from crtgen.byoc import CmsisNn
from crtgen.errors import UsageError

if find_spec("cmake"):  # its program in the package, not a script of Python that starts that
    from cmake import CMAKE_BIN_DIR

    os.environ["PATH"] = os.pathsep.join([CMAKE_BIN_DIR, os.environ["PATH"]])
if shutil.which("ccache"):
    os.environ.setdefault("CMAKE_C_COMPILER_LAUNCHER", "ccache")
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
    monkeypatch.setattr("crtgen.folder._named", None)


@pytest.fixture
def compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that compare what a compiler makes twice."""
    monkeypatch.setenv("CCACHE_DISABLE", "1")


@pytest.fixture
def cmsis_nn() -> CmsisNn:
    """The code generator, where a copy of CMSIS-NN's sources is at hand."""
    try:
        return CmsisNn()
    except UsageError:
        pytest.skip("CMSIS-NN was not tested: its sources are not there, set CMSIS_NN_PATH")
