"""Evidence: what is claimed of an image is what is in it."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from crtgen import api
from crtgen.base.errors import ToolMissingError, UnsupportedError, UsageError
from crtgen.boards import find_board
from crtgen.cli.app import app
from crtgen.device.run import Site
from crtgen.lab.html import evidence
from crtgen.lab.html.study import study
from crtgen.lab.measure import targets
from crtgen.lab.measure.targets import TargetOutcome
from crtgen.lab.measure.verification import Verdict
from tests.lab.browser import Browser, check_page
from tests.support import ROOT, require_tool

pytest.importorskip("vl_convert")
pytest.importorskip("cyclonedx")

DIGITS = ROOT / "demo" / "digits.tflite"


@pytest.mark.qemu
def test_the_folder_of_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    require_tool("qemu-system-arm")
    monkeypatch.setattr("crtgen.lab.measure.fit.all_boards", lambda: (find_board("mps2_an386"),))
    folder = tmp_path / "evidence"
    page = str(tmp_path / "r.html")
    command = ["report", str(DIGITS), "-o", page, "--evidence", str(folder), "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    claims = {claim["claim"]: claim for claim in json.loads(done.stdout)["claims"]}
    for name in (
        "No heap is used",
        "No function calls itself, directly or not",
        "The stack has a bound, which is reserved",
        "Two builds give the same bytes",
        "The arena is the least possible",
        "Outputs are those that are expected",
        "Each output of the image is the network's, for every input",
        "Its loads, stores and calls are safe",
        "The stack that the proof sees is within the call graph's",
    ):
        assert claims[name]["holds"], claims[name]
    assert claims["Of the C library only these functions are linked"]["found"] == "memcpy, memset, strlen"
    assert (
        " crt_reset -> main -> digits_compute -> "
        in claims["The stack has a bound, which is reserved"]["found"]
    )
    pairs = [line.split("  ") for line in (folder / "SHA256SUMS").read_text().splitlines()]
    listed = {name: digest for digest, name in pairs}
    assert set(listed) == {path.name for path in folder.iterdir()} - {"SHA256SUMS"}
    for name, digest in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name
    proof = json.loads((folder / "proof.json").read_text())
    assert proof["proven"] is True
    worst = (folder / "digits_worst.h").read_text()
    assert f"#define DIGITS_WORST_INSTRUCTIONS {proof['instructions']['most']}\n" in worst
    digests = {"image_sha256", "model_sha256", "checker_sha256"}
    assert set(proof["certificate"]) == digests | {"binutils", "llvm", "python", "libraries"}
    bill = (folder / "sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill) is None
    names = sorted(part["name"] for part in json.loads(bill)["components"])
    assert names == ["crt", "digits.tflite", "newlib"]
    loops = json.loads((folder / "loops.json").read_text())
    assert any(loop["where"].startswith("digits_kernels.c:") for loop in loops)
    assert any("the loop" in loop["text"] for loop in loops), "those of assembly"
    assert "<strong>yes</strong>" in (folder / "index.html").read_text()
    assert "4 of 4 cases as expected" in Path(page).read_text()
    Path(page).unlink()
    again = CliRunner().invoke(app, command)
    assert again.exit_code == UsageError.exit_code
    assert "a new or empty folder" in again.stdout
    assert not Path(page).exists(), "it is refused before the work"


@pytest.mark.qemu
def test_what_does_not_hold_is_said() -> None:
    """A model that asks for memory, calls itself and loops as long as it likes."""
    require_tool("arm-none-eabi-gcc")
    compiled = api.load(DIGITS).compile("mps2_an386")
    (module,) = compiled.modules
    name = f"{module.info.name}.c"
    bad = """
#include <stdlib.h>
volatile int bad_depth;
void *volatile bad_place;
void *_sbrk(int size);
void *_sbrk(int size) { return size ? 0 : &bad_place; }
static void bad_call(void)
{
    while (bad_depth > bad_depth / 2) {
        bad_depth--;
    }
    if (bad_depth-- > 0) {
        bad_call();
        bad_place = malloc(4);
    }
}
"""
    head, run, tail = module.files[name].partition(f"int32_t {module.info.name}_compute(void)\n{{\n")
    changed = replace(module, files={**module.files, name: f"{head}{bad}{run}    bad_call();\n{tail}"})
    compiled = replace(compiled, parts=(replace(compiled.parts[0], module=changed),))
    image = compiled.generate("standalone").build()
    claims = {claim.claim: claim for claim in evidence.claims_of_image(image)}
    assert not claims["No heap is used"].holds
    assert "malloc" in claims["No heap is used"].found
    assert not claims["No function calls itself, directly or not"].holds
    assert "bad_call" in claims["No function calls itself, directly or not"].found
    assert not claims["The stack has a bound, which is reserved"].holds
    (loop,) = [loop for loop in evidence.loops_of_c(compiled) if "bad_depth" in loop.text]
    assert not loop.is_constant


CLAIMS = (
    evidence.Claim("The stack has a bound, which is reserved", True, "304 bytes", "stack.json"),
    evidence.Claim(
        "Two builds give the same bytes", False, f"SHA-256 {'a' * 64} and {'b' * 64}", "SHA256SUMS"
    ),
    evidence.Claim(
        "Each output of the image is the network's, for every input", None, "no <objdump>", "p.json"
    ),
)


def test_a_browser_shows_the_claims(browser: Browser, tmp_path: Path) -> None:
    """A claim is one line on a desk and a few on a phone."""
    (report,) = api.load(DIGITS).compile("mps2_an386").reports
    page = tmp_path / "index.html"
    page.write_text(evidence.render_evidence(report, CLAIMS, [("project", f"SHA-256 {'c' * 64}")]))
    browser.open(page.as_uri())
    answers = browser.value("[...document.querySelectorAll('.claim strong')].map(e => e.textContent)")
    assert answers == ["yes", "NO", "not checked"]
    highest = "Math.max(...[...document.querySelectorAll('h3')].map(e => e.clientHeight))"
    for width, height in ((390, 55), (1280, 30), (1600, 30)):
        for dark in (False, True):
            check_page(browser, width, dark=dark)
        assert browser.value(highest) < height
    check_page(browser, 720, dark=True, paper=True)
    style = "getComputedStyle(document.querySelector('.claim p')).breakAfter"
    assert browser.value(style) == "auto", "claims in a chain would all go to the next page"


def test_hints_are_no_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing program is named, and says nothing against the image."""
    error = ToolMissingError("arm-none-eabi-objdump is not there", hint="install binutils-arm-none-eabi")

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(evidence, "prove_built", refuse)
    made, (claim,) = evidence.claims_of_proof(cast(api.Image, None), DIGITS, find_board("mps2_an386"))
    assert claim.holds is None
    assert claim.found == "arm-none-eabi-objdump is not there"
    assert json.loads(made["proof.json"]) == {"refused": claim.found}


@pytest.mark.parametrize(
    ("outcome", "holds", "found"),
    [
        ({"skipped": "no emulator has its core"}, None, "no emulator has its core"),
        ({"error": UsageError("no case", hint="add one")}, False, "no case"),
        (
            {"verdicts": (Verdict("0", None),), "stand_in": "mps2_an386"},
            True,
            "1 of 1 cases, run on mps2_an386, which has the same core",
        ),
    ],
)
def test_who_ran_the_cases(outcome: dict[str, Any], holds: bool | None, found: str) -> None:
    claim = evidence.claim_of_cases(TargetOutcome("digits", "nucleo_l4r5zi", "emulator", **outcome))
    assert (claim.holds, claim.found) == (holds, found)


def test_a_report_uses_no_board(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``simulate`` a connected board is left alone: an emulator with its core runs the cases."""
    started: list[str] = []

    def build(compiled: api.Compiled, site: Site, **_: Any) -> None:
        assert not site.simulate
        started.append(compiled.board.name)
        raise UsageError("enough")

    monkeypatch.setattr(targets, "is_connected", lambda *_: True)
    monkeypatch.setattr(targets, "build_for", lambda *_: None)
    monkeypatch.setattr(targets, "build_server", build)
    found = targets.verify_on(DIGITS, "nucleo_l4r5zi", site=Site(simulate=True))
    assert started == [found.stand_in]
    assert (found.target, str(found.error)) == ("emulator", "enough")


def test_evidence_is_about_bare_metal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crtgen.lab.measure.fit.all_boards", lambda: (find_board("mps2_an386"),))
    found = study(DIGITS, [find_board("mimxrt1050_evk")])
    with pytest.raises(UnsupportedError, match="evidence is about an image on bare metal"):
        evidence.collect(DIGITS, found, "mimxrt1050_evk")
