"""Files that a user keeps: those of version 0.1 are read, those of a newer crtgen are refused by name."""

import gzip
import json
import shutil
import zlib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import crtgen
from crtgen.base.errors import CrtgenError, UsageError
from crtgen.cli.app import app
from crtgen.compiler.codegen.slot_image import SlotImage
from crtgen.compiler.tuned import read_tuned
from crtgen.firmware.project import read_manifest
from crtgen.lab.measure.lock import read_lock
from crtgen.lab.settings import read_settings
from crtproof.check import check, read_certificate
from crtproof.values import Refused
from tests.support import ROOT, nightly

KEPT = Path(__file__).parent / "kept"


def test_files_of_0_1_are_read(tmp_path: Path) -> None:
    (entry,) = read_lock(KEPT / "crtgen.lock.json").entries
    (tuned,) = read_tuned(KEPT / "tuned.toml")
    assert entry.key == tuned.key == ("digits", "mps2_an386", "speed")
    assert SlotImage.read((KEPT / "digits.slot").read_bytes(), "").name == "digits"
    assert read_manifest(KEPT).models[0].name == "digits"
    settings = read_settings(KEPT)
    assert settings is not None
    assert settings.models[0].budget == {"instructions": 60_000, "flash_bytes": 20_000}
    archive = tmp_path / "digits.tar"
    archive.write_bytes(gzip.decompress((KEPT / "digits.tar.gz").read_bytes()))
    assert crtgen.load(archive).name == "digits"


def test_kernels_that_0_1_tuned_are_still_there() -> None:
    """A layer's digest is of its shapes and attributes: a change makes every tune file stale."""
    (tuned,) = read_tuned(KEPT / "tuned.toml")
    model = crtgen.load(ROOT / "demo" / "digits.tflite")
    compiled = model.compile("mps2_an386", optimize="speed", tuned=(tuned,))
    assert len(tuned.layers) > 2
    assert compiled.reports[0].optimize == "speed"


@pytest.mark.parametrize("sums", [0, nightly(1 << 25)])
def test_a_certificate_of_0_1_is_followed(sums: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a push up to the softmax, whose sums take a minute to try."""
    monkeypatch.setattr("crtproof.rows._MOST_SUMS", sums)
    image = tmp_path / "digits.elf"
    image.write_bytes(gzip.decompress((KEPT / "digits.elf.gz").read_bytes()))
    found = check(KEPT / "digits.proof", ROOT / "demo" / "digits.tflite", image)
    assert found.is_accepted == bool(sums), found.refused
    assert all(accepted == outputs for _, _, accepted, outputs in found.layers[: None if sums else -1])


@pytest.mark.cc
def test_a_recording_of_0_1_is_verified() -> None:
    command = ["verify", str(ROOT / "demo" / "digits.tflite"), "--board", "host"]
    done = CliRunner().invoke(app, [*command, "--expect", str(KEPT / "recorded.npz")])
    assert done.exit_code == 0, done.output


def test_what_a_newer_crtgen_wrote_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "crtgen.lock.json"
    lock.write_text(json.dumps({**json.loads((KEPT / lock.name).read_text()), "version": 2}))
    with pytest.raises(UsageError, match="the lock is of version 2, this crtgen reads version 1") as caught:
        read_lock(lock)
    assert caught.value.hint == "pip install --upgrade crtgen"
    tuned = tmp_path / "tuned.toml"
    tuned.write_text((KEPT / "tuned.toml").read_text().replace("version = 1", "version = 2"))
    with pytest.raises(UsageError, match="the tune file is of version 2, this crtgen reads version 1"):
        read_tuned(tuned)
    slot = bytearray((KEPT / "digits.slot").read_bytes())
    slot[4] += 1
    with pytest.raises(CrtgenError, match="made by another release of crtgen"):
        SlotImage.read(bytes(slot), "digits.slot")
    shutil.copy(KEPT / "project.json", tmp_path)
    project = tmp_path / "project.json"
    project.write_text(project.read_text().replace('"format": 3', '"format": 4'))
    with pytest.raises(UsageError, match="the project has format 4, this crtgen reads format 3"):
        read_manifest(tmp_path)
    certificate = tmp_path / "digits.proof"
    said = json.loads(zlib.decompress((KEPT / "digits.proof").read_bytes()))
    certificate.write_bytes(zlib.compress(json.dumps({**said, "format": "crtproof 2"}).encode()))
    with pytest.raises(Refused, match=r"has the format 'crtproof 2', this checker reads 'crtproof 1': write"):
        read_certificate(certificate)
    settings = tmp_path / "crtgen.toml"
    settings.write_text(
        (KEPT / "crtgen.toml").read_text().replace("[model.budget]", "later = 1\n[model.budget]")
    )
    with pytest.raises(UsageError, match="later"):
        read_settings(tmp_path)


def test_files_without_a_version_are_of_the_first(tmp_path: Path) -> None:
    """Those of 0.1's last weeks have none."""
    lock = json.loads((KEPT / "crtgen.lock.json").read_text())
    del lock["version"]
    (tmp_path / "lock.json").write_text(json.dumps(lock))
    (tmp_path / "tuned.toml").write_text((KEPT / "tuned.toml").read_text().replace("version = 1\n", ""))
    assert read_lock(tmp_path / "lock.json") == read_lock(KEPT / "crtgen.lock.json")
    assert len(read_tuned(tmp_path / "tuned.toml")) == 1
