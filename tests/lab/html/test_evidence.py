"""Evidence: what is claimed of an image is what is in it."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crtgen import api
from crtgen.base.errors import UnsupportedError, UsageError
from crtgen.boards import find_board
from crtgen.cli.app import app
from crtgen.lab.html import evidence
from crtgen.lab.html.study import study
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
    assert "<td>yes</td>" in (folder / "index.html").read_text()
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


def test_evidence_is_about_bare_metal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crtgen.lab.measure.fit.all_boards", lambda: (find_board("mps2_an386"),))
    found = study(DIGITS, [find_board("mimxrt1050_evk")])
    with pytest.raises(UnsupportedError, match="evidence is about an image on bare metal"):
        evidence.collect(DIGITS, found, "mimxrt1050_evk")
