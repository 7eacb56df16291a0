"""The page of a sweep."""

import re
from pathlib import Path

import pytest

from crtgen.lab.html import render_sweep
from crtgen.lab.sweep.changes import compare
from crtgen.lab.sweep.store import SweepInfo
from tests.lab.browser import Browser, check_page
from tests.lab.sweep.test_changes import other, row

pytest.importorskip("vl_convert")

NOW, BEFORE = (
    SweepInfo(2, "sweep.toml", "2026-02-02T10:00:00"),
    SweepInfo(1, "sweep.toml", "2026-02-01T10:00:00"),
)
ROWS = [
    other(code="x", project="q"),
    row("a", label="size", figures={"instructions": 4_000_000, "flash_bytes": 400, "ram_bytes": 10}),
    row("a", label="bad", figures={"instructions": 4_000_001, "flash_bytes": 400, "ram_bytes": 10}),
    row("a", board="pico", figures={"seconds": 0.0125, "flash_bytes": 700}),
    row("b", state="failed", error="BuildError", message="it <failed>", log="a & b", figures={}),
    row("c", state="waiting", figures={}),
]


def page() -> str:
    before = [row(figures={"instructions": 2_000_000, "flash_bytes": 500}), *ROWS[1:]]
    return render_sweep(NOW, ROWS, BEFORE, compare(before, ROWS))


def test_figures_and_colours() -> None:
    cells = re.findall(r'<td class="heat" style="--heat: (\d+)%">([\d,]+)<small>', page())
    assert dict((text, int(heat)) for heat, text in cells) == {
        "1,000,000": 0,
        "4,000,000": 100,
        "4,000,001": 100,
    }
    assert ">12.500 ms<small>700 flash,  RAM</small>" in page()
    assert '<td class="wrong">BuildError<small>it &lt;failed&gt;</small>' in page()
    assert ">waiting</td>" in page()


def test_what_is_worth_having() -> None:
    table = page().partition("a.tflite: worth having")[2].partition("</table>")[0]
    assert re.findall(r'<th scope="row">(\w+)</th><td>(\w+)</td>', table) == [
        ("host", "speed"),
        ("host", "size"),
        ("pico", "speed"),
    ]


def test_changes_and_failures() -> None:
    text = page()
    assert "Compared with the sweep that was begun 2026-02-01T10:00:00." in text
    assert "1 jobs ran again: crtgen: 0.1 abc -&gt; x" in text
    assert ">2,000,000</td><td" in text
    assert ">-50.0%</td>" in text
    assert "<pre>a &amp; b</pre>" in text
    first = render_sweep(NOW, ROWS, None, None)
    assert "This is the first sweep of sweep.toml in its store." in first


def test_a_browser_shows_it(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "s.html"
    file.write_text(page())
    browser.open(file.as_uri())
    check_page(browser, 360, dark=True)
