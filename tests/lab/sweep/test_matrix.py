"""``sweep.toml``: which jobs there are, and what is said of mistakes."""

from pathlib import Path

import pytest

from crtgen.base.errors import UsageError
from crtgen.boards import find_board
from crtgen.lab.measure.targets import target_of
from crtgen.lab.sweep.address import content_digest
from crtgen.lab.sweep.matrix import read_sweep
from tests.support import ROOT

BASE = 'models = ["a.tflite", "b.tflite"]\nboards = ["mps2_an386", "host"]\noptimize = ["speed", "size"]\n'


def written(folder: Path, text: str) -> Path:
    """A sweep beside two models, which nothing reads as such."""
    for name in ("a", "b"):
        (folder / f"{name}.tflite").write_bytes(name.encode())
    file = folder / "sweep.toml"
    file.write_text(text)
    return file


def cells(file: Path) -> list[str]:
    """The jobs as text."""
    return [f"{job.model[0]} {job.board} {job.options.label()}" for job in read_sweep(file).jobs]


def test_all_combinations_model_by_model(tmp_path: Path) -> None:
    sweep = read_sweep(written(tmp_path, BASE + "cases = 2"))
    assert cells(sweep.path) == [
        f"{model} {board} {level}"
        for model in "ab"
        for board in ("mps2_an386", "host")
        for level in ("speed", "size")
    ]
    assert {job.cases for job in sweep.jobs} == {2}
    assert sweep.jobs[0].source == content_digest(b"a")
    assert sweep.contents == {content_digest(b"a"): b"a", content_digest(b"b"): b"b"}


def test_rules(tmp_path: Path) -> None:
    text = BASE + '[[exclude]]\nmodels = ["a*"]\noptimize = ["size"]\n[[exclude]]\nboards = ["host"]\n'
    assert cells(written(tmp_path, text)) == ["a mps2_an386 speed", "b mps2_an386 speed", "b mps2_an386 size"]
    text = BASE + '[[include]]\nmodels = ["a.tflite"]\nboards = ["host"]\nfold = [false, true]\n'
    assert cells(written(tmp_path, text))[8:] == ["a host balanced, fold no", "a host balanced"]


def test_a_job_is_there_once(tmp_path: Path) -> None:
    text = BASE + '[[include]]\nmodels = ["a.tflite"]\noptimize = ["speed", "speed"]\n'
    assert len(cells(written(tmp_path, text))) == 8


def test_options_are_those_of_commands(tmp_path: Path) -> None:
    text = BASE + 'place = [[], ["arena=ram"]]\nexecutor = ["graph"]\ntoolchain = ["zig"]\n'
    jobs = read_sweep(written(tmp_path, text)).jobs
    assert jobs[1].options.label() == "speed, executor graph, place arena=ram, toolchain zig"
    assert jobs[1].tools(find_board("mps2_an386")) == ("zig", "qemu")
    jobs = read_sweep(written(tmp_path, BASE + 'cores = [1, 2]\nfeed = ["", "rows"]\n')).jobs
    assert [job.options.label() for job in jobs[:4]] == [
        "speed",
        "speed, feed rows",
        "speed, cores 2",
        "speed, cores 2, feed rows",
    ]
    assert jobs[0].digest("c", "t") != jobs[1].digest("c", "t") != jobs[1].digest("d", "t")
    assert jobs[0].digest("c", "t") == read_sweep(tmp_path / "sweep.toml").jobs[0].digest("c", "t")


def test_models_and_boards_of_the_settings(tmp_path: Path) -> None:
    """With the cases that the settings name."""
    (tmp_path / "a.npz").write_bytes(b"cases")
    (tmp_path / ".git").mkdir()
    (tmp_path / "crtgen.toml").write_text(
        'boards = ["host"]\n[[model]]\nfile = "a.tflite"\nexpect = "a.npz"\n[[model]]\nfile = "b.tflite"\n'
    )
    first, second = read_sweep(written(tmp_path, "")).jobs
    assert (first.model, first.board, first.expect) == ("a.tflite", "host", content_digest(b"cases"))
    assert (second.model, second.expect) == ("b.tflite", "")


def test_a_board_of_ones_own_travels(tmp_path: Path) -> None:
    content = (ROOT / "boards" / "mps2_an385.toml").read_bytes()
    (tmp_path / "my_board.toml").write_bytes(content)
    text = 'models = ["*.tflite"]\nboards = ["./my_board.toml"]\n'
    sweep = read_sweep(written(tmp_path, text))
    assert {job.board for job in sweep.jobs} == {"my_board"}
    assert sweep.contents[sweep.jobs[0].own_board] == content


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        (BASE + 'optimise = ["size"]', "optimise", "did you mean optimize?"),
        ('model = ["a.tflite"]\nboards = ["host"]', "model", "did you mean models?"),
        (BASE.replace('"size"', '"sise"'), "optimize", "did you mean size?"),
        (BASE + "fold = [1]", "fold", "true or false"),
        (BASE + "fold = true", "fold", "a list of values"),
        (BASE + 'place = ["arena=dtcm"]', "place", "a list of texts"),
        (BASE + 'place = [["arena"]]', "place", "is not of the form PART=MEMORY"),
        (BASE + 'codegen = [["cmsis"]]', "codegen", "did you mean cmsis-nn?"),
        (BASE + "cores = [3]", "cores", "3 cores; known: 1, 2"),
        (BASE + 'feed = ["row"]', "feed", "did you mean rows?"),
        (BASE + "cases = -1", "cases", "expected an integer"),
        (BASE + '[[exclude]]\nboard = ["host"]', "exclude 1.board", "did you mean boards?"),
        (BASE + '[[exclude]]\nboards = ["hose"]', "exclude 1.boards", "did you mean host?"),
        (BASE + "[[exclude]]", "exclude 1", "excludes everything"),
        (BASE + '[[exclude]]\nboards = ["*"]', "sweep.toml", "no job is left"),
        (BASE.replace("mps2_an386", "mps2_an387"), "", "did you mean mps2_an386?"),
        (BASE.replace('"b.tflite"', '"c*.tflite"'), "models", "no file is called like c*.tflite"),
        (BASE.replace('"b.tflite"', '"c.tflite"'), "c.tflite", "No such file"),
        ('boards = ["host"]', "models", "no model is named"),
        ('models = ["a.tflite"]', "boards", "no board is named"),
        ("models = [", "sweep.toml", "cannot be read"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, where: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_sweep(written(tmp_path, text))
    assert where in caught.value.where
    assert said in f"{caught.value.message} {caught.value.hint}"


def test_patterns_with_a_whole_path(tmp_path: Path) -> None:
    text = f'models = ["{tmp_path}/*.tflite"]\nboards = ["host"]'
    assert cells(written(tmp_path, text)) == ["a host balanced", "b host balanced"]


def test_two_files_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.tflite").write_bytes(b"x")
    text = 'models = ["a.tflite", "x/a.tflite"]\nboards = ["host"]'
    with pytest.raises(UsageError, match=r"two files are called a\.tflite"):
        read_sweep(written(tmp_path, text))


def test_boards_that_could_be_connected_may_be_simulated(tmp_path: Path) -> None:
    """Then no worker with such a board is wanted, and the result lies at another address."""
    text = 'models = ["a.tflite"]\nboards = ["rpi_pico", "nrf52840dk"]\n'
    real = read_sweep(written(tmp_path, text)).jobs
    simulated = read_sweep(written(tmp_path, text + "simulate = true\n")).jobs
    pico, nordic = find_board("rpi_pico"), find_board("nrf52840dk")
    assert [target_of(pico, jobs[0].site(pico)) for jobs in (real, simulated)] == ["board", "emulator"]
    assert target_of(nordic, simulated[1].site(nordic)) == "board"
    assert [jobs[0].tools(pico) for jobs in (real, simulated)] == [("gcc",), ("gcc", "rp2040js")]
    assert real[0].digest("c", "t") != simulated[0].digest("c", "t")
    with pytest.raises(UsageError, match="expected true or false"):
        read_sweep(written(tmp_path, text + 'simulate = "yes"\n'))
