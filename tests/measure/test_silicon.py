"""How far modelled times are from silicon: the published points, and the ranges that follow from them."""

import re

import pytest

from crtgen.boards import find_core, silicon_range
from tests.support import ROOT

_CORE = re.compile(r"\b(M4|M33|M55|M85)\b")


def _points() -> list[tuple[str, float]]:
    """Each point of the table in docs/performance.md: the core, and measured by modelled."""
    found, core = [], ""
    for line in (ROOT / "docs" / "performance.md").read_text().split("Beside silicon, ")[1].splitlines()[5:]:
        if not line.startswith("|"):
            break
        chip, *_, measured, modelled = (cell.strip() for cell in line.strip("|").split("|"))
        if chip:
            core = "cortex-" + _CORE.findall(chip)[0].lower()
        found.append((core, float(measured) / float(modelled)))
    return found


def test_ranges_hold_the_points_and_little_more() -> None:
    points = _points()
    assert len(points) == 18
    for core in sorted({core for core, _ in points}):
        least, greatest = silicon_range(find_core(core))
        seen = [ratio for of, ratio in points if of == core]
        assert least <= min(seen) <= least + 0.011
        assert greatest - 0.011 <= max(seen) <= greatest


@pytest.mark.parametrize(("core", "expected"), [("cortex-m4+nofp", (1.02, 1.07)), ("cortex-m3", (0.8, 1.2))])
def test_cores_with_other_names_and_without_points(core: str, expected: tuple[float, float]) -> None:
    assert silicon_range(find_core(core)) == expected
