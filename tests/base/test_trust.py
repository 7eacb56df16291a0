"""Marks of a person: a key that nobody else has, over a place and a content."""

import os
from pathlib import Path

import pytest

from crtgen.base import trust


def key() -> Path:
    return Path(os.environ["XDG_DATA_HOME"]) / "crtgen" / "key"


def test_the_key_is_made_once_and_for_this_person_only(tmp_path: Path) -> None:
    assert not key().exists()
    mark = trust.Seal(tmp_path / "a").mark([b"x"])
    assert (key().stat().st_mode & 0o777, key().stat().st_size) == (0o600, 32)
    assert trust.Seal(tmp_path / "a").mark([b"x"]) == mark
    key().write_bytes(b"short")
    assert trust.Seal(tmp_path / "a").mark([b"x"]) != mark, "a damaged key is made anew"


def test_a_mark_is_of_its_place_and_content(tmp_path: Path) -> None:
    seal = trust.Seal(tmp_path / "a")
    mark = seal.mark([b"x", b"yz"])
    assert seal.fits([b"x", b"yz"], mark)
    for parts in ([b"xy", b"z"], [b"xyz"], [b"x", b"yz", b""], [b"yz", b"x"], []):
        assert not seal.fits(parts, mark)
    assert not trust.Seal(tmp_path / "b").fits([b"x", b"yz"], mark)
    for other in ("", mark[:-1], mark.upper(), "\udcff"):
        assert not seal.fits([b"x", b"yz"], other)


def test_another_person_has_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = trust.Seal(tmp_path).mark([b"x"])
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "else"))
    assert not trust.Seal(tmp_path).fits([b"x"], mark)


def test_without_a_home_nothing_is_marked_and_nothing_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    seal = trust.Seal(tmp_path)
    assert seal.mark([b"x"]) == ""
    assert not seal.fits([b"x"], "")
    assert not trust.remembers()
    trust.made("a proof")
    assert not trust.has_made("a proof")
    monkeypatch.setenv(trust.VARIABLE, "1")
    assert seal.fits([b"x"], "")
    assert not trust.has_made("a proof"), "an answer is no proof"


def test_a_link_has_a_place_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert trust.place_of(tmp_path / "link") == tmp_path.resolve() / "link"
    assert trust.place_of(tmp_path / "link" / "a") == tmp_path.resolve() / "real" / "a"
