"""A page as a browser shows it."""

import re
import subprocess
from pathlib import Path

from tests.support import require_tool

__all__ = ["check_shown"]

_PROBE = """<script>addEventListener("load", () => {
    const body = getComputedStyle(document.body);
    document.title = [document.documentElement.scrollWidth, innerWidth, body.backgroundColor].join(" ");
})</script></body>"""


def check_shown(page: str, folder: Path, width: int, dark: bool) -> None:
    """The browser complains of nothing, the page is no wider than the window, and has its colours."""
    chromium = require_tool("chromium")
    file = folder / "r.html"
    file.write_text(page.replace("</body>", _PROBE))
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    shown = subprocess.run(
        [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            scheme,
            f"--window-size={width},2000",
            "--dump-dom",
            str(file),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "CONSOLE" not in shown.stderr, shown.stderr
    title = re.search(r"<title>(\d+) (\d+) (rgb.*?)</title>", shown.stdout)
    assert title, shown.stdout[:300]
    assert int(title[1]) <= int(title[2]), "the page is wider than the window"
    assert title[3] == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
