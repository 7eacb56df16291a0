"""A folder with crtgen.toml: init, check, test, and every command without arguments."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from crtgen.base.errors import MismatchError, UsageError
from crtgen.cli.app import app
from crtgen.lab.measure.lock import Lock, read_lock, write_lock
from tests.support import ROOT, check_schema, require_tool

runner = CliRunner()


def crtgen(*args: str) -> Result:
    return runner.invoke(app, list(args), catch_exceptions=False)


def as_json(*args: str, code: int = 0) -> dict[str, Any]:
    result = crtgen(*args, "--json")
    assert result.exit_code == code, result.output
    return dict(json.loads(result.stdout))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the demonstration's model and its cases."""
    (tmp_path / ".git").mkdir()
    for name in ("digits.tflite", "digits.npz"):
        shutil.copy(ROOT / "demo" / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_writes_what_is_in_the_folder(folder: Path) -> None:
    assert as_json("init", "--board", "host", "--board", "mps2_an386") == {
        "files": ["crtgen.toml"],
        "models": ["digits.tflite"],
    }
    text = (folder / "crtgen.toml").read_text()
    assert 'boards = ["host", "mps2_an386"]' in text
    assert '[[model]]\nfile = "digits.tflite"\nexpect = "digits.npz"\n' in text
    again = as_json("init", code=UsageError.exit_code)
    assert (again["where"], again["message"]) == ("crtgen.toml", "the file exists already")


def test_the_file_of_a_ci_comes_later_too(folder: Path) -> None:
    assert crtgen("init").exit_code == 0
    assert as_json("init", "--ci", "github")["files"] == [".github/workflows/crtgen.yml"]
    again = as_json("init", "--ci", "github", code=UsageError.exit_code)
    assert again["where"] == ".github/workflows/crtgen.yml"


@pytest.mark.cc
def test_an_example_to_begin_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "crtgen init --example" in as_json("init", code=UsageError.exit_code)["hint"]
    made = as_json("init", "--example", "--board", "host")["files"]
    assert made == ["digits.tflite", "digits.npz", "digit.npz", "crtgen.toml"]
    found = as_json("run", "--input", "digit.npz")["outputs"]["probabilities"][0]
    assert found.index(max(found)) == 7
    assert as_json("init", "--example", code=UsageError.exit_code)["where"] == "digits.tflite"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--board", "mps2_an38"], "unknown board mps2_an38"),
        (["--ci", "jenkins"], "unknown CI jenkins"),
        (["../digits.tflite"], "the model cannot be read"),
    ],
)
def test_what_init_refuses(folder: Path, arguments: list[str], message: str) -> None:
    assert message in as_json("init", *arguments, code=UsageError.exit_code)["message"]
    assert not (folder / "crtgen.toml").exists()


@pytest.mark.parametrize(
    ("ci", "name", "schema"),
    [
        ("github", ".github/workflows/crtgen.yml", "vendor.github-workflows"),
        ("gitlab", ".gitlab-ci.yml", "vendor.gitlab-ci"),
    ],
)
def test_files_of_ci_are_as_their_schema_says(folder: Path, ci: str, name: str, schema: str) -> None:
    assert crtgen("init", "--ci", ci).exit_code == 0
    check_schema(schema, folder / name)
    text = (folder / name).read_text()
    assert "crtgen check" in text
    assert "crtgen test --junit crtgen.xml" in text


@pytest.mark.cc
def test_commands_need_no_arguments_there(folder: Path) -> None:
    (folder / "crtgen.toml").write_text(
        'boards = ["host"]\noptimize = "size"\nstack = "4K"\n'
        '[[model]]\nfile = "digits.tflite"\nexpect = "digits.npz"\n'
    )
    assert as_json("inspect")["optimize"] == "size"
    assert as_json("verify")["cases"] == 10
    shutil.copy("digits.tflite", "other.tflite")
    assert as_json("verify", "other.tflite")["cases"] == 4, "the cases are those of another model"
    assert as_json("run")["board"] == "host"
    assert as_json("generate")["directory"] == "firmware"
    assert as_json("build")["artefact"].endswith("firmware/build/firmware")
    assert json.loads((folder / "firmware" / "project.json").read_text())["options"]["stack"] == 4096
    assert as_json("inspect", "--optimize", "speed")["optimize"] == "speed"
    fits = as_json("fit", "--board", "mps2_an386", "--board", "mps3_an547")["fits"]
    assert [(fit["model"], fit["board"]) for fit in fits] == [
        ("digits", "mps2_an386"),
        ("digits", "mps3_an547"),
    ]


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("boards = 'host'", "crtgen.toml: boards", "expected a list of texts"),
        ("optimise = 'size'", "crtgen.toml: optimise", "no command has this option"),
        ("[[model]]\nfil = 'a'", "crtgen.toml: model 1.file", "the key is missing"),
        ("[[model]]\nfile = 'a'\nexpects = 'b'", "crtgen.toml: model 1.expects", "unknown key"),
        ("[[model]]\nfile = 'a'\nbudget = {ram = 1}", "crtgen.toml: model 1.budget.ram", "unknown key"),
        (
            "[[model]]\nfile = 'a'\nbudget = {ram_bytes = -1}",
            "model 1.budget.ram_bytes",
            "expected an integer",
        ),
        ("[[model]]\nfile = 'a'\nbudget = {accuracy = 0.9}", "model 1.data", "accuracy is a budget"),
        ("[[model]]\nfile = 'a'\nbudget = {goal = 'x'}", "model 1.budget.goal", "unknown goal 'x'"),
        ("[[model]]\nfile = 'a'\nbudget = {auc = -1}", "model 1.budget.auc", "a number from 0 on"),
        ("model = 3", "crtgen.toml: model", "expected an array of tables"),
        ("optimize = {a = 1}", "crtgen.toml: optimize", "expected no table"),
        ("boards = [", "crtgen.toml", "cannot be read"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(folder: Path, text: str, where: str, message: str) -> None:
    (folder / "crtgen.toml").write_text(text)
    for command in ("boards", "check"):
        done = crtgen(command)
        assert done.exit_code == UsageError.exit_code
        assert where in done.stderr
        assert message in done.stderr
    if text.startswith("optimise"):
        assert "did you mean optimize?" in done.stderr


@pytest.mark.qemu
def test_check_holds_models_to_budget_and_lock(folder: Path) -> None:
    require_tool("qemu-system-arm")
    settings = folder / "crtgen.toml"
    settings.write_text('boards = ["nucleo_l4r5zi"]\n[[model]]\nfile = "digits.tflite"\n')
    assert as_json("check", code=UsageError.exit_code)["message"] == "there is no lock yet"
    first = as_json("check", "--update")["entries"]
    assert [(e["board"], e["changed"]) for e in first] == [("nucleo_l4r5zi", True)]
    assert {"cycles_estimated", "flash_bytes", "image_flash_bytes", "stack_bytes"} <= set(first[0])
    assert 10_000 < first[0]["instructions"] < 100_000, "counted by an emulator with its core"
    again = as_json("check")
    assert [e["changed"] for e in again["entries"]] == [False]
    assert again["worse"] == []

    lock = read_lock(folder / "crtgen.lock.json")
    (before,) = [e for e in lock.entries if e.board == "nucleo_l4r5zi"]
    figures = {**before.figures, "flash_bytes": before.figures["flash_bytes"] - 500}
    changed = before.__class__(*before.key, "other", before.toolchain, figures, {})
    write_lock(folder / "crtgen.lock.json", lock.updated([changed]))
    (worse,) = as_json("check", code=MismatchError.exit_code)["worse"]
    assert (worse["board"], worse["metric"]) == ("nucleo_l4r5zi", "flash_bytes")
    assert worse["actual"] - worse["allowed"] == 500
    write_lock(folder / "crtgen.lock.json", lock)

    settings.write_text(settings.read_text() + "budget = {arena_bytes = 100, flash_bytes = '900K'}\n")
    over = as_json("check", code=MismatchError.exit_code)["worse"]
    assert [(e["metric"], e["allowed"]) for e in over] == [("arena_bytes", 100)]


@pytest.mark.cc
def test_check_tells_another_compiler_from_other_code(folder: Path) -> None:
    arguments = ["check", "digits.tflite", "--board", "host"]
    as_json(*arguments, "--update")
    path = folder / "crtgen.lock.json"
    (own,) = read_lock(path).entries
    elsewhere = replace(own, toolchain="gcc (Distant 1) 99.1", figures={**own.figures, "arena_bytes": 1})
    write_lock(path, Lock((elsewhere,)))
    done = crtgen(*arguments)
    assert done.exit_code == MismatchError.exit_code, "nobody has looked at these figures"
    text = " ".join(done.stdout.split())
    assert f"locked by another compiler, gcc (Distant 1) 99.1; {own.toolchain} gives arena_bytes 1 ->" in text
    assert "--update adds an entry for this one" in text
    as_json(*arguments, "--update")
    assert read_lock(path).entries == tuple(sorted((own, elsewhere), key=lambda e: e.toolchain))
    (entry,) = as_json(*arguments)["entries"]
    assert "locked_by" not in entry
    assert not entry["changed"]


@pytest.mark.cc
def test_check_holds_a_model_to_how_good_it_is(folder: Path) -> None:
    with np.load(ROOT / "demo" / "digits.npz") as arrays:
        x = np.stack([arrays[f"case{n}_input0"] for n in range(10)])
        y = np.array([int(arrays[f"case{n}_output0"].argmax()) for n in range(10)])
    y[0] = (y[0] + 1) % 10
    np.savez(folder / "data.npz", x=x, y=y)
    settings = folder / "crtgen.toml"
    model = 'boards = ["host"]\n[[model]]\nfile = "digits.tflite"\ndata = "data.npz"\n'
    settings.write_text(f'{model}budget = {{goal = "mlperf-kws"}}\n')
    assert as_json("check", "--update")["poor"] == []
    settings.write_text(f'{model}budget = {{goal = "mlperf-kws", accuracy = 0.95}}\n')
    poor = as_json("check", code=MismatchError.exit_code)["poor"]
    assert poor == ["digits on host: accuracy 0.9, at least 0.95 wanted"]
    y[1] = (y[1] + 1) % 10
    np.savez(folder / "data.npz", x=x, y=y)
    settings.write_text(model)
    poor = as_json("check", code=MismatchError.exit_code)["poor"]
    assert poor == ["digits on host: accuracy 0.8, at least 0.9 wanted"], "what is locked"
    as_json("check", "--update")
    assert as_json("eval")["accuracy"] == pytest.approx(0.8)
    (folder / "labels.txt").write_text("\n".join(map(str, range(10))))
    for number, (row, label) in enumerate(zip(x, y, strict=True)):
        (folder / "clips" / str(label)).mkdir(parents=True, exist_ok=True)
        np.save(folder / "clips" / str(label) / f"{number}.npy", row)
    settings.write_text(model.replace("data.npz", "clips") + 'labels = "labels.txt"\n')
    (entry,) = as_json("check")["entries"]
    assert entry["accuracy"] == pytest.approx(0.8)


@pytest.mark.qemu
def test_check_names_the_layer(folder: Path) -> None:
    require_tool("qemu-system-arm")
    arguments = ["check", "digits.tflite", "--board", "mps2_an386"]
    as_json(*arguments, "--update")
    lock = read_lock(folder / "crtgen.lock.json")
    (entry,) = lock.entries
    layer = max(entry.layers, key=entry.layers.__getitem__)
    figures = {**entry.figures, "instructions": entry.figures["instructions"] - 5000}
    layers = {**entry.layers, layer: entry.layers[layer] - 5000}
    changed = entry.__class__(*entry.key, "other", entry.toolchain, figures, layers)
    write_lock(folder / "crtgen.lock.json", Lock((changed,)))
    done = crtgen(*arguments)
    assert done.exit_code == MismatchError.exit_code
    assert re.search(rf"  {layer}: [0-9,]+ instructions, before {layers[layer]:,} \(\+[45],", done.stdout)
    assert "--update locks it" in done.stdout


@pytest.mark.qemu
def test_test_runs_every_target_that_is_there(folder: Path) -> None:
    """Of a board that is not here the image is built, and an emulator with its core runs the kernels."""
    require_tool("qemu-system-arm")
    (folder / "crtgen.toml").write_text(
        'boards = ["nucleo_l4r5zi"]\n[[model]]\nfile = "digits.tflite"\nexpect = "digits.npz"\n'
    )
    outcomes = as_json("test", "--junit", "r.xml")["outcomes"]
    assert [(o["board"], o["target"], o["cases"], o["stand_in"]) for o in outcomes] == [
        ("host", "host", 10, None),
        ("nucleo_l4r5zi", "emulator", 10, "mps2_an386"),
    ]
    suites = ElementTree.parse(folder / "r.xml").getroot()
    assert [suite.get("tests") for suite in suites] == ["10", "10"]
    assert as_json("test", "--require", "emulator")["outcomes"][1]["cases"] == 10
    below = crtgen("test", "--require", "board")
    assert below.exit_code == 1
    assert "not tested on the target of --require board: digits on nucleo_l4r5zi" in below.stderr


@pytest.mark.qemu
def test_a_board_that_nothing_stands_for_is_built_and_said_to_be_untested(folder: Path) -> None:
    (folder / "crtgen.toml").write_text('boards = ["ek_ra8m1"]\n[[model]]\nfile = "digits.tflite"\n')
    outcomes = as_json("test", "--cases", "1")["outcomes"]
    assert [(o["target"], o["skipped"]) for o in outcomes] == [
        ("host", None),
        ("board", "built; no ek_ra8m1 is connected, no emulator has its core"),
    ]
    assert crtgen("test", "--require", "emulator").exit_code == 1


@pytest.mark.cc
def test_what_is_wrong_on_a_target(folder: Path) -> None:
    import numpy as np

    cases = dict(np.load("digits.npz"))
    cases["case1_output0"][0, 3] ^= 1
    np.savez(folder / "digits.npz", **cases)
    (folder / "crtgen.toml").write_text('[[model]]\nfile = "digits.tflite"\nexpect = "digits.npz"\n')
    (outcome,) = as_json("test", "--junit", "r.xml", code=MismatchError.exit_code)["outcomes"]
    assert outcome["failed"] == 1
    assert "[0, 3]" in outcome["differences"]["case1"]
    failures = ElementTree.parse(folder / "r.xml").getroot().findall(".//failure")
    assert len(failures) == 1
    as_json(
        "verify",
        "digits.tflite",
        "--board",
        "host",
        "--expect",
        "digits.npz",
        "--junit",
        "v.xml",
        code=MismatchError.exit_code,
    )
    assert len(ElementTree.parse(folder / "v.xml").getroot().findall(".//failure")) == 1
