"""The page in a browser: every function by keyboard, on a phone and on a desk, and nothing from elsewhere."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from crtgen.base.formats.pictures import read_picture
from crtgen.base.formats.sounds import read_sound
from crtgen.lab.view import ViewServer
from crtgen.lab.view.jobs import Live
from tests.lab.browser import Browser, check_page
from tests.lab.view.serving import Commands, running
from tests.support import ROOT, require_tool

pytest.importorskip("vl_convert")

DIGITS = ROOT / "demo" / "digits.tflite"
_STATUS = "document.getElementById('status').textContent"
_NAMELESS = """[...document.querySelectorAll("button, input, select, canvas, a, progress, summary")]
    .filter(e => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.[0]?.textContent.trim()))
    .map(e => e.outerHTML)"""
_CONTROLS = """[...document.querySelectorAll("button, input, select, canvas")]
    .filter(e => !e.disabled && e.checkVisibility()).map(e => e.id)"""


class _Running(Live):
    """A model that answers with scores, and keeps what the page sent."""

    def __init__(self, inputs: list[Path], rate: int | None) -> None:
        self._inputs, self._rate = inputs, rate

    def run(self, file: Path | None = None) -> Any:
        if file is None:
            shape = {"name": "image", "shape": [1, 8, 8, 1], "dtype": "int8"}
            return {"model": "digits", "inputs": [shape], "labels": ["zero", "one"], "rate": self._rate}
        kept = file.with_name(f"{len(self._inputs)}{file.suffix}")
        kept.write_bytes(file.read_bytes())
        self._inputs.append(kept)
        return {"outputs": {"p": [[1, 3]]}, "values": {"p": [0.25, 0.75]}, "runs": 1, "seconds": 0.001}

    def close(self) -> None:
        pass


class _WithInputs(Commands):
    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[Path] = []
        self.rate: int | None = None

    def live(self, arguments: Sequence[str]) -> Live:
        return _Running(self.inputs, self.rate)


@pytest.fixture
def jobs() -> _WithInputs:
    return _WithInputs()


@pytest.fixture
def server(tmp_path: Path, jobs: _WithInputs) -> Iterator[ViewServer]:
    with ViewServer(tmp_path, jobs, DIGITS) as server, running(server):
        yield server


def _click(browser: Browser, name: str) -> None:
    browser.value(f"document.getElementById('{name}').click()")


def _key(browser: Browser, key: str, code: int, text: str = "") -> None:
    for kind in ("keyDown", "keyUp"):
        keys = {"key": key, "windowsVirtualKeyCode": code, "code": key}
        browser.call("Input.dispatchKeyEvent", type=kind, **keys, **({"text": text} if text else {}))


def _reached(browser: Browser) -> list[str]:
    """Press Tab until the first control comes again; each has to show that it has the focus."""
    found: list[str] = []
    browser.value("document.activeElement.blur(), document.body.focus(), scrollTo(0, 0)")
    for _ in range(80):
        _key(browser, "Tab", 9)
        name, outline = browser.value(
            "[document.activeElement.id, getComputedStyle(document.activeElement).outlineStyle]"
        )
        if name:
            label = (
                "getComputedStyle(document.activeElement.closest('.button') ?? document.body).outlineStyle"
            )
            assert outline != "none" or browser.value(label) != "none", name
        if found and name == found[0]:
            break
        if name:
            found.append(name)
    return found


def test_the_page(browser: Browser, server: ViewServer, jobs: _WithInputs, tmp_path: Path) -> None:
    browser.look(1280)
    browser.open(server.address)
    assert browser.value("location.search") == "", "the token is not kept in the history"
    browser.wait("document.querySelectorAll('#levels-result tbody tr').length == 4")
    browser.wait("document.querySelectorAll('#network-result svg').length == 6")
    assert browser.value("document.cookie") == "", "no script sees the cookie"
    _levels_by_keyboard(browser)
    _live_inputs(browser, jobs)
    for width in (390, 1280):
        for dark in (False, True):
            check_page(browser, width, dark=dark)
    assert browser.value(_NAMELESS) == []
    assert browser.value("document.querySelectorAll('[aria-live]').length") >= 7
    assert set(_reached(browser)) >= set(browser.value(_CONTROLS))
    _project(browser)
    _another_file(browser)
    check_page(browser, 390)
    sent = [
        e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"
    ]
    own = (f"http://127.0.0.1:{server.server_port}/", f"blob:http://127.0.0.1:{server.server_port}/", "data:")
    assert len(sent) > 10
    assert [url for url in sent if not url.startswith(own)] == []


def _levels_by_keyboard(browser: Browser) -> None:
    before = browser.wait("document.getElementById('cost').textContent")
    assert before.startswith("balanced: ")
    browser.value("document.getElementById('level').focus()")
    _key(browser, "ArrowRight", 39)
    assert browser.value("document.getElementById('level').getAttribute('aria-valuetext')") == "size"
    browser.wait("document.querySelector('tr.chosen th').textContent == 'size'")
    browser.wait("document.querySelector('#network-result h2').textContent.endsWith(', size')")


def _live_inputs(browser: Browser, jobs: _WithInputs) -> None:
    _click(browser, "start")
    browser.wait("document.querySelectorAll('#bars .bar').length == 2")
    best = browser.value("document.querySelector('.bar.best').textContent")
    assert best == "one0.75"
    browser.value("document.getElementById('canvas').focus()")
    _key(browser, " ", 32, " ")
    for _ in range(3):
        _key(browser, "ArrowDown", 40)
    _wait_for(browser, jobs, ".png", 2)
    _, size = read_picture(jobs.inputs[-1], (28, 28), grey=True)
    assert size == (280, 280)
    _click(browser, "camera")
    _wait_for(browser, jobs, ".png", len(jobs.inputs) + 1)
    _, size = read_picture(jobs.inputs[-1], (28, 28), grey=False)
    assert size[0] == size[1] > 100
    assert browser.value("document.getElementById('sound').disabled")
    jobs.rate = 16000  # a pipeline
    _click(browser, "start")
    browser.wait("!document.getElementById('sound').disabled")
    _click(browser, "sound")
    _wait_for(browser, jobs, ".wav", 3)
    samples, rate = read_sound([file for file in jobs.inputs if file.suffix == ".wav"][-1])
    assert (len(samples), rate) == (32000, 16000)
    assert abs(samples).max() > 0.01, "the browser's device beeps"
    jobs.rate = None
    _click(browser, "start")
    browser.wait("document.getElementById('stage').checkVisibility()")


def _wait_for(browser: Browser, jobs: _WithInputs, suffix: str, count: int) -> None:
    for _ in range(600):
        if sum(file.suffix == suffix for file in jobs.inputs) >= count:
            return
        browser.value("new Promise(done => setTimeout(done, 50))")
    raise AssertionError(f"{count} inputs {suffix} did not come: {browser.value(_STATUS)}")


def _project(browser: Browser) -> None:
    browser.call("Browser.setDownloadBehavior", behavior="deny")
    _click(browser, "generate")
    browser.wait("!!document.querySelector('#project-result a')")
    assert browser.value("document.querySelector('#project-result a').download") == "digits.zip"


def _another_file(browser: Browser) -> None:
    """A file that is no model: its error is said, as text, whatever is in its name."""
    browser.value("""(() => {
        const files = new DataTransfer();
        files.items.add(new File(["no model"], "<img src=x onerror=alert(1)>.tflite"));
        document.getElementById("files").files = files.files;
        document.getElementById("files").dispatchEvent(new Event("change"));
    })()""")
    browser.wait("!!document.querySelector('#network-result .wrong')")
    said = browser.value("document.getElementById('network-result').textContent")
    assert "<img src=x onerror=alert(1)>.tflite: " in said
    assert "What to do: " in said
    assert browser.value("document.querySelectorAll('img').length") == 0


@pytest.mark.nightly
def test_the_command(browser: Browser) -> None:
    """``crtgen view`` with children of its own: a digit is drawn and read, and Ctrl-C ends all of it."""
    require_tool("cc")
    command = [sys.executable, "-m", "crtgen", "view", str(DIGITS), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
        assert program.stdout is not None
        browser.look(1280)
        browser.open(program.stdout.readline().strip())
        browser.wait("document.querySelectorAll('#levels-result tbody tr').length == 4")
        _click(browser, "start")
        browser.wait("document.querySelectorAll('#bars .bar').length == 10")
        _click(browser, "verify-host")
        browser.wait(
            "document.getElementById('checks-result').textContent.includes('4 of 4 cases as expected')"
        )
        assert browser.complaints() == []
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
        assert children
        program.send_signal(2)
        assert program.wait(30) == 130
    assert not [pid for pid in children if Path(f"/proc/{pid}/cmdline").exists()]
