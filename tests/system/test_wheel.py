"""The wheel: built, installed into an empty environment away from the checkout, and run."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from sysconfig import get_paths

import pytest

from ci.sbom import bill_of_materials
from tests.support import ROOT, copy_checkout, nightly, require_tool
from tests.test_tutorials import type_commands


def _run(*command: str | Path, cwd: Path) -> str:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.qemu
@pytest.mark.parametrize("with_dependencies", [False, nightly(True)])
def test_the_wheel_runs_the_main_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_dependencies: bool
) -> None:
    """On a push it finds the packages of this environment, by night it installs those that it names."""
    require_tool("qemu-system-arm")
    pip = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check")
    _run(
        sys.executable,
        "-m",
        "build",
        "--wheel",
        *(() if with_dependencies else ("--no-isolation",)),
        "--outdir",
        tmp_path,
        ROOT,
        cwd=tmp_path,
    )
    (wheel,) = tmp_path.glob("crtgen-*.whl")
    _run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    alone = () if with_dependencies else ("--no-deps", "--no-compile")
    _run(*pip, "--python", python, "install", *alone, wheel, cwd=tmp_path)
    if not with_dependencies:
        (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
        (packages / "others.pth").write_text(f"{get_paths()['purelib']}\n")
    where = _run(python, "-c", "import crtgen; print(crtgen.__file__)", cwd=tmp_path)
    assert str(tmp_path) in where
    program = tmp_path / "venv" / "bin" / "crtgen"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1800000000")
    bill = bill_of_materials(wheel)
    assert bill == bill_of_materials(wheel)
    assert '"timestamp": "2027-01-15T08:00:00+00:00"' in bill
    _check_bill(bill, wheel)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    copy_checkout(_made(tmp_path / "checkout"))
    monkeypatch.chdir(tmp_path / "checkout")
    if with_dependencies:
        type_commands("first-steps.md", program)  # in a checkout, though it is the installed crtgen that runs
    else:  # test_tutorials.py types the others, by the code of the checkout
        demo = ("demo/digits.tflite", "--board", "mps2_an386", "--input", "demo/digit.npz")
        assert "[7] 0.996094" in _run(program, "run", *demo, cwd=tmp_path / "checkout")
    _run(program, "init", "--example", cwd=_made(tmp_path / "empty"))
    shown = _run(program, "run", "--input", "digit.npz", cwd=tmp_path / "empty")
    assert "[7] 0.996094" in shown


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _check_bill(text: str, wheel: Path) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator  # takes seconds

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    about = bill["metadata"]["component"]
    assert about["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    names = {component["name"] for component in bill["components"]}
    assert {"numpy", "jinja2", "pydantic", "pydantic-core", "typer"} <= names
    assert not names & {"crtgen", "pytest"}
