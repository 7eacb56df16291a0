"""Slots on Zephyr's simulated flash: models follow each other over starts."""

from pathlib import Path

import pytest

from tests.runtime.build import RUNTIME
from tests.support import ROOT
from tests.zephyr.workspace import printed, require_workspace, west_build

pytestmark = [pytest.mark.zephyr, pytest.mark.timeout(600)]


def test_slots_on_the_flash_of_zephyr(tmp_path: Path) -> None:
    workspace = require_workspace()
    if workspace.version >= (3, 7):
        pytest.skip("the board has a simulated flash of its own there; test_sample.py covers the driver")
    cmake = (f"-DRUNTIME={RUNTIME}", f"-DSLOTS={ROOT / 'tests' / 'api' / 'slot'}")
    app = Path(__file__).with_name("flash")
    image = west_build(workspace, "mps2_an385", app, tmp_path / "build", *cmake)
    text = printed(image, "mps2_an385", "done")
    assert text.splitlines()[1:] == ["1", "102", "203", "done"]
