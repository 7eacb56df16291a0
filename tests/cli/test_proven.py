"""``proven = true`` in crtgen.toml: check proves an image, and takes an earlier proof of the same."""

from pathlib import Path

import numpy as np
import pytest

from crtgen import api
from crtgen.base.errors import MismatchError, UsageError
from crtgen.boards import Board
from crtgen.cli import check
from crtgen.lab.measure.lock import read_lock
from crtgen.network.passes import Sliding
from crtgen.proof import certificate
from crtgen.proof.checker import Proof, checker_tools, prove
from tests.cli.test_folder import as_json, crtgen
from tests.proof.checker.networks import elements, rare
from tests.support import require_tool

pytestmark = pytest.mark.qemu


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    require_tool("qemu-system-arm")
    (tmp_path / ".git").mkdir()
    (tmp_path / "rare.tflite").write_bytes(rare())
    (tmp_path / "crtgen.toml").write_text(
        'boards = ["mps2_an386"]\n[[model]]\nfile = "rare.tflite"\nproven = true\n'
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_proof_is_kept_and_holds_or_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = as_json("check", "--update")["entries"]
    assert first["proven"] is True
    (locked,) = read_lock(folder / "crtgen.lock.json").entries
    assert len(locked.proof) == 64
    proved: list[Path] = []

    def counted(image: api.Image, model: Path, board: Board, _: object) -> Proof:
        proved.append(model)
        return certificate.prove_built(image, model, board)

    monkeypatch.setattr(check, "prove_built", counted)
    done = crtgen("check")
    assert "rare on mps2_an386, balanced: as it was locked\n  proven, by the same proof" in done.stdout
    assert proved == []
    monkeypatch.setattr(certificate, "checker_digest", lambda: "another checker")
    assert crtgen("check").stdout.endswith("\n  proven\n")
    assert [path.name for path in proved] == ["rare.tflite"]

    monkeypatch.setattr(certificate, "checker_tools", lambda: {"numpy": "another one"})
    assert crtgen("check").exit_code == 0
    assert len(proved) == 2, "what was proven with other tools is proven again"
    assert crtgen("check").exit_code == 0
    assert len(proved) == 2

    other = folder / "other.tflite"
    other.write_bytes(elements())
    monkeypatch.setattr(certificate, "checker_digest", lambda: "one more checker")
    monkeypatch.setattr(check, "prove_built", lambda image, model, board, _: prove(image.path, other))
    said = as_json("check", code=MismatchError.exit_code)
    assert [e["proven"] for e in said["entries"]] == [False], "its image is held against another network"
    assert said["unproven"][0].startswith("rare on mps2_an386: ")
    assert "not checked" in said["unproven"][0]


def test_what_a_lock_says_was_proven_is_a_claim(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key is a public digest. A team's lock stays usable, and CI proves it again."""
    assert crtgen("check", "--update").exit_code == 0
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "a colleague"))
    monkeypatch.setenv("CRTGEN_TRUST", "1")  # an answer is no proof
    (claimed,) = as_json("check")["entries"]
    assert (claimed["proven"], claimed["claimed"]) == (False, True)
    shown = " ".join(crtgen("check").stdout.split())
    assert "CLAIMED: the lock says that it is proven, this computer did not prove it; --prove-again" in shown
    for again in ("--prove-again", "--update"):
        monkeypatch.setenv("XDG_DATA_HOME", str(folder / f"a colleague who says {again}"))
        (proven,) = as_json("check", again)["entries"]
        assert (proven["proven"], proven["claimed"]) == (True, False), again
    assert "proven, by the same proof as it was locked" in crtgen("check").stdout
    other = folder / "other.tflite"
    other.write_bytes(elements())
    monkeypatch.setattr(check, "prove_built", lambda image, model, board, _: prove(image.path, other))
    said = as_json("check", "--prove-again", code=MismatchError.exit_code)
    assert [e["proven"] for e in said["entries"]] == [False], "what was proven here is proven again, too"


def test_a_key_that_is_no_truth(folder: Path) -> None:
    settings = folder / "crtgen.toml"
    settings.write_text(settings.read_text().replace("true", '"yes"'))
    done = crtgen("check")
    assert done.exit_code == UsageError.exit_code
    assert "expected true or false" in done.stderr


def test_what_a_proof_is_kept_by(folder: Path) -> None:
    """Image, model, windows and checker have a key; the tools of the checker are of the computer."""
    model = folder / "rare.tflite"
    compiled = api.load(model).compile("mps2_an386")
    image = compiled.generate("standalone").build()
    key = certificate.proof_key(image, model, None)
    assert certificate.proof_key(compiled.generate("standalone").build(), model, None) == key
    assert certificate.proof_key(image, model, Sliding(1, 2)) != key
    data = bytearray(image.path.read_bytes())
    data[-1] ^= 1
    image.path.write_bytes(data)
    assert certificate.proof_key(image, model, None) != key
    tools = checker_tools()
    assert {"python", "libraries", "binutils"} <= tools.keys()
    assert f"numpy {np.__version__}, pyelftools" in tools["libraries"]
    assert all(len(tool) > 0 for tool in tools.values())
