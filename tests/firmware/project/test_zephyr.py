"""Projects for Zephyr, without a workspace: what is in them, for every board."""

import re
from pathlib import Path
from posixpath import normpath
from typing import Unpack

import pytest

from crtgen.base.errors import BuildError, ToolMissingError, UsageError
from crtgen.base.resources import zephyr_app_dir
from crtgen.boards import all_boards, find_board
from crtgen.compiler.request import Request
from crtgen.firmware.builder import build_project, find_workspace, west
from crtgen.firmware.builder.west import ZephyrWorkspace
from crtgen.firmware.project import FirmwareRequest, OptionFields, Project, ProjectOptions, generate_project
from crtgen.firmware.project.zephyr import board_files
from tests.firmware.project.toy import METADATA, toy

BOARDS = [board.name for board in all_boards() if "zephyr" in board.platforms]
EVERY = [(board.name, platform) for board in all_boards() for platform in board.platforms]


def toy_firmware(board: str, type: str, **options: Unpack[OptionFields]) -> FirmwareRequest:
    return FirmwareRequest([toy()], METADATA, Request(find_board(board)), ProjectOptions(type, **options))


def project(board: str = "mps2_an385", type: str = "server", **options: Unpack[OptionFields]) -> Project:
    options["platform"] = "zephyr"
    return generate_project(toy_firmware(board, type, **options))


@pytest.mark.parametrize(("board", "platform"), EVERY)
@pytest.mark.parametrize("type", ["server", "standalone", "library"])
def test_every_board_has_every_type_of_project(board: str, platform: str, type: str) -> None:
    made = generate_project(toy_firmware(board, type, platform=platform))
    assert (made.board, made.platform, made.type) == (board, platform, type)
    assert not [path for path, content in made.files.items() if b"\0" in content or not content.strip()]


def test_the_files_of_a_server() -> None:
    files = project().files
    assert {"CMakeLists.txt", "Kconfig", "prj.conf", "west.yml", "crtgen.cmake", "src/server.c"} <= set(files)
    assert "src/standalone.c" not in files
    assert files["src/serial.c"] == (zephyr_app_dir() / "src" / "serial.c").read_bytes()


@pytest.mark.parametrize(
    ("board", "type", "confs"),
    [
        ("mps2_an521", "server", {"boards/mps2_an521.conf", "boards/mps2_an521_cpu0.conf"}),
        ("mps2_an521", "standalone", set()),
        ("nrf52840dk", "server", set()),
    ],
)
def test_a_board_of_qemu_has_a_mailbox_by_each_name(board: str, type: str, confs: set[str]) -> None:
    files = project(board, type).files
    found = {path for path, content in files.items() if b"CONFIG_CRTGEN_MAILBOX=y" in content}
    assert found == confs
    assert ("src/mailbox.c" in files) == bool(confs)


def test_options_become_a_configuration() -> None:
    files = project(receive_buffer=512, pool=1024, blocks=7, stack=4096).files
    text = files["prj.conf"].decode()
    settings = dict(line.split("=") for line in text.splitlines() if line.startswith("CONFIG"))
    assert settings["CONFIG_CRTGEN_RECEIVE_SIZE"] == "512"
    assert b"CRT_POOL_BLOCKS=7 CRT_POOL_SIZE=1024" in files["crtgen.cmake"]
    assert settings["CONFIG_MAIN_STACK_SIZE"] == "4096"
    assert settings["CONFIG_UART_CONSOLE"] == "n"
    assert text.count("CONFIG_MAIN_STACK_SIZE") == 1


def test_a_standalone_application_has_a_console_and_its_input() -> None:
    files = project(type="standalone").files
    assert {"src/standalone.c", "src/sample.c", "src/sample.h"} <= set(files)
    assert "src/server.c" not in files
    text = files["prj.conf"].decode()
    assert "CONFIG_CRTGEN_STANDALONE=y" in text
    assert "CONFIG_UART_CONSOLE=n" not in text


def test_a_library_is_the_models_and_the_runtime_alone() -> None:
    files = project(type="library").files
    assert {path.partition("/")[0] for path in files} == {
        "model",
        "runtime",
        "crtgen.cmake",
        "README.md",
        "project.json",
    }


def test_every_source_is_compiled_for_the_core_of_the_board() -> None:
    made = project("mps2_an521")
    text = made.files["crtgen.cmake"].decode()
    sources = {path for path in made.files if path.endswith((".c", ".S")) and not path.startswith("src/")}
    assert set(re.findall(r"\$\{crt_dir\}/(\S+\.[cS])", text)) == sources
    assert "-mcpu=cortex-m33+nodsp+nofp" in text


def test_no_path_of_the_machine_and_the_same_bytes_twice() -> None:
    one, two = project(), project()
    assert one.digest == two.digest
    for path, content in one.files.items():
        assert str(Path.home()).encode() not in content, path
        assert str(zephyr_app_dir().parent).encode() not in content, path


@pytest.mark.parametrize("board", BOARDS)
def test_the_readme_names_the_board_as_zephyr_does(board: str) -> None:
    names = next(b.zephyr for b in all_boards() if b.name == board)
    text = project(board).files["README.md"].decode()
    assert f"west build -b {names[0].name} " in text
    for entry in names[1:]:
        assert f"`{entry.name}` from Zephyr {'.'.join(map(str, entry.since))} on" in text


def test_a_platform_that_the_board_has_not_is_refused() -> None:
    with pytest.raises(UsageError, match="no platform zephyr"):
        toy_firmware("mps2_an505", "server", platform="zephyr")
    assert toy_firmware("mps2_an385", "server").platform == "baremetal"
    assert isinstance(toy_firmware("rpi_pico", "server"), FirmwareRequest)
    assert toy_firmware("rpi_pico", "server").platform == "baremetal"
    assert toy_firmware("mimxrt1050_evk", "server").platform == "zephyr"


def write_version(directory: Path, text: str) -> Path:
    zephyr = directory / "zephyr"
    zephyr.mkdir()
    (zephyr / "VERSION").write_text(text)
    return zephyr


def test_the_workspace_is_where_the_variable_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zephyr = write_version(
        tmp_path, "VERSION_MAJOR = 3\nVERSION_MINOR = 10\nPATCHLEVEL = 2\nVERSION_TWEAK = 0\n"
    )
    monkeypatch.setenv("ZEPHYR_BASE", str(zephyr))
    found = find_workspace()
    assert (found.version, found.release, found.top) == ((3, 10, 2), "3.10.2", tmp_path)


def test_without_a_workspace_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ZEPHYR_BASE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ToolMissingError, match="no Zephyr workspace") as caught:
        find_workspace()
    assert caught.value.where == str(tmp_path / "zephyrproject" / "zephyr")
    assert "ZEPHYR_BASE" in caught.value.hint
    monkeypatch.setenv("ZEPHYR_BASE", str(write_version(tmp_path, "VERSION_MAJOR = 3\n")))
    with pytest.raises(ToolMissingError, match="VERSION_MINOR"):
        find_workspace()


def test_a_workspace_without_the_makers_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = "x.dts:9:10: fatal error: st/l4/stm32l4r5z(g-i)tx-pinctrl.dtsi: No such file or directory"
    monkeypatch.setattr(west, "follow", lambda *_, **__: (1, output))
    zephyr = write_version(tmp_path, "VERSION_MAJOR = 3\nVERSION_MINOR = 7\nPATCHLEVEL = 0\n")
    monkeypatch.setenv("ZEPHYR_BASE", str(zephyr))
    project("nucleo_l4r5zi").extract(tmp_path / "p")
    with pytest.raises(BuildError, match="pinctrl") as caught:
        build_project(tmp_path / "p")
    assert "west update" in caught.value.hint


def test_a_toolchain_is_chosen_only_where_none_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ZEPHYR_TOOLCHAIN_VARIANT", "ZEPHYR_SDK_INSTALL_DIR", "GNUARMEMB_TOOLCHAIN_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    gcc = tmp_path / "bin" / "arm-none-eabi-gcc"
    gcc.write_text("")
    gcc.chmod(0o755)
    monkeypatch.setenv("PATH", str(gcc.parent))
    workspace = ZephyrWorkspace(tmp_path / "zephyr", (3, 7, 0))
    chosen = workspace.environment()
    assert chosen["ZEPHYR_BASE"] == str(tmp_path / "zephyr")
    assert chosen["ZEPHYR_TOOLCHAIN_VARIANT"] == "gnuarmemb"
    assert chosen["GNUARMEMB_TOOLCHAIN_PATH"] == str(tmp_path)
    monkeypatch.setenv("ZEPHYR_TOOLCHAIN_VARIANT", "zephyr")
    assert "GNUARMEMB_TOOLCHAIN_PATH" not in workspace.environment()
    monkeypatch.delenv("ZEPHYR_TOOLCHAIN_VARIANT")
    (tmp_path / "zephyr-sdk-0.16.8").mkdir()
    assert "ZEPHYR_TOOLCHAIN_VARIANT" not in workspace.environment()


@pytest.mark.parametrize("board", ["mps3_an547", "corstone300_fvp"])
def test_an_overlay_for_each_name_of_a_board(board: str) -> None:
    """A file's name is the board's, with its qualifiers; each of them chooses the large memory."""
    files = project(board).files
    for path in board_files(find_board(board)):
        text = files[f"{path}.overlay"].decode()
        included = re.search(r'#include "(.*)"', text)
        if included:
            text = files[normpath(f"{path}/../{included[1]}")].decode()
        assert "zephyr,sram = &isram;" in text


@pytest.mark.parametrize("board", ["mps3_an547", "corstone300_fvp"])
def test_no_file_has_a_name_that_zephyr_4_refuses(board: str) -> None:
    """That without the SoC, of a board with several."""
    files = project(board).files
    assert not [path for path in files if path.startswith("boards/mps3_an547.")]
    assert "boards/before-4/mps3_an547.overlay" in files
    assert ("boards/before-4/mps3_an547.conf" in files) == (board == "mps3_an547")  # QEMU has a mailbox
