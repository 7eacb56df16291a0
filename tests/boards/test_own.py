"""Boards of one's own: a file, a folder of files, and a project that takes its board along."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crtgen.base.errors import UsageError
from crtgen.boards import all_boards, find_board, known, wrong_boards
from crtgen.cli.app import app
from tests.support import ROOT, require_tool

TEXT = (ROOT / "boards" / "mps2_an386.toml").read_text()


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "_named", {})
    monkeypatch.delenv("CRTGEN_BOARDS", raising=False)


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(TEXT)
    with pytest.raises(UsageError, match="unknown board mine"):
        find_board("mine")
    board = find_board(str(file))
    assert (board.name, board.core.name, board.file) == ("mine", "cortex-m4", file)
    assert find_board("mine") == board
    file.write_text(TEXT.replace('core = "cortex-m4"', 'core = "cortex-m33"'))
    assert find_board("mine").core.name == "cortex-m33", "it has been edited"
    with pytest.raises(UsageError, match="the board cannot be read"):
        find_board(str(tmp_path / "none.toml"))


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = tmp_path / "one", tmp_path / "boards"
    for folder, name in ((one, "first"), (other, "second"), (other, "broken")):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.toml").write_text(TEXT if name != "broken" else TEXT + "\n[uarts]\n")
    monkeypatch.setenv("CRTGEN_BOARDS", str(one))
    monkeypatch.chdir(tmp_path)
    assert find_board("first").file == one / "first.toml"
    with pytest.raises(UsageError, match="unknown board second"):
        find_board("second")
    (tmp_path / ".git").mkdir()
    (tmp_path / "crtgen.toml").write_text("")
    assert find_board("second").core.name == "cortex-m4"
    assert {"first", "second", "mps2_an386"} <= {board.name for board in all_boards()}
    assert list(wrong_boards()) == ["broken"]
    with pytest.raises(UsageError, match="unknown key") as caught:
        find_board("broken")
    assert caught.value.hint == "did you mean uart?"


def test_a_name_is_one_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rpi_pico.toml").write_text(TEXT)
    with pytest.raises(UsageError, match="there is a board rpi_pico already"):
        find_board(str(tmp_path / "rpi_pico.toml"))
    monkeypatch.setenv("CRTGEN_BOARDS", str(tmp_path))
    assert "there is a board rpi_pico already" in str(wrong_boards()["rpi_pico"])


def test_a_copy_is_the_same_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mps2_an386.toml").write_text(TEXT)
    monkeypatch.setenv("CRTGEN_BOARDS", str(tmp_path))
    assert not wrong_boards()
    assert find_board(str(tmp_path / "mps2_an386.toml")).core == find_board("mps2_an386").core


@pytest.mark.parametrize("is_checkout", [True, False])
def test_a_checkout_has_no_boards_of_its_own(
    is_checkout: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody types ``crtgen init`` in a checkout of another version, whose boards differ."""
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards" / "mps2_an386.toml").write_text(TEXT.replace("cortex-m4", "cortex-m3"))
    if is_checkout:
        (tmp_path / "crtgen").mkdir()
        (tmp_path / "crtgen" / "version.py").touch()
    (tmp_path / ".git").mkdir()
    (tmp_path / "crtgen.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert list(wrong_boards()) == ([] if is_checkout else ["mps2_an386"])


@pytest.mark.qemu
def test_a_project_takes_its_board_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_tool("qemu-system-arm")
    (tmp_path / "mine.toml").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    model = str(ROOT / "demo" / "digits.tflite")
    runner = CliRunner()
    assert runner.invoke(app, ["generate", model, "p", "--board", "./mine.toml"]).exit_code == 0
    (tmp_path / "mine.toml").unlink()
    shutil.move("p", "elsewhere")
    monkeypatch.setattr(known, "_named", {})
    done = runner.invoke(
        app, ["verify", "elsewhere", "--expect", str(ROOT / "demo" / "digits.npz"), "--json"]
    )
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert (data["board"], data["cases"], data["failed"]) == ("mine", 10, 0)
