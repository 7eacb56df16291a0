"""The page: what is on it, and how a browser shows it."""

import hashlib
import itertools
import json
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from crtgen.base.errors import ProtocolError, UsageError
from crtgen.boards import find_board
from crtgen.cli.app import app
from crtgen.compiler.codegen.drift import Counted, DriftReference
from crtgen.compiler.level import LEVELS
from crtgen.lab.html import Met, Study, read_baseline, render_page, study
from crtgen.lab.measure.drift import DriftWindow
from crtgen.lab.measure.evaluation import Classified, Evaluation, Threshold
from crtgen.lab.measure.targets import TargetOutcome
from crtgen.lab.measure.verification import Verdict
from tests.lab.browser import Browser, check_page
from tests.support import ROOT, require_tool

pytest.importorskip("vl_convert")

DIGITS = ROOT / "demo" / "digits.tflite"


@pytest.fixture(scope="module")
def planned() -> Study:
    """A study that needs no tools: of a board without a simulator, whose image nothing builds."""
    some = tuple(map(find_board, ("bbc_microbit", "nucleo_l4r5zi", "rpi_pico")))
    skipped = TargetOutcome("digits", "nucleo_l4r5zi", "board", skipped="no emulator has its core")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("crtgen.lab.html.study"), "verify_on", lambda *_, **__: skipped)
        patch.setattr("crtgen.lab.measure.fit.all_boards", lambda: some)
        return study(DIGITS, [find_board("nucleo_l4r5zi")])


def _drawings(page: str) -> dict[str, ElementTree.Element]:
    """By their labels."""
    found = re.findall(r"<svg role=\"img\".*?</svg>", page, re.DOTALL)
    assert len(found) == 2 * len(set(map(_label, found))), "each for a desk and for a phone"
    parsed = [ElementTree.fromstring(svg) for svg in found]
    return {svg.get("aria-label", ""): svg for svg in parsed}


def _label(svg: str) -> str:
    return svg.partition('aria-label="')[2].partition('"')[0]


def test_what_is_on_a_page(planned: Study) -> None:
    page = render_page(planned)
    report = planned.boards[0].report
    drawings = _drawings(page)
    assert list(drawings) == [
        "estimated cycles of each layer",
        f"The arena of {report.arena_bytes:,} bytes over the steps of a run",
        f"The network: {len(report.layers)} layers",
        "Ranges of quantised values",
    ]
    bars = [e.get("aria-label", "") for e in drawings["estimated cycles of each layer"].iter()]
    for layer in report.layers:
        assert any("layer: " in text and layer.name in text for text in bars), layer.name
    boxes = {
        e.get("aria-label", "")
        for e in drawings[f"The arena of {report.arena_bytes:,} bytes over the steps of a run"].iter()
    }
    for place in report.arena or ():
        if not place.alias_of:
            where = f"{place.nbytes:,} bytes at {place.offset:,}, steps {place.first} to {place.last}"
            assert f"{place.name}: {where}" in boxes
    assert f"<dd>{report.cycles_estimated:,}</dd>" in page
    assert "not run: no emulator has its core" in page
    assert "<strong>It fits on nucleo_l4r5zi in 0.44 ms.</strong>" in page
    assert hashlib.sha256(DIGITS.read_bytes()).hexdigest() in page
    (fit,) = (fit for fit in planned.fits if fit.board.name == "nucleo_l4r5zi")
    assert f"<dt>flash, bytes</dt><dd>{fit.library.flash:,}</dd>" in page
    assert '<th scope="col" class="number">instructions</th>' not in page, "nothing of it is known"
    for fit in planned.fits:
        assert f'<th scope="row">{fit.board.name}</th>' in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert "#fe00" not in page, "a colour that the style sheet does not know"


def test_how_good_it_is(planned: Study) -> None:
    result = Classified(("no", "yes"), ((3, 1), (0, 4)), 0.9)
    found = Evaluation(result, (Threshold(0.25, 4, 0, 1), Threshold(0.75, 3, 1, 0)))
    page = render_page(replace(planned, quality=found))
    assert "How good it is: accuracy 0.8750, 7 of 8 clips, AUC 0.9000" in page
    rows = [re.sub("<[^>]*>", " ", row).split() for row in re.findall("<tr>.*?</tr>", page, re.DOTALL)]
    assert all(row in rows for row in (["yes", "0", "4"], ["0.25", "4", "0", "1"], ["0.75", "3", "1", "0"]))
    assert replace(planned, quality=found).to_dict()["quality"] == {"accuracy": 0.875, "auc": 0.9}


def test_names_cannot_become_markup(planned: Study) -> None:
    name = '<script>alert("1")</script>'
    on = planned.boards[0]
    layers = tuple(replace(layer, name=name) for layer in on.report.layers)
    bad = replace(planned, model=name, boards=(replace(on, report=replace(on.report, layers=layers)),))
    page = render_page(bad)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert _drawings(page)


def test_what_changed_since_the_baseline(planned: Study, tmp_path: Path) -> None:
    old = planned.to_dict()
    report = old["boards"][0]["report"]
    before = report["cycles_estimated"]
    report["cycles_estimated"] = before * 2
    path = tmp_path / "old.json"
    path.write_text(json.dumps(old))
    page = render_page(planned, read_baseline(path))
    cells = (f"{before * 2:,}", f"{before:,}", "-50.0%")
    row = "".join(f'<td class="number">{cell}</td>' for cell in cells)
    assert f'<th scope="row">cycles_estimated</th>{row}' in page


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"boards": 3}', '{"boards": [{"report": {"layers": [3], "board": ""}}]}']
)
def test_what_is_no_baseline(tmp_path: Path, text: str) -> None:
    path = tmp_path / "old.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="the file is not a report"):
        read_baseline(path)


@pytest.mark.qemu
@pytest.mark.nightly
def test_the_command_measures_and_verifies(tmp_path: Path) -> None:
    require_tool("qemu-system-arm")
    output = tmp_path / "r.html"
    done = CliRunner().invoke(app, ["report", str(DIGITS), "-o", str(output), "--json"])
    assert done.exit_code == 0, done.output
    (board,) = json.loads(done.stdout)["boards"]
    page = output.read_text()
    assert board["verified"]["cases"] == 4
    assert "4 of 4 cases as expected" in page
    assert f"<dd>{board['report']['instructions']:,}</dd>" in page
    assert [level["optimize"] for level in board["levels"]] == list(LEVELS)
    assert {"Flash by what it holds", "Instructions over flash at each level"} <= set(_drawings(page))


def test_a_verification_that_went_wrong(planned: Study) -> None:
    failed = TargetOutcome("digits", "mps2_an386", "emulator", error=UsageError("no case", where="x.npz"))
    page = render_page(replace(planned, boards=(replace(planned.boards[0], verified=failed),)))
    assert "error: x.npz: no case" in page


def test_a_browser_shows_it(browser: Browser, planned: Study, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    page.write_text(render_page(planned))
    browser.open(page.as_uri())
    for width, dark in itertools.product((360, 390, 721, 1280, 1600), (True, False)):
        check_page(browser, width, dark=dark)
    check_page(browser, 720, dark=True, paper=True)  # A4 at 96 pixels an inch, without margins
    assert browser.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert browser.value("getComputedStyle(document.querySelector('figure')).breakInside") == "avoid"
    assert browser.value("getComputedStyle(document.querySelector('.narrow')).display") == "none"


def test_a_stand_in_is_named(planned: Study) -> None:
    cases = tuple(Verdict(str(n), None) for n in range(4))
    ran = TargetOutcome("digits", "nucleo_l4r5zi", "emulator", cases, stand_in="mps2_an386")
    page = render_page(replace(planned, boards=(replace(planned.boards[0], verified=ran),)))
    said = "run on mps2_an386, which has the same core"
    assert f"It computes what is expected on nucleo_l4r5zi in 0.44 ms (4 cases, {said})." in page
    assert f"4 of 4 cases as expected, {said}" in page
    assert "not run" not in page


def test_what_a_device_met(planned: Study, tmp_path: Path) -> None:
    """Distances beside limits, and shares of the inputs; of a file that cannot be read, an error."""
    counts = {"inputs": (8, 8, *[0] * 14), "classes": (1,) * 8, "margins": (2,) * 8}
    counts |= {"saturated": (0,) * 4, "entropy": (7,)}
    window = DriftWindow(3, 1, (1234, 0, 0, 0, 0), (1000, 5, 5, 5, 5), 0, 4, counts, 0)
    values = Counted(64, 2, 0, 1)
    usual = DriftReference(
        4, values, 10, (), (), {**counts, "inputs": (16, *[0] * 15)}, 0, window.limits, window.limits
    )
    page = render_page(planned, met=Met(window, usual))
    assert "What a device met: 1 of 3 windows beyond a limit" in page
    assert re.search(r"1,234</td>\s*<td[^>]*>1,000</td>\s*<td[^>]*>beyond</td>", page)
    assert "0.500" in page  # KS: half of the elements are in another bin
    assert "shares of each bin" in _drawings(page)
    assert "What a device met" not in render_page(planned)
    file = tmp_path / "counted.cbor"
    file.write_bytes(b"\xff")
    done = CliRunner().invoke(app, ["report", str(DIGITS), "--drift", str(file)])
    assert done.exit_code == ProtocolError.exit_code
    assert "the counts of the device cannot be read" in done.stderr
