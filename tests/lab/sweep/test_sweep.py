"""``crtgen sweep`` from its file to its rows, with workers of its own."""

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crtgen.base.errors import ToolMissingError, UsageError
from crtgen.cli.app import app
from crtgen.device.run.rp2040 import find_rp2040js
from crtgen.lab.sweep import run
from crtgen.lab.sweep.address import content_digest
from crtgen.lab.sweep.job import Job, JobOptions, run_job
from tests.support import ROOT, absent, require_tool

pytest.importorskip("distributed")
pytest.importorskip("vl_convert")

DIGITS = (ROOT / "demo" / "digits.tflite").read_bytes()


def crtgen(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.mark.qemu
def test_from_the_file_to_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network on two boards, one that is none, and what a second run has to do."""
    require_tool("qemu-system-arm")
    (tmp_path / "digits.tflite").write_bytes(DIGITS)
    (tmp_path / "wrong.tflite").write_bytes(b"no network")
    file, store, table = (tmp_path / name for name in ("sweep.toml", "s.db", "t.csv"))
    file.write_text('models = ["*.tflite"]\nboards = ["mps2_an386", "host"]\ncases = 1\n')
    command = ("sweep", file, "--store", store, "--workers", 1)
    found = crtgen(*command, "--export", table, code=1)
    assert (found["done"], found["failed"], found["waiting"]) == (2, 2, 0)
    jobs = {(job["model"], job["board"]): job for job in found["jobs"]}
    good, bad = jobs["digits.tflite", "mps2_an386"], jobs["wrong.tflite", "host"]
    assert good["figures"]["instructions"] > 10_000
    assert sum(good["layers"].values()) == pytest.approx(good["figures"]["instructions"], rel=0.05)
    assert set(jobs["digits.tflite", "host"]["figures"]) >= {"flash_bytes", "arena_bytes", "seconds"}
    assert (bad["state"], bad["error"]) == ("failed", "CorruptModelError")
    assert "wrong.tflite" in bad["message"]
    rows = {(row["model"], row["board"]): row for row in csv.DictReader(table.open())}
    assert int(rows["digits.tflite", "mps2_an386"]["instructions"]) == good["figures"]["instructions"]
    assert rows["wrong.tflite", "host"]["instructions"] == ""

    monkeypatch.setattr(run, "local_cluster", lambda *_: pytest.fail("nothing has to be done"))
    parquet = tmp_path / "t.parquet"
    again = crtgen(*command, "--export", parquet, "--report", tmp_path / "r.html", code=1)
    assert again == found
    assert f"{good['figures']['instructions']:,}<small>" in (tmp_path / "r.html").read_text()
    from pyarrow import parquet as reader

    columns = reader.read_table(parquet).to_pydict()
    assert columns["instructions"].count(None) == 3
    assert good["figures"]["instructions"] in columns["instructions"]
    assert set(columns["error"]) == {"", "CorruptModelError"}


@pytest.mark.cc
def test_figures_that_are_wrong_are_a_failure(tmp_path: Path) -> None:
    """With what was measured, and where outputs differ."""
    require_tool("cc")
    cases = io.BytesIO()
    np.savez(
        cases,
        case0_input0=np.zeros((1, 8, 8, 1), np.int8),
        case0_output0=np.full((1, 10), 99, np.int8),
    )
    source, expect = content_digest(DIGITS), content_digest(cases.getvalue())
    contents = {source: DIGITS, expect: cases.getvalue()}
    job = Job("digits.tflite", source, "host", JobOptions("size"), expect=expect)
    found = run_job(job, contents)
    assert found.error == "MismatchError", found
    assert "1 of 1 cases differ: case0: output" in found.message
    assert found.figures["flash_bytes"] > 1000
    assert found.seconds > 0


def test_what_is_wrong_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text('models = ["a"]\nboards = ["host"]')
    code = UsageError.exit_code
    for arguments, said in (
        ((tmp_path / "none.toml",), "the sweep cannot be read"),
        ((file, "--export", tmp_path / "x.xls"), "is not a format for tables"),
        ((file, "--export", tmp_path / "x" / "x.csv"), "the directory of this path does not exist"),
    ):
        assert said in crtgen("sweep", *arguments, "--store", tmp_path / "s.db", code=code)["message"]
    (tmp_path / "a").write_bytes(b"")
    given = (file, "--store", tmp_path / "s.db", "--scheduler", tmp_path / "x.json")
    found = crtgen("sweep", *given, code=code)
    assert found["message"] == "the address does not belong to a Dask scheduler"


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    file = tmp_path / "sweep.toml"
    (tmp_path / "a").write_bytes(b"")
    file.write_text('models = ["a"]\nboards = ["host"]')
    found = crtgen("sweep", file, "--store", tmp_path / "s.db", code=UsageError.exit_code)
    assert found["hint"] == "pip install 'crtgen[sweep]'"


def test_a_simulated_pico_is_a_job_as_any_other() -> None:
    try:
        find_rp2040js()
    except ToolMissingError as error:
        absent(str(error), error.hint)
    require_tool("arm-none-eabi-gcc")
    source = content_digest(DIGITS)
    found = run_job(Job("digits.tflite", source, "rpi_pico", simulate=True, cases=1), {source: DIGITS})
    assert not found.error, found
    assert found.figures["flash_bytes"] > 5000
    assert 0.001 < found.figures["seconds"] < 0.01
