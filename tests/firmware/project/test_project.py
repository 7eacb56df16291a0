"""Projects as files: the same input gives the same bytes, and extraction harms nothing."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crtgen.base.errors import UsageError
from crtgen.base.resources import boards_dir, runtime_dir
from crtgen.boards import find_board
from crtgen.compiler.request import Request
from crtgen.firmware.project import (
    FirmwareRequest,
    Manifest,
    OptionFields,
    Project,
    ProjectOptions,
    generate_project,
    read_manifest,
)
from crtgen.network.ir import Array
from tests.firmware.project.building import toy_project
from tests.firmware.project.toy import METADATA, toy


def digests(directory: Path) -> dict[str, bytes]:
    return {str(f.relative_to(directory)): f.read_bytes() for f in directory.rglob("*") if f.is_file()}


def test_the_same_input_gives_the_same_project() -> None:
    first, second = (toy_project("mps2_an386", "server") for _ in range(2))
    assert dict(first.files) == dict(second.files)
    assert first.digest == second.digest
    assert len(first.digest) == 64
    assert first.digest != toy_project("mps2_an385", "server").digest


def test_the_digest_tells_where_a_file_ends() -> None:
    manifest = toy_project("host", "server").manifest
    a = Project(manifest, {"a": b"bc", "d": b""})
    b = Project(manifest, {"a": b"b", "d": b"c"})
    assert a.digest != b.digest


@pytest.mark.parametrize("board", ["host", "mps2_an386", "mps3_an547"])
@pytest.mark.parametrize("kind", ["server", "standalone", "library"])
def test_no_file_names_this_machine(board: str, kind: str) -> None:
    for path, content in toy_project(board, kind).files.items():
        assert not path.startswith("/")
        for secret in (str(boards_dir().parent), str(Path.home()) + "/"):
            assert secret.encode() not in content, path


@pytest.mark.parametrize("board", ["host", "mps2_an386"])
@pytest.mark.parametrize("kind", ["server", "standalone", "library"])
def test_extraction_writes_exactly_the_files(tmp_path: Path, board: str, kind: str) -> None:
    project = toy_project(board, kind)
    project.extract(tmp_path / "p")
    assert digests(tmp_path / "p") == dict(project.files)


def test_extracting_again_touches_only_what_changed(tmp_path: Path) -> None:
    toy_project("mps2_an386", "server").extract(tmp_path)
    before = {f: f.stat().st_mtime_ns for f in tmp_path.rglob("*") if f.is_file()}
    toy_project("mps2_an386", "server", pool=1024).extract(tmp_path)
    changed = {f.name for f, t in before.items() if f.stat().st_mtime_ns != t}
    assert changed == {"main.c", "project.json"}


def test_extracting_another_type_removes_what_is_gone_and_keeps_what_is_foreign(tmp_path: Path) -> None:
    toy_project("mps2_an386", "server").extract(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    library = toy_project("mps2_an386", "library")
    library.extract(tmp_path)
    assert digests(tmp_path) == {**library.files, "notes.txt": b"mine"}


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="not empty") as caught:
        toy_project("host", "server").extract(tmp_path)
    assert caught.value.where == str(tmp_path)
    assert [f.name for f in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(UsageError, match="the path is a file"):
        toy_project("host", "server").extract(tmp_path / "f")


def test_a_manifest_cannot_make_extraction_delete_other_files(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    project = toy_project("host", "server")
    for path in ("../victim", str(victim)):
        manifest = json.loads(project.files["project.json"])
        manifest["files"] = {path: "0"}
        directory = tmp_path / "p"
        directory.mkdir(exist_ok=True)
        (directory / "project.json").write_text(json.dumps(manifest))
        with pytest.raises(UsageError, match=r"leads out of|not a relative path"):
            project.extract(directory)
    assert victim.read_text() == "mine"


def test_the_manifest_can_be_read_back(tmp_path: Path) -> None:
    options: OptionFields = {"receive_buffer": 4096, "pool": 32, "blocks": 3, "stack": 1024, "profile": True}
    project = toy_project("mps2_an386", "server", **options)
    project.extract(tmp_path)
    manifest = read_manifest(tmp_path)
    assert isinstance(manifest, Manifest)
    assert manifest.models == (toy().info,)
    assert manifest.options == replace(ProjectOptions(**options), platform="baremetal")
    assert (manifest.optimize, manifest.place) == ("balanced", {})
    assert (manifest.name, manifest.platform, manifest.board) == ("toy", "baremetal", "mps2_an386")
    assert (manifest.type, manifest.toolchain, manifest.artefact) == ("server", "gcc", "firmware.elf")
    assert {*manifest.files, "project.json"} == set(project.files)
    assert manifest.unfinished is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"{", "JSON"), (b"{}", "Field required"), (b'{"format": "x"}', "integer"), (None, "cannot be read")],
)
def test_a_broken_manifest_is_refused(tmp_path: Path, content: bytes | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "project.json").write_bytes(content)
    with pytest.raises(UsageError, match=reason):
        read_manifest(tmp_path)


def test_a_manifest_of_another_format_is_refused(tmp_path: Path) -> None:
    manifest = json.loads(toy_project("host", "server").files["project.json"])
    (tmp_path / "project.json").write_text(json.dumps({**manifest, "format": 2}))
    with pytest.raises(UsageError, match="the project has format 2"):
        read_manifest(tmp_path)


def test_the_pool_has_room_for_what_hosts_allocate() -> None:
    """Two sets of inputs and outputs of a model where RAM allows, or the storages of a graph, in multiples of
    16 B; at most 64 KiB."""

    def sizes(
        storages: Sequence[Sequence[int]] = (),
        pool: int | None = None,
        blocks: int | None = None,
        board: str = "mps2_an386",
    ) -> tuple[int | None, int | None]:
        options = ProjectOptions(pool=pool, blocks=blocks)
        made = FirmwareRequest(
            [toy()], METADATA, Request(find_board(board)), options, storages=storages
        ).options
        return made.pool, made.blocks

    assert sizes() == sizes(board="host") == (2 * (16 + 16) + 1024, 32)
    assert sizes([[4] * 40, [1000]]) == (1008 + 1024, 32 + 40)
    assert sizes([[4] * 200]) == (200 * 16 + 1024, 32 + 200)
    assert sizes([[1 << 20]]) == (1 << 16, 32 + 1)
    assert sizes([[4] * 40], pool=256) == (256, 72)
    assert sizes([[4] * 40], blocks=5) == (40 * 16 + 1024, 5)
    assert find_board("bbc_microbit").ram == 16 * 1024
    assert sizes(board="bbc_microbit") == (16 + 16 + 1024, 32)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"receive_buffer": 100}, "receive buffer"),
        ({"stack": 1001}, "stack"),
        ({"pool": 100}, "pool"),
        ({"pool": 0}, "pool"),
        ({"pool": 32, "blocks": 0}, "with a block or more"),
    ],
)
def test_options_that_cannot_work_are_refused(options: OptionFields, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        toy_project("mps2_an386", "server", **options)


def test_a_server_has_room_for_so_many_models_and_inputs() -> None:
    header = (runtime_dir() / "include" / "crt" / "server.h").read_text()
    assert "#define CRT_SERVER_MODELS 8\n" in header
    host, module = Request(find_board("host")), toy()
    FirmwareRequest([module] * 8, METADATA, host)
    FirmwareRequest([module] * 9, METADATA, host, ProjectOptions("standalone"))
    with pytest.raises(UsageError, match="9 models; a server holds at most 8"):
        FirmwareRequest([module] * 9, METADATA, host)
    wide = replace(module, info=replace(module.info, inputs=module.info.inputs * 33))
    FirmwareRequest([wide], METADATA, host, ProjectOptions("library"))
    with pytest.raises(UsageError, match="toy: 33 inputs; a server sets at most 32"):
        FirmwareRequest([wide], METADATA, host)


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown project type"):
        toy_project("host", "sever")


def test_a_sample_has_to_fit_the_input() -> None:
    good = np.zeros((1, 4), np.int8)
    cases: list[tuple[dict[str, list[Array]], str]] = [
        ({"toy": [good, good]}, "2 sample arrays for 1 inputs"),
        ({"toy": [good.astype(np.float32)]}, "1x4 float32, the input is 1x4 int8"),
        ({"toy": [good[0]]}, "4 int8, the input is 1x4 int8"),
        ({"tie": [good]}, "not a model of the project"),
    ]
    for samples, reason in cases:
        with pytest.raises(UsageError, match=reason):
            toy_project("host", "standalone", samples=samples)


def test_two_modules_cannot_have_the_same_files() -> None:
    with pytest.raises(UsageError, match=r"two models make a file toy\.c"):
        generate_project(FirmwareRequest([toy(), toy()], METADATA, Request(find_board("host"))))


def edited(directory: Path) -> Path:
    """A project with changes of a user's, and one that is somebody's who edits generated files."""
    toy_project("mps2_an386", "server").extract(directory)
    for path in ("platform/main.c", "CMakeLists.txt", "model/toy.c"):
        (directory / path).write_text("/* mine */\n")
    return directory


def test_generating_again_keeps_edits_and_renews_the_model(tmp_path: Path) -> None:
    directory = edited(tmp_path)
    again = toy_project("mps2_an386", "server", pool=1024)
    assert again.extract(directory) == ("CMakeLists.txt", "platform/main.c")
    found = digests(directory)
    assert found["platform/main.c"] == found["CMakeLists.txt"] == b"/* mine */\n"
    assert found["model/toy.c"] == again.files["model/toy.c"]
    assert again.extract(directory) == ("CMakeLists.txt", "platform/main.c")
    assert again.extract(directory, force=True) == ()
    assert digests(directory) == dict(again.files)


def test_line_ends_of_windows_are_no_edit(tmp_path: Path) -> None:
    """Git writes them there, unless it is told not to."""
    toy_project("mps2_an386", "server").extract(tmp_path)
    main, script = tmp_path / "platform" / "main.c", tmp_path / "platform" / "linker.ld"
    for file in (main, script):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    again = toy_project("mps2_an386", "server", pool=1024)
    assert again.extract(tmp_path) == ()
    assert main.read_bytes() == again.files["platform/main.c"]
    assert script.read_bytes() == again.files["platform/linker.ld"].replace(b"\n", b"\r\n")
    main.write_bytes(main.read_bytes() + b"/* mine */\r\n")
    assert again.extract(tmp_path) == ("platform/main.c",)


def test_an_edited_file_that_the_new_project_has_not_stays(tmp_path: Path) -> None:
    directory = edited(tmp_path)
    library = toy_project("mps2_an386", "library")
    assert library.extract(directory) == ("CMakeLists.txt", "platform/main.c")
    assert (directory / "platform" / "main.c").read_text() == "/* mine */\n"
    assert not (directory / "platform" / "startup.c").exists()


def test_a_foreign_file_among_the_generated_ones_is_not_overwritten(tmp_path: Path) -> None:
    toy_project("mps2_an386", "library").extract(tmp_path)
    mine = tmp_path / "runtime" / "src" / "crt_mem.c"
    mine.parent.mkdir()
    mine.write_text("mine")
    server = toy_project("mps2_an386", "server")
    before = digests(tmp_path)
    with pytest.raises(UsageError, match="taken by a file that crtgen did not write"):
        server.extract(tmp_path)
    assert digests(tmp_path) == before
    assert server.extract(tmp_path, force=True) == ()
