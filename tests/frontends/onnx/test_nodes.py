"""The node tests of the onnx package by the references of crtgen's operators."""

from collections import Counter

from tests.frontends.onnx.nodes import outcomes

PASSED = 1360
"""At least so many; of 1,884 in version 1.23 of the package."""


def test_each_passes_or_is_refused_with_a_reason() -> None:
    found = list(outcomes())
    failed = [f"{one.test.name}: {one.reason}" for one in found if one.kind == "failed"]
    assert failed == []
    assert all(one.reason for one in found if one.kind == "refused")
    assert Counter(one.kind for one in found)["passed"] >= PASSED
