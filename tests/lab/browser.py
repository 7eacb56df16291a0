"""Chromium without a window, driven by its own protocol over a pipe, and what a page has to be in it."""

import base64
import itertools
import json
import os
import select
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support import require_tool

__all__ = ["Browser", "check_page"]

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--remote-debugging-pipe",
)
# The browser reads commands from descriptor 3 and writes answers to 4, each ends with a zero.
_START = 'exec "$@" 3</dev/fd/{} 4>/dev/fd/{} >/dev/null 2>&1'
_PATIENCE = 60.0
# The end of what a page says, for messages.
_WORDS = "document.body.innerText.slice(0, 1000)"


class Browser:
    """One tab. ``events`` are the messages that nobody waited for, oldest first."""

    def __init__(self) -> None:
        chromium = require_tool("chromium")
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        shell = ("sh", "-c", _START.format(commands, answers))
        self._program = subprocess.Popen(
            [*shell, "sh", chromium, *_FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"],
            pass_fds=(commands, answers),
        )
        os.close(commands)
        os.close(answers)
        self._numbers, self._rest, self._session = itertools.count(1), b"", ""
        self.events: list[dict[str, Any]] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        (page,) = (target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._program.kill()
        self._program.wait()
        os.close(self._read)
        os.close(self._write)
        self._folder.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(time.monotonic() + _PATIENCE)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self._read, 1 << 20) if ready else b""
            assert data, "the browser ended, or does not answer"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def open(self, url: str) -> None:
        self.events.clear()
        self.call("Page.navigate", url=url)
        end = time.monotonic() + _PATIENCE
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next(end))

    def look(self, width: int, *, dark: bool = False, paper: bool = False) -> None:
        """Set the window's width in pixels and its colours, or show the page as it is printed."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="print" if paper else "", features=[scheme])

    def value(self, expression: str) -> Any:
        """Evaluate JavaScript, wait for its promise, and return its value."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Evaluate an expression until it is true."""
        end = time.monotonic() + _PATIENCE
        while not (found := self.value(expression)):
            assert time.monotonic() < end, f"never true: {expression}: {self.value(_WORDS)}"
            time.sleep(0.05)
        return found

    def picture(self, file: Path, *, whole: bool = True) -> None:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(shot["data"]))

    def complaints(self) -> list[str]:
        """Return the messages of the console: errors of scripts, what the page's policy refused."""
        self.value("0")
        kinds = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in kinds]


# Elements that can be seen and are wider than the window, but for those that scroll in a box of their own.
_TOO_WIDE = """[...document.querySelectorAll("body *")]
    .filter(e => !e.parentElement.closest(".wide, svg") && e.getBoundingClientRect().right > innerWidth + 1)
    .map(e => e.outerHTML.slice(0, 120))"""
# Texts of drawings that are too small to read, turned or not: letters of less than 8 pixels.
_TOO_SMALL = """[...document.querySelectorAll("svg text")]
    .filter(e => e.textContent && e.getBoundingClientRect().height)
    .map(e => [e.textContent, e.getScreenCTM(), parseFloat(getComputedStyle(e).fontSize)])
    .filter(([text, to, size]) => size * Math.hypot(to.a, to.b) < 8)
    .map(([text, to, size]) => text)"""


# Texts whose contrast with the page is below 4.5 to 1, the least that WCAG allows, unless they are disabled.
_TOO_FAINT = """(() => {
    const light = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(Number).map(c => c / 255)
        .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
    const paper = light(getComputedStyle(document.body).backgroundColor);
    const contrast = (e) => [light(getComputedStyle(e).color), paper].sort((a, b) => b - a).map(l => l + 0.05)
        .reduce((a, b) => a / b);
    return [...document.querySelectorAll("body *:not(svg *, option, :disabled)")]
        .filter(e => e.checkVisibility() && contrast(e) < 4.5)
        .filter(e => [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim()))
        .map(e => `${e.outerHTML.slice(0, 80)}: ${contrast(e).toFixed(2)}`);
})()"""


def check_page(browser: Browser, width: int, *, dark: bool = False, paper: bool = False) -> None:
    """The open page complains of nothing, fits the window, can be read, and has its colours."""
    browser.look(width, dark=dark, paper=paper)
    wide = browser.value(_TOO_WIDE)
    assert not wide, f"wider than a window of {width} pixels: {wide}"
    assert browser.value("document.documentElement.scrollWidth") <= width
    small = browser.value(_TOO_SMALL)
    assert not small, f"too small to read in a window of {width} pixels: {small}"
    faint = browser.value(_TOO_FAINT)
    assert not faint, f"too little contrast: {faint}"
    colour = "rgb(20, 23, 27)" if dark and not paper else "rgb(255, 255, 255)"
    assert browser.value("getComputedStyle(document.body).backgroundColor") == colour
    complaints = browser.complaints()
    assert not complaints, complaints
