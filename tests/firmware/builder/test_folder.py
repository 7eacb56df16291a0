"""Use a build folder only as this person's last build left it: what is in it is run."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from crtgen.base import trust
from crtgen.base.errors import BuildError, UsageError
from crtgen.firmware.builder import build_project
from crtgen.firmware.builder.folder import own_build
from tests.firmware.builder.projects import write_project
from tests.support import require_tool

GOOD = "volatile char b[32]; void crt_reset(void) { for (;;) b[0]++; }\n"


@pytest.fixture
def project(tmp_path: Path, compiled_anew: None) -> Path:
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    return write_project(tmp_path / "p", GOOD)


def configured(project: Path) -> list[str]:
    said: list[str] = []
    build_project(project, progress=said.append)
    return said


def _cache(build: Path, victim: Path) -> None:
    """CMake includes a file that the cache names."""
    cache = build / "CMakeCache.txt"
    (build / "evil.cmake").write_text(f'file(WRITE "{victim}" "")\n')
    added = f"CMAKE_PROJECT_INCLUDE:FILEPATH={build}/evil.cmake\n"
    cache.write_text(cache.read_text() + added)
    (build.parent / "CMakeLists.txt").touch()


def _ninja(build: Path, victim: Path) -> None:
    file = build / "build.ninja"
    added = f"\nrule evil\n  command = touch {victim}\nbuild evil: evil\ndefault evil\n"
    file.write_text(file.read_text() + added)


def _rules(build: Path, victim: Path) -> None:
    file = build / "CMakeFiles" / "rules.ninja"
    file.write_text(file.read_text().replace("command = ", f"command = touch {victim}; "))
    (build.parent / "main.c").write_text(GOOD + "\n")


def _script(build: Path, victim: Path) -> None:
    (folder,) = (build / "CMakeFiles").glob("[34].*")
    with (folder / "CMakeCCompiler.cmake").open("a") as file:
        file.write(f'file(WRITE "{victim}" "")\n')
    (build.parent / "CMakeLists.txt").touch()


@pytest.mark.qemu
@pytest.mark.parametrize("change", [_cache, _ninja, _rules, _script])
@pytest.mark.parametrize("whose", ["mine, and a pull changed it", "theirs"])
def test_a_prepared_build_folder_runs_nothing(
    project: Path, change: Callable[[Path, Path], None], whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = project.parent / "victim"
    build_project(project)
    change(project / "build", victim)
    if whose == "theirs":
        (project / "build" / "crtgen.mark").write_text(trust.Seal(project / "build").mark([b"a copy"]))
        monkeypatch.setenv("XDG_DATA_HOME", str(project.parent / "another person"))
    assert configured(project)[0] == "configuring"
    assert not victim.exists()
    assert configured(project) == [], "what was built is up to date again"


@pytest.mark.qemu
def test_an_object_that_came_along_is_not_linked(project: Path) -> None:
    image = build_project(project).path.read_bytes()
    (found,) = (project / "build").rglob("main.c.o*")
    found.write_bytes(found.read_bytes()[:-1] + b"!")
    assert configured(project)[0] == "configuring"
    assert (project / "build" / "firmware.elf").read_bytes() == image


@pytest.mark.qemu
def test_a_build_that_failed_is_gone_on_with(project: Path) -> None:
    (project / "main.c").write_text("broken")
    with pytest.raises(BuildError):
        build_project(project)
    (project / "main.c").write_text(GOOD)
    assert configured(project) == ["building 1/2", "building 2/2"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    root, victim = tmp_path / "p", tmp_path / "victim"
    (victim / "CMakeFiles").mkdir(parents=True)
    (victim / "CMakeCache.txt").write_text("mine")
    root.mkdir()
    (root / "build").symlink_to(victim)
    with pytest.raises(UsageError, match="the path is a link, which could lead elsewhere"), own_build(root):
        pass
    (root / "build").unlink()
    (root / "build").mkdir()
    for name in ("CMakeFiles", "CMakeCache.txt", "build.log", "crtgen.mark"):
        (root / "build" / name).symlink_to(
            victim / ("CMakeFiles" if name == "CMakeFiles" else "CMakeCache.txt")
        )
    with own_build(root) as build:
        assert not build.exists()
        build.mkdir()
    assert (victim / "CMakeCache.txt").read_text() == "mine"
    assert (victim / "CMakeFiles").is_dir()


def test_a_folder_is_kept_while_nothing_in_it_changes(tmp_path: Path) -> None:
    def use(root: Path, name: str) -> bool:
        """Make a file in the build folder; true if what was there is still there."""
        with own_build(root) as build:
            was = (build / "a").exists()
            build.mkdir(exist_ok=True)
            (build / name).write_text(name)
        return was

    root = tmp_path / "p"
    root.mkdir()
    use(root, "a")
    assert use(root, "b")
    (root / "build" / "empty").mkdir()
    assert use(root, "b"), "a folder alone says nothing"
    (root / "build" / "c").symlink_to("a")
    assert not use(root, "a")
    shutil.copytree(root, tmp_path / "q")
    assert not use(tmp_path / "q", "a"), "a mark is of its place"
    assert use(root, "a")
    (root / "build" / "a").rename(root / "build" / "d")
    use(root, "b")
    assert not (root / "build" / "d").exists(), "names count"
