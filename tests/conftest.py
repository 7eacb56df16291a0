"""Fixtures that every test may use."""

import pytest

from crtgen.byoc import CmsisNn
from crtgen.errors import UsageError


@pytest.fixture
def cmsis_nn() -> CmsisNn:
    """The code generator, where a copy of CMSIS-NN's sources is at hand."""
    try:
        return CmsisNn()
    except UsageError:
        pytest.skip("CMSIS-NN was not tested: its sources are not there, set CMSIS_NN_PATH")
