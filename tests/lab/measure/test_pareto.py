"""The front of several builds, and its plot."""

from crtgen.lab.measure.pareto import front, plot
from tests.api.report.reports import figures


def test_what_another_beats_is_not_on_the_front() -> None:
    points = [figures("speed", 100, 900), figures("balanced", 200, 900), figures("size", 300, 500)]
    assert front(points) == (True, False, True)
    points[1] = figures("balanced", 200, 900, ram=99)
    assert front(points) == (True, True, True)


def test_equal_points_are_both_on_the_front() -> None:
    assert front([figures("speed", 1, 2), figures("size", 1, 2)]) == (True, True)


def test_the_plot() -> None:
    lines = plot([figures("speed", 1000, 9000), figures("balanced", 1550, 6900), figures("size", 2100, 5000)])
    rows = lines.splitlines()
    assert rows[0] == "instructions"
    assert rows[1] == "2,100 |* size"
    assert rows[12] == "1,000 |" + " " * 55 + "* speed"
    (middle,) = [row for row in rows if "balanced" in row]
    assert middle.index("*") == len("2,100 |") + round(55 * 1900 / 4000)
    assert rows[-1] == "       5,000" + "9,000 bytes of flash".rjust(51)


def test_points_in_one_row_stand_side_by_side() -> None:
    lines = plot([figures("speed", 1000, 5000), figures("size", 1000, 5000)]).splitlines()
    assert lines[12] == "1,000 |* size * speed"
