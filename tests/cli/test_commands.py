"""The commands as a user types them, on the demonstration model."""

import inspect
import json
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from crtgen import api
from crtgen.base.errors import BuildError, ToolMissingError
from crtgen.base.installing import how_to_install
from crtgen.cli.app import app
from crtgen.cli.groups import flattened
from crtgen.firmware.builder.west import ZephyrWorkspace
from tests.support import ROOT, require_tool

DIGITS = str(ROOT / "demo" / "digits.tflite")
CASES = str(ROOT / "demo" / "digits.npz")
DIGIT = str(ROOT / "demo" / "digit.npz")

runner = CliRunner()


def crtgen(*args: str) -> Result:
    return runner.invoke(app, list(args), catch_exceptions=False)


def as_json(*args: str) -> dict[str, Any]:
    result = crtgen(*args, "--json")
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


@pytest.mark.cc
def test_run_on_the_host_recognises_the_digit(tmp_path: Path) -> None:
    output = tmp_path / "y.npz"
    data = as_json("run", DIGITS, "--board", "host", "--input", DIGIT, "--output", str(output))
    probabilities = np.array(data["outputs"]["probabilities"])
    expected = np.load(CASES)["case7_output0"]
    assert probabilities.argmax() == 7
    np.testing.assert_array_equal(probabilities, expected)
    np.testing.assert_array_equal(np.load(output)["probabilities"], expected)
    assert data["instructions"] is None
    assert data["macs"] == 8 * 8 * 8 * 9 + 4 * 4 * 16 * 72 + 640


@pytest.mark.qemu
def test_run_in_qemu_counts_instructions_and_bytes() -> None:
    require_tool("qemu-system-arm")
    data = as_json("run", DIGITS, "--board", "mps2_an386", "--input", DIGIT)
    assert np.array(data["outputs"]["probabilities"]).argmax() == 7
    assert 10_000 < data["instructions"] < 100_000
    image = data["image"]
    assert data["image_flash_bytes"] == image["flash"] == image["text"] + image["rodata"] + image["data"]
    again = as_json("run", DIGITS, "--board", "mps2_an386", "--input", DIGIT)
    assert abs(again["instructions"] - data["instructions"]) <= 2 * 40, (
        "a tick of the timer is 40 instructions"
    )


@pytest.mark.qemu
def test_run_prints_a_profile() -> None:
    require_tool("qemu-system-arm")
    result = crtgen("run", DIGITS, "--board", "mps2_an386", "--input", DIGIT, "--profile")
    assert result.exit_code == 0
    assert "[7] 0.996094" in result.stdout
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith(("conv2d", "softmax"))]
    assert [row[0] for row in rows] == ["conv2d", "conv2d_1", "softmax"]


@pytest.mark.cc
def test_verify_accepts_the_right_and_names_the_first_wrong_output(tmp_path: Path) -> None:
    assert crtgen("verify", DIGITS, "--board", "host", "--expect", CASES).exit_code == 0
    cases = dict(np.load(CASES))
    wrong = cases["case3_output0"].copy()
    wrong[0, 4] += 1
    np.savez(tmp_path / "wrong.npz", **(cases | {"case3_output0": wrong}))
    result = crtgen("verify", DIGITS, "--board", "host", "--expect", str(tmp_path / "wrong.npz"))
    assert result.exit_code == 8
    line = next(line for line in result.stdout.splitlines() if line.startswith("case3"))
    right = int(wrong[0, 4]) - 1
    assert line == (
        f"case3: output probabilities[0, 4]: expected {right + 1}, got {right} (1 of 10 elements differ)"
    )


@pytest.mark.cc
def test_verify_against_the_reference() -> None:
    data = as_json("verify", DIGITS, "--board", "host", "--cases", "3")
    assert (data["cases"], data["failed"]) == (3, 0)


@pytest.mark.cc
def test_generate_then_build_then_run(tmp_path: Path) -> None:
    project = tmp_path / "digits"
    generated = as_json("generate", DIGITS, str(project), "--board", "host")
    assert generated["files"] == sum(1 for p in project.rglob("*") if p.is_file())
    built = as_json("build", str(project))
    assert Path(built["artefact"]) == project / "build" / "firmware"
    assert built["arena"] == generated["arena_bytes"] + 2 * 16  # the guards on either side
    data = as_json("run", str(project), "--input", DIGIT)
    assert np.array(data["outputs"]["probabilities"]).argmax() == 7


def test_generate_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    one = as_json("generate", DIGITS, str(tmp_path / "one"))
    two = as_json("generate", DIGITS, str(tmp_path / "two"))
    assert one["digest"] == two["digest"]


def test_inspect_shows_layers_and_memory() -> None:
    data = as_json("inspect", DIGITS)
    assert [layer["operator"] for layer in data["layers"]] == [
        "conv2d",
        "max_pool2d",
        "conv2d",
        "max_pool2d",
        "reshape",
        "fully_connected",
        "softmax",
    ]
    assert data["inputs"][0]["shape"] == [1, 8, 8, 1]
    assert data["inputs"][0]["scale"] == pytest.approx(16 / 255)
    assert data["arena_lower_bound"] <= data["arena_bytes"]
    assert "conv2d(%image" in crtgen("inspect", DIGITS, "--graph").stdout
    assert crtgen("inspect", DIGITS, "--arena").exit_code == 0


def test_boards_lists_every_board() -> None:
    names = {board["name"] for board in as_json("boards")["boards"]}
    assert {
        "host",
        "mps2_an385",
        "mps2_an386",
        "mps2_an500",
        "mps2_an505",
        "mps2_an521",
        "mps3_an547",
    } <= names


@pytest.mark.parametrize("command", [(), ("run",), ("bench",)])
def test_help_has_a_short_option(command: tuple[str, ...]) -> None:
    short, long = (crtgen(*command, option) for option in ("-h", "--help"))
    assert (short.exit_code, short.stdout) == (0, long.stdout)
    assert {(): "Folders of models, CI", ("run",): "From a model to"}.get(command, "") in short.stdout


def test_inspect_shows_all_that_is_asked_for() -> None:
    text = crtgen("inspect", DIGITS, "--graph", "--arena", "--modules").stdout
    assert text.index("graph digits") < text.index("arena 880 bytes, the least possible")
    assert text.index("arena 880 bytes") < text.index("function digits_run")
    plain = crtgen("inspect", DIGITS).stdout
    assert "arena 880 bytes (the least possible)" in plain
    row = next(line.split() for line in plain.splitlines() if line.startswith("conv2d_1"))
    assert row == ["conv2d_1", "conv2d", "1x4x4x16", "dsp_matrix", "18,432", "1,216", "624"]


def test_inspect_tells_programs_the_graph_and_where_values_lie() -> None:
    data = as_json("inspect", DIGITS)
    assert data["graph"].startswith("graph digits")
    place = {"shape": [1, 8, 8, 1], "dtype": "int8", "offset": 288, "bytes": 64, "part": ""}
    assert data["arena"]["image"] == {**place, "first": 0, "last": 1}
    layer = next(layer for layer in data["layers"] if layer["name"] == "conv2d_1")
    assert (layer["macs"], layer["weights_bytes"]) == (18432, 1216)
    assert layer["scratch"] == {"offset": 0, "bytes": 624, "part": ""}


def test_the_command_after_compile_names_a_model_of_several(tmp_path: Path) -> None:
    other = tmp_path / "other.tflite"
    other.write_bytes(Path(DIGITS).read_bytes())
    archive = str(tmp_path / "both.tar")
    result = crtgen("compile", DIGITS, str(other), "-o", archive)
    assert f"next: crtgen run {archive} --board mps2_an386 --trust --model digits\n" in result.stdout


def test_a_model_of_several_is_asked_for_before_the_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build = "crtgen.api.GeneratedProject.build"
    monkeypatch.setattr(build, lambda *args, **options: pytest.fail("it was built"))
    other = tmp_path / "other.tflite"
    other.write_bytes(Path(DIGITS).read_bytes())
    archive = str(tmp_path / "both.tar")
    assert crtgen("compile", DIGITS, str(other), "-o", archive).exit_code == 0
    result = crtgen("run", archive, "--trust")
    assert result.exit_code == 2
    assert "name one with --model: digits, other" in " ".join(result.stderr.split())


def test_doctor_marks_what_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zephyr is of use with west only; neither is needed."""

    def absent(name: str, install: str) -> Path:
        raise ToolMissingError(f"{name} is not installed", hint=install)

    monkeypatch.setattr("crtgen.cli.doctor.find_program", absent)
    monkeypatch.setattr("crtgen.cli.doctor.find_workspace", lambda: ZephyrWorkspace(Path("/z"), (3, 7, 0)))
    result = crtgen("doctor")
    marks = {line.split()[0]: line.split()[1] for line in result.stdout.splitlines() if len(line.split()) > 2}
    assert (marks["Zephyr"], marks["cmake"], result.exit_code) == ("optional", "missing", 1)


@pytest.mark.parametrize(
    ("system", "there", "command"),
    [
        ("linux", {"apt-get"}, "apt install qemu-system-arm"),
        ("linux", {"dnf"}, "dnf install qemu-system-arm-core"),
        ("darwin", {"apt-get"}, "brew install qemu"),
        ("win32", set(), "winget install SoftwareFreedomConservancy.QEMU"),
    ],
)
def test_what_installs_a_program_is_the_systems_own(
    monkeypatch: pytest.MonkeyPatch, system: str, there: set[str], command: str
) -> None:
    monkeypatch.setattr("crtgen.base.installing.sys.platform", system)
    monkeypatch.setattr("crtgen.base.installing.shutil.which", lambda name: name if name in there else None)
    assert how_to_install("qemu-system-arm") == command


def test_doctor_says_what_is_there() -> None:
    require_tool("qemu-system-arm")
    checks = {check["name"]: check for check in as_json("doctor")["checks"]}
    assert "qemu-system-arm" in checks["qemu-system-arm"]["found"]
    assert checks["cmake"]["found"]


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("run", "nowhere.tflite"), 2, "No such file"),
        (("run", DIGITS, "--board", "mps2_an368"), 2, "mps2_an386"),
        (("run", DIGITS, "--board", "host", "--input", CASES + "x"), 2, "no such file"),
        (("run", DIGITS, "--board", "host", "--optimize", "fast"), 2, "balanced"),
        (("build", "."), 2, "project.json"),
        (("bench", DIGITS, "--rpc", "--layers"), 2, "--rpc measures the RPC with one model"),
        (("build", "nowhere"), 2, "project.json"),
        (("generate", DIGITS, ".", "--type", "demon"), 2, "standalone"),
        (("generate", DIGITS, ".", "--pool", "4x"), 2, "--pool 4x is not a number of bytes"),
        (
            ("generate", DIGITS, ".", "--pool", "4096:"),
            2,
            "--pool 4096: has no number of blocks after the colon",
        ),
        (("generate", DIGITS, ".", "--pool", "1000"), 2, "the pool one of 16 B"),
        (("generate", DIGITS, ".", "--receive", "100"), 2, "a receive buffer of 100 B is too small"),
        (("generate", DIGITS, ".", "--stack", "1001"), 2, "the stack must be a multiple of 8 B"),
        (
            ("generate", DIGITS, ".", "--input", DIGIT),
            2,
            "--input is for a standalone image, not for a server",
        ),
        (("generate", DIGITS, ".", "--board", "host"), 2, "not empty and holds no project"),
        (("generate", DIGITS, f"{DIGITS}/below"), 2, "Not a directory"),
        (("generate", DIGITS, DIGITS), 2, "the path is a file, expected a directory"),
        (("verify", DIGITS, "--board", "host", "--cases", "0"), 2, "--cases"),
    ],
)
def test_bad_arguments_get_a_message_and_an_exit_code(args: tuple[str, ...], code: int, message: str) -> None:
    result = crtgen(*args)
    assert result.exit_code == code, result.output
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


@pytest.mark.cc
@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((1, 8, 8), np.int8), "shape 1x8x8, but image has 1x8x8x1"),
        (np.zeros((1, 8, 8, 1), np.float32), "type float32, but image has int8"),
    ],
)
def test_a_wrong_input_is_refused(tmp_path: Path, array: Any, message: str) -> None:
    np.save(tmp_path / "x.npy", array)
    result = crtgen("run", DIGITS, "--board", "host", "--input", str(tmp_path / "x.npy"))
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


@pytest.mark.cc
def test_outputs_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = "crtgen.api.GeneratedProject.build"
    monkeypatch.setattr(build, lambda *args, **options: pytest.fail("it was built"))
    lost = str(tmp_path / "absent" / "y.npz")
    result = crtgen("run", DIGITS, "--board", "host", "--input", DIGIT, "--output", lost, "--json")
    error = json.loads(result.stdout)
    assert (error["error"], error["where"], result.exit_code) == ("UsageError", lost, 2)


def test_what_the_system_refuses_is_an_ordinary_failure(tmp_path: Path) -> None:
    project = tmp_path / "digits"
    as_json("generate", DIGITS, str(project), "--board", "host")
    (project / "build").write_text("in the way")
    result = crtgen("build", str(project), "--json")
    assert result.exit_code == 1
    error = json.loads(result.stdout)
    assert (error["error"], error["message"]) == ("CrtgenError", "File exists")
    assert error["where"] == str(project / "build")


@pytest.mark.cc
def test_a_failed_build_in_a_temporary_directory_names_no_file_of_it() -> None:
    require_tool("gcc")
    project = api.load(DIGITS).compile("host").generate().project
    broken = replace(project, sources={**project.sources, "model/digits.c": b"int broken = nothing;\n"})
    with pytest.raises(BuildError, match="'nothing' undeclared") as caught:
        api.GeneratedProject(broken).build()
    assert caught.value.hint == "generate the project, then build it: that keeps the whole output"


def test_an_error_is_one_json_object() -> None:
    result = crtgen("run", "nowhere.tflite", "--json")
    data = json.loads(result.stdout)
    assert (data["error"], data["exit_code"], result.exit_code) == ("UsageError", 2, 2)


def test_a_truncated_model_is_refused_with_its_name(tmp_path: Path) -> None:
    half = tmp_path / "half.tflite"
    half.write_bytes(Path(DIGITS).read_bytes()[:2000])
    result = crtgen("run", str(half), "--board", "host")
    assert result.exit_code == 3
    assert "half.tflite" in " ".join(result.stderr.split())


@pytest.mark.qemu
def test_without_a_compiler_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = crtgen("run", DIGITS, "--board", "mps2_an386", "--toolchain", "gcc")
    assert "apt install qemu-system-arm" in " ".join(result.stderr.split())
    monkeypatch.setattr("crtgen.device.run.start.find_qemu", lambda: None)
    result = crtgen("run", DIGITS, "--board", "mps2_an386", "--toolchain", "gcc")
    assert result.exit_code == 5
    assert "apt install gcc-arm-none-eabi" in " ".join(result.stderr.split())


def test_options_in_groups_are_flat() -> None:
    """A dataclass as a parameter stands for its fields, with their defaults."""

    @dataclass(frozen=True)
    class Group:
        one: int = 1
        two: str = "b"

    seen: list[tuple[int, Group, bool]] = []

    @flattened
    def command(first: int, group: Group, last: bool = False) -> None:
        seen.append((first, group, last))

    assert list(inspect.signature(command).parameters) == ["first", "one", "two", "last"]
    alone = typer.Typer()
    alone.command()(command)
    assert runner.invoke(alone, ["7", "--two", "c", "--last"]).exit_code == 0
    assert seen == [(7, Group(1, "c"), True)]


@pytest.mark.parametrize("name", ["prove", "fit", "slot"])
def test_paragraphs_of_help_fill_the_line(name: str) -> None:
    """A line ends where the next word would not fit, whatever line breaks the docstring has."""
    lines = [" ".join(line.split()) for line in crtgen(name, "--help").output.split("╭")[0].splitlines()]
    for before, after in pairwise(lines):
        assert not before or not after or len(f"{before} {after.split()[0]}") > 76, before
