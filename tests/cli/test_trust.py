"""A folder is data: what its files ask for beyond that is allowed by a person, once, until they change."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from crtgen.base import trust
from crtgen.base.errors import ToolMissingError, UsageError
from crtgen.boards import find_board
from crtgen.boards.loader import load_board
from crtgen.cli.app import app
from crtgen.cli.settings import ASKS, DATA, READ, SAID, WRITTEN, asks_of
from crtgen.device.flash import FlashJob, flash, flasher
from crtgen.device.run.rp2040 import find_rp2040js
from crtgen.lab.settings import read_settings
from crtgen.lab.sweep.store import JobStore
from tests.support import ROOT, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"
runner = CliRunner()


def crtgen(*args: str | Path, **options: Any) -> Result:
    return runner.invoke(app, list(map(str, args)), catch_exceptions=False, **options)


def said(result: Result) -> str:
    return " ".join(result.stderr.split())


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that somebody else made, below an empty folder; nothing may be started."""
    folder = tmp_path / "clone"
    (folder / "boards").mkdir(parents=True)
    (folder / ".git").mkdir()
    shutil.copy(DIGITS, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"a process: {args}")

    monkeypatch.setattr("subprocess.Popen.__init__", start)


def settings(folder: Path, text: str = "", model: str = "digits.tflite") -> None:
    (folder / "crtgen.toml").write_text(f'{text}\n[[model]]\nfile = "{model}"\n')


def in_clone(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize(
    ("text", "command", "asks"),
    [
        ('output = "../victim.npz"', ["run"], "writes outside of the folder"),
        ('dir = "../victim"', ["run"], "writes outside of the folder"),
        ('dir = "/tmp/victim"', ["verify"], "writes outside of the folder"),
        ('core-dump = "link/victim"', ["run"], "writes outside of the folder"),
        ('junit = "../victim"', ["test"], "writes outside of the folder"),
        ('output = "../victim.html"', ["report", "digits.tflite"], "writes outside of the folder"),
        ('evidence = "../victim"', ["report", "digits.tflite"], "writes outside of the folder"),
        ('output = "../victim.tar"', ["compile"], "writes outside of the folder"),
        ('lock = "../victim.json"', ["check", "--update"], "writes outside of the folder"),
        ('store = "../victim.db"', ["tune"], "writes outside of the folder"),
        ('export = "../victim.csv"', ["sweep"], "writes outside of the folder"),
        ('scheduler = "tcp://somebody:8786"', ["sweep"], "lets tcp://somebody:8786 run programs here"),
        ('fvp-path = "bin/pwn.sh"', ["run", "--board", "corstone300_fvp"], "runs the program bin/pwn.sh"),
        ('fvp_path = "bin/pwn.sh"', ["test"], "runs the program bin/pwn.sh"),
        ('port = "socket://somebody:1"', ["monitor", "firmware"], "opens the line socket://somebody:1"),
        ('key = "../mine.pem"', ["slot", "digits.tflite"], "signs with the key ../mine.pem"),
        ('output = ".git/hooks/pre-commit"', ["run"], "writes below .git, which other programs obey"),
        ('junit = "hooks/post-checkout"', ["test"], "writes below .git, which other programs obey"),
        ('header = "src/.vscode/tasks.json"', ["slot", "digits.tflite"], "writes below .vscode"),
        ('gdb-server = "somebody:1"', ["flash", "firmware"], "connects to somebody:1"),
        ('cmsis-nn = "sources"', ["run"], "compiles and runs the C in sources"),
        ('codegen = ["cmsis-nn:path=sources"]', ["generate"], "gives the code generator options"),
    ],
)
def test_what_only_a_person_can_allow(clone: Path, text: str, command: list[str], asks: str) -> None:
    (clone / "link").symlink_to(clone.parent)
    (clone / "hooks").symlink_to(".git/hooks")
    settings(clone, text)
    before = in_clone(clone)
    result = crtgen(*command)
    assert result.exit_code == UsageError.exit_code
    assert f"error: crtgen.toml: the file {asks}" in said(result)
    assert "if you agree: crtgen trust crtgen.toml" in said(result)
    assert in_clone(clone) == before
    assert list(clone.parent.iterdir()) == [clone]


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "trust = true",
            "trust: this option can be given on the command line only (hint: crtgen trust ARCHIVE)",
        ),
        ("force = true", "force: this option can be given on the command line only (hint: say --force"),
        ("junit_file = 'a'", "junit-file: no command has this option (hint: did you mean junit?"),
        ("[[model]]\nfile = 'boards'", "model 1.file: boards is a folder, not a model"),
        (
            "[[model]]\nfile = 'a.tar'\ntrust = 'sha256:12'",
            "model 1.trust: expected the digest of the archive",
        ),
    ],
)
def test_what_no_file_can_say(clone: Path, text: str, message: str) -> None:
    (clone / "crtgen.toml").write_text(text)
    error = json.loads(crtgen("run", "digits.tflite", "--board", "host", "--json").stdout or "{}")
    found = said(crtgen("run", "digits.tflite", "--board", "host")) if not error else str(error)
    start, _, hint = message.removesuffix(")").partition(" (hint: ")
    assert start in found
    assert hint in found


def test_a_link_in_the_place_of_the_project(clone: Path) -> None:
    settings(clone)
    (clone.parent / "victim").mkdir()
    (clone / "firmware").symlink_to("../victim")
    result = crtgen("generate")
    assert result.exit_code == UsageError.exit_code
    assert "writes outside of the folder" in said(result)
    assert not list((clone.parent / "victim").iterdir())


@pytest.mark.usefixtures("nothing_starts")
def test_a_project_that_came_along_is_not_built_unnamed(clone: Path) -> None:
    settings(clone)
    assert crtgen("generate", "digits.tflite", clone.parent / "theirs").exit_code == 0
    shutil.move(clone.parent / "theirs", "firmware")
    for command in ("build", "flash", "monitor"):
        result = crtgen(command)
        assert result.exit_code == UsageError.exit_code
        assert "firmware: you did not generate this project hint: if it is yours, name it: firmware" in said(
            result
        )


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_no_output_goes_below_a_hidden_folder(clone: Path, name: str) -> None:
    """Every setting that names something to write is refused there, also through a link."""
    (clone / "way").symlink_to(".git")
    for target in (".git/config", "way/config", f"{clone}/.git/hooks/x", "a/../.git/config", ".envrc"):
        settings(clone, f"{name} = {json.dumps(target)}")
        found = read_settings(clone)
        assert found is not None
        hidden = ".envrc" if target == ".envrc" else ".git"
        assert f"writes below {hidden}, which other programs obey ({name})" in asks_of(found)


def test_a_link_borrows_no_answer(clone: Path, tmp_path: Path) -> None:
    """An answer counts for the place of a file, not for what a link there leads to."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / ".git").mkdir()
    shutil.copy(DIGITS, mine)
    settings(mine, 'output = "../victim.npz"')
    (mine / "map.yml").write_text("- {connected: true, platform: nrf52840dk, reset: ./switch}\n")
    names = [mine / "crtgen.toml", mine / "map.yml"]
    assert crtgen("trust", "--yes", *names).exit_code == 0
    for name in names:
        (clone / name.name).symlink_to(name)
    assert "writes outside of the folder" in said(crtgen("run"))
    (clone / "crtgen.toml").unlink()
    settings(clone, 'hardware-map = "map.yml"')
    assert "map.yml: the file runs `./switch`, which only you can allow" in said(
        crtgen("boards", "--connected")
    )
    trust.claim(mine)
    (clone / "firmware").symlink_to(mine)
    assert not trust.is_claimed(clone / "firmware")


def theirs(clone: Path, monkeypatch: pytest.MonkeyPatch, platform: str = "baremetal") -> Path:
    """A project in the clone's ``firmware/`` that somebody else generated, with their files around it."""
    settings(clone)
    home = os.environ["XDG_DATA_HOME"]
    monkeypatch.setenv("XDG_DATA_HOME", str(clone.parent / "home of somebody"))
    options = ("--board", "mps2_an386", "--platform", platform)
    assert crtgen("generate", "digits.tflite", "firmware", *options).exit_code == 0
    monkeypatch.setenv("XDG_DATA_HOME", home)
    return clone / "firmware"


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("platform", ["baremetal", "zephyr"])
def test_generate_claims_no_project_that_came_along(
    clone: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    """Its leftovers would be built: a Kconfig runs what ``$(shell ...)`` says."""
    firmware = theirs(clone, monkeypatch, platform)
    (firmware / "Kconfig").write_text("X := $(shell, touch pwned)\n")
    (firmware / "build").symlink_to(clone.parent)
    before = in_clone(clone)
    for command in (
        ["generate"],
        ["generate", "digits.tflite", "firmware", "--force"],
        ["generate", "--force"],
    ):
        result = crtgen(*command)
        assert result.exit_code == UsageError.exit_code
        assert "firmware: you did not generate the project there" in said(result)
        assert "and if you agree: crtgen trust firmware" in said(result)
        assert "you did not generate this project" in said(crtgen("build"))
    assert in_clone(clone) == before
    (firmware / "build").unlink()
    agreed = crtgen("trust", "firmware", "--yes")
    assert "firmware: it is a project, whose CMake files run what they say when it is built" in said(agreed)
    assert crtgen("generate").exit_code == 0


def test_generate_goes_on_where_nothing_is_remembered(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container without a home, a directory that is named is the person's."""
    (clone.parent / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(clone.parent / "file"))
    for _ in range(2):
        assert crtgen("generate", "digits.tflite", "firmware").exit_code == 0
    settings(clone)
    assert "you did not generate the project there" in said(crtgen("generate"))


def test_a_store_that_is_a_link(tmp_path: Path) -> None:
    for end in ("", "-wal"):
        link = tmp_path / f"sweep.db{end}"
        link.symlink_to(tmp_path / "victim")
        with pytest.raises(UsageError, match="the path is a link"):
            JobStore(tmp_path / "sweep.db")
        link.unlink()
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ('[fvp]\nprogram = "bin/FVP_x"', 'fvp.program: "bin/FVP_x" is not the name of an FVP'),
        ('[fvp]\nprogram = "sh"', 'fvp.program: "sh" is not the name of an FVP'),
        ('[qemu]\nmachine = "mps2-an386,firmware=x"', "qemu.machine: "),
        ('[qemu]\nmachine = "-D"', "qemu.machine: "),
        ('[qemu]\nmachine = "x"\nargs = ["-netdev", "tap,script=./x"]', "qemu.args: -netdev is not allowed"),
        ('[qemu]\nmachine = "x"\nargs = ["-chardev", "file,path=x"]', "qemu.args: -chardev is not allowed"),
        ('[qemu]\nmachine = "x"\nargs = ["-semihosting"]', "qemu.args: -semihosting is not allowed"),
        ('[qemu]\nmachine = "x"\nargs = ["-m"]', 'qemu.args: "" is no value of -m'),
        ('[qemu]\nmachine = "x"\nargs = ["-cpu", "a,b=/x"]', 'qemu.args: "a,b=/x" is no value of -cpu'),
        ('[flash]\nrunners = ["openocd"]\nopenocd = ["my.cfg"]\n[serial]', 'flash.openocd: "my.cfg"'),
        (
            '[flash]\nrunners = ["openocd"]\nopenocd = ["board/../../my.cfg"]\n[serial]',
            'flash.openocd: "board/../../my.cfg"',
        ),
        ('[flash]\nrunners = ["pyocd"]\npyocd = "--script=x"\n[serial]', 'flash.pyocd: "--script=x" is no'),
        ('[zephyr]\n"3.0" = "../evil"', 'zephyr: "../evil" is no name'),
    ],
)
def test_a_board_is_data(tmp_path: Path, section: str, message: str) -> None:
    text = (ROOT / "boards" / "mps2_an386.toml").read_text().partition("[qemu]")[0]
    file = tmp_path / "bench.toml"
    file.write_text(text.replace('[zephyr]\n"3.0"', "[zephyr]\n#") + section)
    if section.startswith("[zephyr]"):
        file.write_text(text.partition("[zephyr]")[0] + section)
    with pytest.raises(UsageError) as caught:
        load_board(file)
    assert f"{file}: {message}" in str(caught.value)


def test_what_a_board_may_tell_qemu(tmp_path: Path) -> None:
    text = (ROOT / "boards" / "mps2_an386.toml").read_text().partition("[qemu]")[0]
    file = tmp_path / "bench.toml"
    words = ["-cpu", "cortex-m4,vfp=off", "-m", "16M", "-global", "a-b.c-d=0x10", "-seed", "1", "-smp", "2"]
    file.write_text(f'{text}[qemu]\nmachine = "mps2-an386"\nargs = {json.dumps(words)}\n')
    found = load_board(file).qemu
    assert found is not None
    assert list(found.args) == words


def test_runners_start_where_nobody_left_scripts(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenOCD and pyOCD run what they find in the current folder."""
    image = clone / "image.elf"
    image.write_bytes(b"")
    tool = clone.parent / "openocd"
    tool.write_text("#!/bin/sh\nls -A\necho $*\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)
    monkeypatch.setattr(flasher, "_check", lambda *args: None)
    done = flash(FlashJob(Path("image.elf"), find_board("nucleo_l4r5zi")), "openocd")
    assert done.output == f"-f board/st_nucleo_l4.cfg -c program {{{image}}} verify reset exit\n"


def test_python_imports_nothing_from_the_current_folder(clone: Path) -> None:
    """As pyOCD, UF2 drives and Zig are started."""
    (clone / "crtgen").mkdir()
    (clone / "crtgen" / "__init__.py").write_text("raise SystemExit(77)")
    words = ["-m", "crtgen.device.flash.with_uf2", "--help"]
    plain = subprocess.run([sys.executable, *words], capture_output=True, timeout=60)
    safe = subprocess.run([sys.executable, "-P", *words], capture_output=True, timeout=60)
    assert (plain.returncode, safe.returncode) == (77, 0)


def test_a_simulator_of_the_folder_is_not_run(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_tool("node")
    module = clone / "node_modules" / "rp2040js" / "package.json"
    module.parent.mkdir(parents=True)
    module.write_text("{}")
    monkeypatch.setenv("NODE_PATH", "")
    monkeypatch.setattr(sys, "prefix", "/nowhere")
    monkeypatch.setattr("crtgen.device.run.rp2040.Path.is_file", lambda path: path == module)
    with pytest.raises(ToolMissingError, match="rp2040js is not installed"):
        find_rp2040js()


# What a person allows.


@pytest.fixture
def archive(clone: Path) -> Path:
    """An archive for this computer, in the clone, that its crtgen.toml names."""
    assert crtgen("compile", "digits.tflite", "-o", "digits.tar", "--board", "host").exit_code == 0
    shutil.copy(DIGITS.with_suffix(".npz"), clone)
    settings(clone, '# a comment\nboards = ["host"]', 'digits.tar"\nexpect = "digits.npz')
    return clone / "digits.tar"


def digest_in(folder: Path) -> str:
    return str((folder / "crtgen.toml").read_text().partition('trust = "')[2].partition('"')[0])


@pytest.mark.cc
def test_an_archive_is_trusted_by_its_content(archive: Path, clone: Path) -> None:
    commands = (["run"], ["verify"], ["test"], ["check", "--update"])
    for command in commands:
        result = crtgen(*command)
        assert result.exit_code in (2, 8)
        assert "holds code" in said(result) + result.stdout
    agreed = crtgen("trust", "--yes")
    assert agreed.exit_code == 0, agreed.output
    assert "digits.tar: it has code, which is compiled and run" in said(agreed)
    assert "# a comment" in (clone / "crtgen.toml").read_text()
    for command in commands:
        assert crtgen(*command).exit_code == 0, command
    archive.write_bytes(archive.read_bytes() + bytes(512))
    result = crtgen("run")
    assert result.exit_code == UsageError.exit_code
    assert "digits.tar: the file is not the one that was trusted" in said(result)


@pytest.mark.cc
def test_a_team_shares_the_digest_and_each_agrees_once(
    archive: Path, clone: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert crtgen("trust", "--yes").exit_code == 0
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "a colleague"))
    assert "holds code" in said(crtgen("run"))
    monkeypatch.setenv("CRTGEN_TRUST", "1")
    assert crtgen("run").exit_code == 0
    monkeypatch.delenv("CRTGEN_TRUST")
    assert crtgen("trust", "crtgen.toml", "--yes").exit_code == 0
    assert crtgen("run").exit_code == 0
    (clone / "crtgen.toml").write_text((clone / "crtgen.toml").read_text() + "# more\n")
    assert crtgen("run").exit_code == 0, "the archive itself is allowed"


@pytest.mark.cc
def test_an_archive_alone(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert "holds code" in said(crtgen("run", archive, "--board", "host"))
    assert crtgen("trust", archive, "--yes").exit_code == 0
    assert crtgen("run", archive, "--board", "host").exit_code == 0


@pytest.mark.cc
def test_a_sweep_and_a_test_of_pytest_read_the_digest(archive: Path, clone: Path) -> None:
    require_tool("gcc")
    (clone / "sweep.toml").write_text('models = ["digits.tar"]\nboards = ["host"]\ncases = 1\n')
    (clone / "test_it.py").write_text(
        "def test_it(firmware):\n    firmware('digits.tar', board='host').verify('digits.npz')\n"
    )
    pytest_here = [sys.executable, "-m", "pytest", "-q", "--crtgen-target", "host", "-p", "no:cacheprovider"]
    assert subprocess.run(pytest_here, capture_output=True, timeout=300).returncode == 1
    assert crtgen("trust", "--yes").exit_code == 0
    from crtgen.lab.sweep.matrix import read_sweep

    (job,) = read_sweep(Path("sweep.toml")).jobs
    assert job.trust == digest_in(clone)
    done = subprocess.run(pytest_here, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


def test_the_question(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings(clone, 'output = "../victim.npz"\nhardware-map = "map.yml"')
    (clone / "map.yml").write_text("- {connected: true, platform: nrf52840dk, reset: ./switch}\n")
    nobody = crtgen("trust")
    assert nobody.exit_code == UsageError.exit_code
    assert "there is no terminal to ask on" in said(nobody)
    assert "crtgen.toml: it writes outside of the folder" in said(nobody)
    assert "map.yml: it runs `./switch`" in said(nobody)
    monkeypatch.setattr("crtgen.cli.trust._somebody_is_there", lambda: True)
    answers = iter([False, True])
    monkeypatch.setattr(typer, "confirm", lambda *args, **options: next(answers))
    assert "nothing was allowed" in said(crtgen("trust"))
    assert crtgen("boards", "--connected").exit_code == UsageError.exit_code
    assert crtgen("trust").stdout.splitlines() == ["allowed: crtgen.toml", "allowed: map.yml"]
    assert crtgen("boards", "--connected").exit_code == 0
    (clone / "map.yml").write_text("- {connected: true, platform: nrf52840dk, reset: ./other}\n")
    assert "map.yml: the file runs `./other`, which only you can allow" in said(
        crtgen("boards", "--connected")
    )


def test_options_of_generators_in_a_sweep(clone: Path) -> None:
    """They may name C that is compiled and run."""
    (clone / "sweep.toml").write_text(
        'models = ["digits.tflite"]\nboards = ["host"]\ncodegen = [["cmsis-nn:path=sources"]]\n'
    )
    result = crtgen("sweep")
    assert (
        "sweep.toml: the file gives the code generator options: cmsis-nn:path=sources, which only you"
        in said(result)
    )
    assert "crtgen trust sweep.toml" in said(result)
    assert crtgen("trust", "sweep.toml", "--yes").stdout == "allowed: sweep.toml\n"
    from crtgen.lab.sweep.matrix import read_sweep

    assert len(read_sweep(Path("sweep.toml")).jobs) == 1


def test_where_settings_are_found(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the project's root; by name; by the person's own init or trust. Not because one went there."""
    settings(clone, 'optimize = "size"')

    def level(*args: str) -> str:
        result = crtgen(*args, "inspect", "--json")
        return str(json.loads(result.stdout).get("optimize", result.exit_code))

    (clone / "src").mkdir()
    monkeypatch.chdir(clone / "src")
    assert level() == "size"
    plain = tmp_path / "plain"
    plain.mkdir()
    shutil.copy(clone / "crtgen.toml", plain)
    shutil.copy(DIGITS, plain)
    monkeypatch.chdir(plain)
    unused = crtgen("inspect", "digits.tflite")
    assert unused.exit_code == 0
    assert "crtgen.toml is not used, since it is in no project: crtgen trust" in said(unused)
    assert level("--folder", ".") == "size"
    monkeypatch.chdir(tmp_path)
    assert level("--folder", "plain") == "size"
    assert "the folder has no crtgen.toml" in said(crtgen("--folder", "clone/src", "boards"))
    monkeypatch.chdir(plain)
    assert crtgen("trust", "--yes").exit_code == 0
    assert level() == "size"
    made = tmp_path / "made"
    made.mkdir()
    shutil.copy(DIGITS, made)
    monkeypatch.chdir(made)
    assert crtgen("init").exit_code == 0
    assert level() == "balanced"


def test_every_option_is_known_to_do_one_thing() -> None:
    """A new option is data, names a file that is read or written, asks for something, or is only said."""
    kinds = (DATA, READ, WRITTEN, ASKS.keys(), SAID - {"yes"})
    found = {
        max(option.opts, key=len).removeprefix("--"): option.type_descriptor.annotation is Path
        for command in typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]
        for option in command.params
        if option.param_type_name == "option"
    }
    assert sum(map(len, kinds)) == len(frozenset().union(*kinds))
    assert frozenset().union(*kinds) == found.keys() - {"yes"}
    assert not DATA & {name for name, is_path in found.items() if is_path}
