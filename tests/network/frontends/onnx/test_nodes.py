"""The node tests of the onnx package, and its models, by the references of crtgen's operators."""

from collections import Counter

import onnx
import pytest

from tests.network.frontends.onnx.nodes import SETS, found_by_name, page
from tests.support import ROOT

PASSED = 1750
"""At least so many node tests; of 1,884 in version 1.23 of the package."""

MODELS = {"simple": 7, "pytorch-operator": 30, "pytorch-converted": 82}
"""At least so many models of each set."""


def test_each_passes_or_is_refused_with_a_reason() -> None:
    found = list(found_by_name().values())
    failed = [f"{one.test.name}: {one.reason}" for one in found if one.kind == "failed"]
    assert failed == []
    assert all(one.reason for one in found if one.kind == "refused")
    passed = Counter(one.test.operator for one in found if one.kind == "passed")
    assert sum(count for name, count in passed.items() if name not in SETS) >= PASSED
    assert {name: count for name, count in MODELS.items() if passed[name] < count} == {}


def test_the_page_is_up_to_date() -> None:
    """If this fails: ``python -m tests.network.frontends.onnx.nodes --page``."""
    text = (ROOT / "docs" / "onnx.md").read_text()
    if f"onnx package {onnx.__version__}:" not in text:
        pytest.skip(f"the page is of another version than {onnx.__version__}")
    assert text == page()
