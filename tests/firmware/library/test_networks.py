"""Archives that crtgen wrote carry their networks, for commands that need more than code."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crtgen import api
from crtgen.base.errors import CorruptModelError, UnsupportedError, UsageError
from crtgen.cli.app import app
from crtgen.firmware.library.archive import read_tar, write_tar
from tests.support import ROOT

DIGITS = ROOT / "demo" / "digits.tflite"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "digits.tar"
    path.write_bytes(api.load(DIGITS).compile("mps2_an386").archive())
    return path


def changed(archive: Path, **network: object) -> Path:
    """The archive with something else about its network."""
    files = dict(read_tar(archive.read_bytes(), str(archive)))
    own = json.loads(files["crtgen/digits.json"])
    own["network"] = own["network"] | network if network else None
    files["crtgen/digits.json"] = json.dumps(own).encode()
    archive.write_bytes(write_tar(files, 0))
    return archive


def test_the_network_is_the_one_that_was_compiled(archive: Path) -> None:
    loaded = api.load(archive)
    assert isinstance(loaded, api.Imported)
    (network,) = loaded.networks()
    assert network.summary() == api.load_network(DIGITS).summary()
    assert api.load_network(archive, "digits").name == "digits"
    assert read_tar(archive.read_bytes(), "")["crtgen/digits.tflite"] == DIGITS.read_bytes()


def test_it_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "digits.tar"
    model = api.load(ROOT / "demo" / "digits.onnx", channels="last", shapes={"image": (1, 1, 8, 8)})
    assert isinstance(model, api.Model)
    path.write_bytes(model.compile("mps2_an386").archive())
    assert api.load_network(path).summary() == model.summary()
    assert model.inputs[0].shape == (1, 8, 8, 1)


def test_fit_and_report_answer_for_it(archive: Path, tmp_path: Path) -> None:
    boards = ("--board", "mps2_an386", "--json")
    answers = [CliRunner().invoke(app, ["fit", str(path), *boards]) for path in (archive, DIGITS)]
    assert answers[0].exit_code == 0
    assert json.loads(answers[0].stdout) == json.loads(answers[1].stdout)


def test_code_without_a_network_is_refused_by_name(archive: Path) -> None:
    changed(archive)
    with pytest.raises(UnsupportedError, match="code without its network"):
        api.load_network(archive)


def test_several_networks_are_told_apart(tmp_path: Path) -> None:
    other = tmp_path / "other.tflite"
    other.write_bytes(DIGITS.read_bytes())
    path = tmp_path / "two.tar"
    path.write_bytes(api.compile([api.load(DIGITS), api.load(other)]).archive())
    assert api.load_network(path, "other").name == "other"
    with pytest.raises(UsageError, match="the archive holds 2 networks"):
        api.load_network(path)


def test_a_file_that_was_changed_is_not_taken_for_the_network(tmp_path: Path) -> None:
    path = tmp_path / "digits.tflite"
    path.write_bytes(DIGITS.read_bytes())
    compiled = api.load(path).compile("mps2_an386")
    path.write_bytes(DIGITS.read_bytes() + b" ")
    with pytest.raises(UsageError, match="changed since it was read"):
        compiled.archive()


@pytest.mark.parametrize(
    ("network", "says"),
    [
        ({"file": "../digits.tflite"}, "may have letters"),
        ({"shapes": {"image": [-1]}}, "length 0 is -1"),
        ({"shapes": {"image": [1, 9, 9, 1]}}, "digits.tar: crtgen/digits.tflite: RESHAPE"),
        ({"io": "float"}, "unknown type"),
    ],
)
def test_what_is_said_of_a_network_is_checked(archive: Path, network: dict[str, object], says: str) -> None:
    changed(archive, **network)
    with pytest.raises((CorruptModelError, UsageError, UnsupportedError), match=says):
        api.load_network(archive)
