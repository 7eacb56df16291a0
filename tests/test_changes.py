"""Fragments of the changelog: their names, the notes that they become, and that a release leaves none."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

FRAGMENTS = [
    path for path in (ROOT / "changes").iterdir() if path.name not in ("README.md", "template.md.j2")
]


def test_fragments_have_a_kind_and_a_text() -> None:
    """towncrier would leave out a file with another name."""
    for path in FRAGMENTS:
        assert re.fullmatch(r"[\w-]+\.(added|changed|fixed|removed)\.md", path.name), path.name
        assert path.read_text().strip(), path.name


def test_fragments_become_the_notes_of_a_release(tmp_path: Path) -> None:
    pytest.importorskip("towncrier")
    for name in ("pyproject.toml", "CHANGELOG.md", "changes/template.md.j2", "changes/README.md"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text((ROOT / name).read_text())
    (tmp_path / "changes" / "rows.added.md").write_text("Rows, see [rows](docs/by-rows.md).\n")
    (tmp_path / "changes" / "stack.fixed.md").write_text("The stack.\n")
    command = [
        sys.executable,
        "-m",
        "towncrier",
        "build",
        "--yes",
        "--version",
        "9.8.7",
        "--date",
        "2030-01-02",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    text = (tmp_path / "CHANGELOG.md").read_text()
    notes = text[text.index("## 9.8.7") : text.index("## 0.1.0")]
    assert notes == (
        "## 9.8.7, 2030-01-02\n\n"
        "### Added\n\n- Rows, see [rows](docs/by-rows.md).\n\n"
        "### Fixed\n\n- The stack.\n\n"
    )
    assert sorted(path.name for path in (tmp_path / "changes").iterdir()) == ["README.md", "template.md.j2"]


def test_a_release_is_refused_while_fragments_are_left(tmp_path: Path) -> None:
    (tmp_path / "ci").mkdir()
    shutil.copy(ROOT / "ci" / "release", tmp_path / "ci")
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "rows.added.md").write_text("Rows.\n")
    done = subprocess.run([tmp_path / "ci" / "release"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "changes/rows.added.md" in done.stderr
    assert not (tmp_path / "dist").exists()
