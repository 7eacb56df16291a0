"""Nothing that a file says becomes a path outside of the project, a command of CMake or a line of C."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crtgen import api
from crtgen.base.errors import CorruptModelError, UsageError
from crtgen.compiler.codegen import CModule
from crtgen.compiler.kernels.engine.sources import SourceLibrary
from crtgen.firmware.library.archive import read_tar, write_tar
from crtgen.firmware.project import Project, ProjectOptions, read_manifest
from tests.firmware.project.building import toy_project
from tests.firmware.project.toy import toy
from tests.support import ROOT

EVIL = "digits.c)\nexecute_process(COMMAND touch owned"
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def archive() -> dict[str, bytes]:
    data = api.compile([api.load(ROOT / "demo" / "digits.tflite")], "host").archive()
    return read_tar(data, "x")


def renamed(name: str) -> Change:
    """Another name for a file of the project."""

    def change(own: dict[str, Any]) -> None:
        own["files"][name] = own["files"].pop("digits.c")

    return change


@pytest.mark.parametrize(
    "change",
    [
        renamed("../../evil.c"),
        renamed("/tmp/evil.c"),
        renamed("a\\..\\evil.c"),
        renamed("C:evil.c"),
        renamed("nul.c"),
        renamed(EVIL),
        renamed("$ENV{HOME}.c"),
        renamed("a;b.c"),
        renamed("a b.c"),
        renamed("a#b.c"),
        renamed('a"b.c'),
        renamed("-Wl,x.c"),
        lambda own: own["info"].update(arena=-5),
        lambda own: own["info"].update(arena=1 << 32),
        lambda own: own["info"].update(weights=-1),
        lambda own: own["info"].update(macs=1 << 63),
        lambda own: own.update(workspace=10**15),
        lambda own: own.update(workspace=-1),
        lambda own: own["functions"][0].update(symbol="f(void);\nint evil"),
        lambda own: own["functions"][0].update(symbol=""),
        lambda own: own["params"][0].update(symbol="x[];\nint evil"),
        lambda own: own["params"][0].update(sid=-1),
        lambda own: own["params"][0].update(nbytes=1 << 40),
        lambda own: own["info"]["inputs"][0].update(c_name="x; int y"),
        lambda own: own["info"]["inputs"][0].update(nbytes=63),
        lambda own: own["info"]["inputs"][0].update(shape=[1, -8, -8, 1]),
        lambda own: own["info"]["layers"][0].update(function="f; int y"),
        lambda own: own["info"]["layers"][0].update(device="0; system(0)"),
        lambda own: own.update(libraries=[{"name": "../x", "files": [], "include_dirs": []}]),
        lambda own: own.update(libraries=[{"name": "x", "files": [], "include_dirs": ["a) b("]}]),
        lambda own: own.update(libraries=[{"name": "x", "files": [], "include_dirs": ["../../.."]}]),
    ],
)
def test_an_archive_that_says_what_no_module_has(
    archive: dict[str, bytes], change: Change, tmp_path: Path
) -> None:
    own = json.loads(archive["crtgen/digits.json"])
    change(own)
    path = tmp_path / "evil.tar"
    path.write_bytes(write_tar({**archive, "crtgen/digits.json": json.dumps(own).encode()}, 0))
    with pytest.raises(CorruptModelError) as caught:
        api.load(path).compile("host")
    assert caught.value.where == f"{path}: crtgen/digits.json"
    assert [p.name for p in tmp_path.rglob("*")] == ["evil.tar"]


def test_no_producer_of_modules_gets_past_the_checks() -> None:
    for change in ({"files": {"../x.c": ""}}, {"libraries": (SourceLibrary("x", (("a;b", b""),)),)}):
        with pytest.raises(CorruptModelError):
            replace(toy(), **change)
    with pytest.raises(CorruptModelError, match="not a C identifier"):
        replace(toy().info, name="a-b")
    assert isinstance(toy(), CModule)


@pytest.mark.parametrize(
    "change",
    [
        {"artefact": "../../bin/sh"},
        {"artefact": "/bin/sh"},
        {"toolchain": "../evil"},
        {"name": "x) execute_process("},
        {"board": "$(id)"},
        {"files": {"a\nb": ""}},
        {"unfinished": {"../x": []}},
        {"functions": ["f()"]},
        {"options": {"stack": -8}},
        {"options": {"pool": 1 << 40}},
        {"place": {"arena": "x; y"}},
    ],
)
def test_a_manifest_that_leads_elsewhere(tmp_path: Path, change: dict[str, Any]) -> None:
    project = toy_project("host", "server")
    project.extract(tmp_path)
    manifest = json.loads(project.files["project.json"])
    (tmp_path / "project.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(UsageError) as caught:
        read_manifest(tmp_path)
    assert caught.value.where == str(tmp_path / "project.json")


def test_a_project_has_no_file_outside_of_itself() -> None:
    project = toy_project("host", "server")
    for path in ("../x", "/x", "a)b", "a\n", "a/../b", "./a"):
        with pytest.raises(CorruptModelError):
            Project(project.manifest, {path: b""})
    with pytest.raises(CorruptModelError, match="stack is"):
        ProjectOptions(stack=1 << 32)


@pytest.mark.parametrize("link", ["model", "platform", "project.json", "main.c", "model/toy.c"])
def test_links_in_a_project_are_not_followed(tmp_path: Path, link: str) -> None:
    project = toy_project("host", "server")
    project.extract(tmp_path / "p")
    outside = tmp_path / "outside"
    place = tmp_path / "p" / ("platform/main.c" if link == "main.c" else link)
    place.rename(outside)
    place.symlink_to(outside)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(UsageError, match="the path is a link"):
        toy_project("host", "server", pool=1024).extract(tmp_path / "p", force=True)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
