"""``crtgen compile``, and what the commands do with an archive in place of a model."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from crtgen.cli.app import app
from crtgen.firmware.library.archive import read_tar
from tests.support import ROOT, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"
CASES = ROOT / "demo" / "digits.npz"

runner = CliRunner()


def crtgen(*args: str | Path) -> Result:
    return runner.invoke(app, list(map(str, args)), catch_exceptions=False)


def as_json(*args: str | Path) -> dict[str, Any]:
    result = crtgen(*args, "--json")
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive for the host of the demonstration model under two names."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    again = tmp_path / "again.tflite"
    again.write_bytes(DIGITS.read_bytes())
    path = tmp_path / "two.tar"
    data = as_json("compile", DIGITS, again, "-o", path, "--board", "host")
    assert [m["model"] for m in data["models"]] == ["digits", "again"]
    assert data["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    return path


def test_compile_twice_gives_the_same_bytes(two: Path, tmp_path: Path) -> None:
    again = tmp_path / "other.tar"
    assert crtgen("compile", DIGITS, tmp_path / "again.tflite", "-o", again, "--board", "host").exit_code == 0
    assert again.read_bytes() == two.read_bytes()
    files = read_tar(two.read_bytes(), "x")
    assert "crtgen/again.json" in files
    assert list(json.loads(files["metadata.json"])["modules"]) == ["again", "digits"]


@pytest.mark.cc
def test_verify_names_the_model_of_each_case(two: Path, tmp_path: Path) -> None:
    require_tool("gcc")
    cases = np.load(CASES)
    arrays = {f"{m}.{k}": cases[k] for m in ("again", "digits") for k in ("case0_input0", "case0_output0")}
    np.savez(tmp_path / "right.npz", **arrays)
    result = crtgen("verify", two, "--trust", "--board", "host", "--expect", tmp_path / "right.npz")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "again.case0: equal",
        "digits.case0: equal",
        "again, digits on host: 2 of 2 cases as expected",
    ]
    wrong = arrays["digits.case0_output0"] + np.int8(1)
    np.savez(tmp_path / "wrong.npz", **(arrays | {"digits.case0_output0": wrong}))
    result = crtgen("verify", two, "--trust", "--board", "host", "--expect", tmp_path / "wrong.npz", "--json")
    assert result.exit_code == 8
    assert list(json.loads(result.stdout)["differences"]) == ["digits.case0"]


@pytest.mark.cc
def test_run_asks_which_model(two: Path) -> None:
    require_tool("gcc")
    result = crtgen("run", two, "--board", "host", "--trust")
    assert result.exit_code == 2
    assert "name one with --model: again, digits" in " ".join(result.stderr.split())
    options = ("--trust", "--board", "host", "--model", "again", "--input", ROOT / "demo" / "digit.npz")
    data = as_json("run", two, *options)
    assert np.array(data["outputs"]["probabilities"]).argmax() == 7


@pytest.mark.parametrize(
    "args",
    [
        ("run", "two.tar", "--model", "digits"),
        ("run", "two.tar", "--model", "digits", "--dir", "project"),
        ("verify", "two.tar", "--expect", str(CASES)),
        ("bench", "two.tar"),
        ("bench", "two.tar", "--rpc"),
        ("bench", "two.tar", "--pareto"),
        ("check", "two.tar", "--board", "host", "--update"),
        ("generate", "two.tar", "project", "--target", "llvm"),
    ],
)
def test_code_is_not_run_without_trust(
    two: Path, args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"a process: {args}")

    monkeypatch.setattr("subprocess.Popen.__init__", start)
    monkeypatch.chdir(two.parent)
    result = crtgen(*args, "--board", "host")
    assert result.exit_code == 2
    assert "two.tar: the file holds code, which would be compiled and run" in " ".join(result.stderr.split())
    assert "--trust" in result.stderr


@pytest.mark.parametrize("command", ["run", "compile"])
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*args: object, **kwargs: object) -> None:
        raise AssertionError("it worked in vain")

    monkeypatch.setattr("crtgen.api.load", work)
    result = crtgen(command, DIGITS, "--output", tmp_path / "nowhere" / "x.tar", "--board", "host")
    assert result.exit_code == 2
    assert "the directory of this path does not exist" in " ".join(result.stderr.split())


def test_inspect_and_generate(two: Path, tmp_path: Path) -> None:
    data = as_json("inspect", two, "--board", "host")
    assert [m["model"] for m in data["models"]] == ["again", "digits"]
    assert data["models"][0]["inputs"][0]["shape"] == [1, 8, 8, 1]
    assert "conv2d" in crtgen("inspect", two, "--board", "host").stdout
    assert crtgen("inspect", two, "--board", "host", "--arena").exit_code == 2
    shared = tmp_path / "shared"
    assert as_json("generate", two, shared, "--board", "host")["type"] == "server"
    arena = data["models"][0]["arena_bytes"]
    assert f"CRT_SHARED_ARENA={arena})" in (shared / "CMakeLists.txt").read_text()
    own = tmp_path / "own"
    as_json("generate", two, own, "--board", "host", "--own-arenas")
    assert "CRT_SHARED_ARENA" not in (own / "CMakeLists.txt").read_text()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("-o", "x.zip"), "an archive is called .tar"),
        (("-o", "nowhere/x.tar"), "the directory of this path does not exist"),
        (("-o", "x.tar", "--executor", "vm"), "unknown executor vm"),
    ],
)
def test_what_is_wrong_is_said(args: tuple[str, ...], message: str) -> None:
    result = crtgen("compile", DIGITS, *args)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize(
    ("name", "file"), [("weights", "digits_weights.c"), ("internal", "digits_internal.h")]
)
def test_models_whose_files_would_be_the_same_are_refused(tmp_path: Path, name: str, file: str) -> None:
    other = tmp_path / f"digits_{name}.tflite"
    other.write_bytes(DIGITS.read_bytes())
    result = crtgen("compile", DIGITS, other, "-o", tmp_path / "two.tar", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["message"] == f"two models make a file {file}"
    assert not (tmp_path / "two.tar").exists()


def test_an_archive_that_leads_out_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad.tar"
    bad.write_bytes(b"no archive")
    result = crtgen("generate", bad, tmp_path / "project")
    assert result.exit_code == 3
    assert "the file is not a tar archive" in result.stderr
    assert not (tmp_path / "project").exists()
