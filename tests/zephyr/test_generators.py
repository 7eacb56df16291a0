"""External code generators in applications of Zephyr, on QEMU."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from crtgen import api
from crtgen.api import Model
from crtgen.compiler.byoc import CmsisNn
from crtgen.firmware.builder import ZephyrWorkspace
from crtgen.lab.measure.verification import verify
from tests.compiler.byoc.accelerator import accelerators
from tests.compiler.byoc.graphs import inputs_of, numpy_result
from tests.compiler.byoc.test_devices import network
from tests.support import ROOT, model_path, models_dir
from tests.zephyr.test_workspace import reference, write_application
from tests.zephyr.workspace import printed, require_workspace, west_build

pytestmark = [pytest.mark.zephyr, pytest.mark.models, pytest.mark.timeout(1200)]

WORKSPACE = require_workspace(module=True)


@pytest.fixture
def workspace() -> ZephyrWorkspace:
    return WORKSPACE


@pytest.mark.parametrize(
    "board",
    [*(pytest.param(b, marks=pytest.mark.matrix) for b in ("mps2_an385", "mps2_an521")), "mps3_an547"],
)
def test_cmsis_nn(cmsis_nn: CmsisNn, workspace: ZephyrWorkspace, board: str) -> None:
    path = model_path("kws_int8")
    compiled = api.compile([api.load(path, trust=True)], board, generators=[cmsis_nn], fallback=True)
    with compiled.generate(platform="zephyr").build().run() as session:
        verdicts = verify(session, path, path.with_suffix(".npz"))
    assert len(verdicts) >= 8
    assert not any(v.difference for v in verdicts)


def test_an_archive_that_calls_cmsis_nn(cmsis_nn: CmsisNn, workspace: ZephyrWorkspace) -> None:
    path = models_dir().parent / "mlf" / "kws_cmsisnn_m4_aot_usmp.tar"
    image = (
        api.load(path, trust=True)
        .compile("mps2_an521", generators=[cmsis_nn])
        .generate(platform="zephyr")
        .build()
    )
    with image.run() as session:
        verdicts = verify(session, path, path.with_suffix(".npz"))
    assert [v.difference for v in verdicts] == [None]


def test_devices(workspace: ZephyrWorkspace) -> None:
    graph = network()
    compiled = api.compile([Model(graph)], "mps2_an385", generators=accelerators("mul", "add", "sub"))
    with compiled.generate(platform="zephyr").build().run() as session:
        inputs = inputs_of(graph, 1)
        np.testing.assert_array_equal(session.infer(*inputs)[0], numpy_result(graph, inputs)[0])


def test_crtgen_add_model(cmsis_nn: CmsisNn, workspace: ZephyrWorkspace, tmp_path: Path) -> None:
    """The path of the sources is relative to the application."""
    source = tmp_path / "app"
    call = "crtgen_add_model(app models/kws.tflite models/sine.tflite CMSIS_NN cmsis-nn FALLBACK)"
    write_application(source, call)
    for folder in ("Include", "Source"):
        shutil.copytree(cmsis_nn.sources.root / folder, source / "cmsis-nn" / folder)
    elf = west_build(workspace, "mps2_an521", source, tmp_path / "b", f"-DZEPHYR_EXTRA_MODULES={ROOT}")
    expected = " ".join(map(str, reference("kws_int8", 1, 49, 10, 1)))
    assert f"{expected} sine" in printed(elf, "mps2_an521", "sine")
    assert b"arm_convolve_wrapper_s8" in elf.read_bytes()
