"""Writes the table of docs/field.md: which artefact records, counts, has slots and so on, or why not.

usage: python -m tools.artefacts [--check]     --check: change nothing, fail if the page is not up to date

Each cell is an attempt to generate the artefact with the feature.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np

import crtgen
from crtgen.api import Compiled
from crtgen.base.errors import UsageError
from crtgen.base.resources import templates_dir
from crtgen.compiler.codegen.drift import DriftReference
from crtgen.lab.measure.drift import usual

ROOT = templates_dir().parent
PAGE = ROOT / "docs" / "field.md"
BEGIN, END = "<!-- written by tools/artefacts.py -->", "<!-- up to here -->"
DIGITS = ROOT / "demo" / "digits.tflite"

# Type, platform, framework and board of each artefact.
ARTEFACTS: Mapping[str, tuple[str, str, str, str]] = {
    "server": ("server", "", "", "mps2_an521"),
    "standalone": ("standalone", "", "", "mps2_an521"),
    "Zephyr application": ("server", "zephyr", "", "mps2_an521"),
    "library": ("library", "", "", "mps2_an521"),
    "Zephyr library": ("library", "zephyr", "", "mps2_an521"),
    "Zephyr module": ("library", "", "zephyr-module", "mps2_an521"),
    "CMSIS-Pack": ("library", "", "cmsis-pack", "mps2_an521"),
    "Arduino": ("library", "", "arduino", "mps2_an521"),
    "PlatformIO": ("library", "", "platformio", "mps2_an521"),
    "make": ("library", "", "make", "mps2_an521"),
    "ESP-IDF": ("library", "", "esp-idf", "host"),
    "ESPHome": ("library", "", "esphome", "host"),
    "library for this computer": ("library", "", "", "host"),
}

FEATURES = ("record", "watch", "slots", "rows", "steps", "two cores", "pipeline")

_PIPELINE = """
[pipeline]
name = "seen"
sensor = {{ kind = "image", width = 16, height = 16, format = "grey" }}
[features]
preset = "image"
width = 8
height = 8
[network]
file = "{network}"
[decision]
label = 7
above = 0.5
"""


def attempt(artefact: str, feature: str) -> Mapping[str, bytes] | str:
    """Generate an artefact with a feature; return its files, or why it is refused."""
    kind, platform, framework, board = ARTEFACTS[artefact]
    try:
        compiled = compiled_for(board, feature)
        watched = {"digits": reference()} if feature == "watch" else {}
        files: Mapping[str, bytes] = compiled.generate(
            kind,
            platform=platform,
            framework=framework,
            record=8 if feature == "record" else 0,
            slots=feature == "slots",
            watched=watched,
        ).project.files
    except UsageError as error:
        return error.message
    return files


@cache
def compiled_for(board: str, feature: str) -> Compiled:
    """Compile digits as a feature needs it."""
    model = _pipeline() if feature == "pipeline" else DIGITS
    feed = "rows" if feature == "rows" else ""
    return crtgen.load(model).compile(board, feed=feed, cores=2 if feature == "two cores" else 1)


@cache
def reference() -> DriftReference:
    """Return limits for random inputs of digits."""
    compiled = compiled_for("host", "")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "usual.npy"
        np.save(file, np.random.default_rng(0).integers(-128, 128, (80, 1, 8, 8, 1)).astype(np.int8))
        return usual(file, compiled.modules[0].info, compiled.plans[0], [])


@cache
def _pipeline() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="crtgen-artefacts-"))
    file = folder / "seen.toml"
    file.write_text(_PIPELINE.format(network=DIGITS))
    return file


def rows(attempts: Callable[[str, str], Mapping[str, bytes] | str] = attempt) -> Iterator[str]:
    """The lines of the table, with the reasons below it."""
    reasons: dict[str, int] = {}
    yield f"| artefact | {' | '.join(FEATURES)} |"
    yield "|---" * (len(FEATURES) + 1) + "|"
    for artefact in ARTEFACTS:
        cells = []
        for feature in FEATURES:
            found = attempts(artefact, feature)
            cells.append(
                f"no ({reasons.setdefault(found, len(reasons) + 1)})" if isinstance(found, str) else "yes"
            )
        yield f"| {artefact} | {' | '.join(cells)} |"
    yield ""
    yield from (f"{number}. {reason}" for reason, number in reasons.items())


def page() -> str:
    """Return the page with its table renewed."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return "\n".join([before + BEGIN, "", *rows(), "", END + after])


def main(check: bool) -> int:
    """Write the page, or compare it."""
    made = page()
    if check:
        return int(made != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
