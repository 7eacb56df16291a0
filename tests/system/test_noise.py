"""A model is verified over a line that flips, drops and doubles bytes: nothing is wrong, and it ends."""

from collections.abc import Mapping, Sequence

import pytest

import crtgen
from crtgen.api import Image
from crtgen.boards import find_board
from crtgen.device.rpc import SIMULATOR, Client
from crtgen.device.run import start_device
from crtgen.device.session import Session
from crtgen.lab.measure.cases import ReferenceRun
from crtgen.lab.measure.verification import cases_of, verify_cases
from tests.noise import KINDS, Noisy
from tests.support import ROOT, require_tool

pytestmark = pytest.mark.cc

MODEL = ROOT / "demo" / "digits.tflite"
CASES = 200

Built = tuple[Image, Mapping[str, Sequence[ReferenceRun]]]


@pytest.fixture(scope="module")
def built() -> Built:
    """The demonstration's server for this computer, and cases for it."""
    require_tool("cc", "apt install gcc")
    image = crtgen.load(MODEL).compile("host").generate("server").build()
    return image, cases_of(image.built.manifest.models, MODEL, count=CASES)


@pytest.mark.parametrize("kind", KINDS)
def test_verify_over_noise(built: Built, kind: str) -> None:
    image, cases = built
    device = start_device(image.path, find_board("host"))
    line = Noisy(device.stream, kind)
    with Session(image.built, device, Client(line, timeouts=SIMULATOR), counting=False) as session:
        line.rate = 1e-4
        verdicts = verify_cases(session, cases)
        line.rate = 0
    assert len(verdicts) == CASES
    assert [v for v in verdicts if v.difference] == []
    assert line.damaged > 10
