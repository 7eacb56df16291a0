"""Budgets: written, read, compared; and the command that holds a model to one."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crtgen.cli.app import app
from crtgen.errors import MismatchError, UsageError
from crtgen.measure.budget import Budget, Entry, compare, read_budget, write_budget
from tests.report.reports import figures
from tests.support import ROOT, model_path, require_tool

FIGURES = {"instructions": 100_000, "arena_bytes": 4_000, "ram_bytes": 4_010, "flash_bytes": 50_000}
LAYERS = {"model/a": 60_000, 'odd "name"\\': 30_000, "c": 10_000}


def entry(figures: dict[str, int] | None = None, layers: dict[str, int] | None = None) -> Entry:
    return Entry("net", "board", "speed", FIGURES | (figures or {}), LAYERS | (layers or {}))


def test_a_measured_model_meets_the_budget_made_from_it() -> None:
    measured = figures("size", 10, 4000, ram=310, layers=(("a", 7), ("b", 2)))
    made = Entry.of(measured)
    assert made == Entry(
        "net",
        "board",
        "size",
        {"instructions": 10, "arena_bytes": 90, "ram_bytes": 310, "flash_bytes": 4000},
        {"a": 7, "b": 2},
    )
    assert compare(made, made) == ()


def test_a_budget_is_read_as_it_was_written(tmp_path: Path) -> None:
    budget = Budget((entry(), Entry("other", "board", "size", {"flash_bytes": 1}, {})), 0.01)
    write_budget(tmp_path / "budget.toml", budget)
    assert read_budget(tmp_path / "budget.toml") == budget


def test_entries_are_replaced_and_sorted() -> None:
    old = Budget((entry(), Entry("aaa", "board", "speed", {}, {})), 0.01)
    new = old.updated([entry({"instructions": 5})])
    assert [(e.model, e.figures.get("instructions")) for e in new.entries] == [("aaa", None), ("net", 5)]
    assert new.tolerance == 0.01


@pytest.mark.parametrize(
    ("figures", "tolerance", "worse"),
    [
        ({"instructions": 100_500}, 0.005, []),
        ({"instructions": 100_501}, 0.005, ["instructions"]),
        ({"instructions": 90_000, "flash_bytes": 50_251}, 0.005, ["flash_bytes"]),
        ({"arena_bytes": 4_100}, 0.0, []),
        ({"arena_bytes": 4_101, "ram_bytes": 9_000}, 0.0, ["arena_bytes", "ram_bytes"]),
    ],
)
def test_what_is_worse(figures: dict[str, int], tolerance: float, worse: list[str]) -> None:
    assert [e.metric for e in compare(entry(), entry(figures), tolerance)] == worse


def test_layers_are_blamed_the_worst_first() -> None:
    actual = entry({"instructions": 142_000}, {"model/a": 62_000, "c": 9_000, "new": 40_000})
    (excess,) = compare(entry(), actual)
    assert str(excess).splitlines() == [
        "net on board: instructions 142,000, budget 100,000 (+42.0%)",
        "  new: 40,000 instructions, budget 0 (+40,000)",
        "  model/a: 62,000 instructions, budget 60,000 (+2,000)",
    ]
    assert excess.to_dict()["blame"][1] == {"layer": "model/a", "allowed": 60_000, "actual": 62_000}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tolerance = ", "the budget cannot be read"),
        ("limit = 3", "a budget has a tolerance and entries"),
        ("tolerance = 'much'", "the tolerance is a part of one"),
        ("tolerance = nan", "the tolerance is a part of one"),
        ("tolerance = -0.1", "the tolerance is a part of one"),
        ("entry = " + "[" * 5000, "the budget cannot be read: maximum recursion depth"),
        ("[[entry]]\nmodel = 'a'\nboard = 'b'", "an entry names a model, a board and a level"),
        ("[[entry]]\nmodel = 'a'\nboard = 'b'\noptimize = 'size'\ncycles = 3", "there is no figure cycles"),
        (
            "[[entry]]\nmodel = 'a'\nboard = 'b'\noptimize = 'size'\nram_bytes = 3.5",
            "figures are whole numbers",
        ),
    ],
)
def test_broken_budgets(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "budget.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_budget(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_budget(tmp_path / "none.toml")


@pytest.mark.qemu
@pytest.mark.models
def test_the_command_holds_a_model_to_its_budget(tmp_path: Path) -> None:
    require_tool("qemu-system-arm")
    path, runner = tmp_path / "budget.toml", CliRunner()
    model = str(model_path("hello_world_int8"))
    made = runner.invoke(app, ["bench", model, "--budget", str(path), "--update", "--json"])
    assert made.exit_code == 0
    (result,) = json.loads(made.stdout)["results"]
    (known,) = read_budget(path).entries
    assert known.figures["flash_bytes"] == result["flash_bytes"]
    assert set(known.layers) == {layer["name"] for layer in result["layers"]}

    lower = Entry(*known.key, {**known.figures, "flash_bytes": result["flash_bytes"] - 500}, known.layers)
    write_budget(path, Budget((lower,)))
    held = runner.invoke(app, ["bench", model, "--budget", str(path), "--json"])
    assert held.exit_code == MismatchError.exit_code
    (worse,) = json.loads(held.stdout)["worse"]
    assert (worse["metric"], worse["actual"] - worse["allowed"]) == ("flash_bytes", 500)


def test_a_budget_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"budget\.toml: it cannot be written: No such file"):
        write_budget(tmp_path / "absent" / "budget.toml", Budget((entry(),)))


@pytest.mark.cc
def test_a_budget_has_every_model_on_every_board(tmp_path: Path) -> None:
    """A model is found by its name, which is not quite that of its file."""
    require_tool("gcc")
    one, other = tmp_path / "My-Digits.tflite", tmp_path / "other.tflite"
    for path in (one, other):
        path.write_bytes((ROOT / "demo" / "digits.tflite").read_bytes())
    bench = ["bench", "--json", "--budget", str(tmp_path / "budget.toml"), str(one)]
    runner = CliRunner()
    assert runner.invoke(app, [*bench, "--board", "host", "--update"]).exit_code == 0
    assert runner.invoke(app, bench).exit_code == 0

    def missing(*arguments: str) -> str:
        done = runner.invoke(app, [*bench, *arguments])
        assert done.exit_code == UsageError.exit_code
        return str(json.loads(done.stdout)["message"])

    assert missing(str(other)) == "the budget has no entry for other"
    assert missing(str(other), "--board", "host") == "the budget has no entry for other on host"
    elsewhere = ("--board", "host", "--board", "mps2_an386")
    assert missing(*elsewhere) == "the budget has no entry for my_digits on mps2_an386"


@pytest.mark.parametrize("update", [[], ["--update"]])
def test_two_models_of_one_name(tmp_path: Path, update: list[str]) -> None:
    models = [tmp_path / folder / "digits.tflite" for folder in ("a", "b")]
    for path in models:
        path.parent.mkdir()
        path.write_bytes((ROOT / "demo" / "digits.tflite").read_bytes())
    budget = tmp_path / "budget.toml"
    write_budget(budget, Budget(()))
    done = CliRunner().invoke(app, ["bench", *map(str, models), "--json", "--budget", str(budget), *update])
    assert done.exit_code == UsageError.exit_code
    error = json.loads(done.stdout)
    assert (error["message"], error["where"]) == ("a budget has one model digits", str(models[1]))
    assert read_budget(budget) == Budget(())
