"""Chips of CMSIS packs: what is inherited, what cores have, and packs that are none."""

import tomllib
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crtgen.base.errors import UsageError
from crtgen.boards import Board, load_board
from crtgen.boards.packs import board_text, chip_board
from crtgen.cli.app import app
from tests.support import ROOT

DEMO = str(ROOT / "demo" / "digits.tflite")

PDSC = """<?xml version="1.0" encoding="UTF-8"?>
<package schemaVersion="1.7.28">
 <devices>
  <family Dfamily="ACME" Dvendor="Acme:1">
   <processor Dcore="Cortex-M4" DcoreVersion="r0p1" Dfpu="SP_FPU" Dmpu="MPU" Dendian="Little-endian"/>
   <subFamily DsubFamily="ACME4">
    <processor Dclock="100000000"/>
    <memory name="Flash 0" access="rx" start="0x08000000" size="0x00080000" default="1" startup="1"/>
    <memory id="IRAM1" start="0x20000000" size="0x20000" default="1"/>
    <device Dname="ACME411">
     <memory id="IRAM2" start="0x10000000" size="0x2000"/>
     <variant Dvariant="ACME411X"/>
     <variant Dvariant="ACME411L">
      <processor Dclock="48000000" Dfpu="0"/>
     </variant>
    </device>
   </subFamily>
   <subFamily DsubFamily="ACME7">
    <processor Pname="CM7" Dcore="Cortex-M7" Dfpu="DP_FPU" Dclock="480000000"/>
    <processor Pname="CM4" Dclock="240000000"/>
    <memory name="Bank1" Pname="CM7" access="rx" start="0x08000000" size="0x100000"/>
    <memory name="Bank2" Pname="CM4" access="rx" start="0x08100000" size="0x100000"/>
    <memory name="AXI" access="rwx" start="0x24000000" size="0x80000"/>
    <device Dname="ACME745"/>
   </subFamily>
   <device Dname="ACMEBARE"/>
   <subFamily DsubFamily="ACMEH5">
    <processor Dcore="Cortex-M33" Dfpu="SP_FPU" Ddsp="DSP"/>
    <memory name="SRAM" access="rwx" start="0x20000000" size="0xA0000"/>
    <device Dname="ACMEH563ZITx">
     <memory name="Flash" access="rx" start="0x08000000" size="0x200000"/>
    </device>
    <device Dname="ACMEH563ZIJx">
     <memory name="Flash" access="rx" start="0x08000000" size="0x200000"/>
    </device>
    <device Dname="ACMEH563ZGTx">
     <memory name="Flash" access="rx" start="0x08000000" size="0x100000"/>
    </device>
    <device Dname="ACMEN657X0"><memory name="AXI" access="rwx" start="0x24000000" size="0x100000"/></device>
   </subFamily>
   <device Dname="ACMETZ">
    <processor Dcore="Cortex-M33" Dfpu="SP_FPU" Ddsp="DSP"/>
    <memory name="SRAM2_NS" access="rwx" start="0x20040000" size="0x10000" default="0"/>
    <memory name="SRAM1_NS" access="rwx" start="0x20000000" size="0x40000" default="1"/>
    <memory name="SRAM1_S" access="rwx" start="0x30000000" size="0x40000" alias="SRAM1_NS"/>
    <memory name="SRAM2_S" access="rwx" start="0x30040000" size="0x10000" alias="SRAM2_NS"/>
    <memory name="SRAM4_NS" access="rwx" start="0x28000000" size="0x4000" alias="SRAM4_S"/>
    <memory name="SRAM4_S" access="rwx" start="0x38000000" size="0x4000"/>
    <memory name="SRAM_GFXMM" access="rwx" start="0x24000000" size="0x1000000"/>
    <memory name="Bank1" access="rx" start="0x08000000" size="0x100000"/>
    <memory name="Bank2" access="rx" start="0x08100000" size="0x100000"/>
    <memory name="Loader" access="rx" start="0x0bf90000" size="0x8000"/>
   </device>
   <device Dname="ACMER5">
    <processor Dcore="Cortex-R5"/>
    <memory name="F" access="rx" start="0" size="0x1000"/>
    <memory name="R" access="rw" start="0x20000000" size="0x1000"/>
   </device>
   <device Dname="ACMEWRONG">
    <memory name="F" access="rx" start="zero" size="0x1000"/>
   </device>
  </family>
 </devices>
</package>
"""


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    file = tmp_path / "Acme.ACME_DFP.pdsc"
    file.write_text(PDSC)
    return file


def sizes(board: Board) -> dict[str, tuple[str, int]]:
    return {memory.name: (memory.kind, memory.size) for memory in board.memories}


def test_banks_are_joined_and_second_addresses_left_out(pack: Path) -> None:
    board = chip_board("ACMETZ", pack)
    assert sizes(board) == {
        "bank1": ("flash", 2 << 20),
        "loader": ("flash", 32 << 10),
        "sram1": ("ram", 320 << 10),
        "sram4": ("ram", 16 << 10),
    }
    assert (board.code, board.data) == ("bank1", "sram1")
    assert {m.name: m.origin for m in board.memories}["sram4"] == 0x3800_0000


@pytest.mark.parametrize("printed", ["ACMEH563ZI", "ACMEH563ZIT6", "acmeh563zitx", "ACMEH563ZIJ3TR"])
def test_a_chip_by_what_is_printed_on_it(pack: Path, printed: str) -> None:
    """Without or with the letters for package and temperature."""
    board = chip_board(printed, pack)
    assert board.name.startswith("acmeh563zi")
    assert sizes(board) == {"sram": ("ram", 640 << 10), "flash": ("flash", 2 << 20)}


def test_a_printed_name_of_several_chips_is_refused(pack: Path) -> None:
    with pytest.raises(
        UsageError, match="several chips begin with ACMEH563: their memories differ"
    ) as caught:
        chip_board("ACMEH563", pack)
    assert "ACMEH563ZGTx" in str(caught.value.hint)
    with pytest.raises(UsageError, match="unknown chip ACMEH5"):
        chip_board("ACMEH5", pack)


def test_a_chip_without_flash_runs_from_its_ram(pack: Path, tmp_path: Path) -> None:
    board = chip_board("ACMEN657X0", pack)
    assert (board.code, board.data, board.flash, board.ram) == ("axi", "axi", 1 << 20, 1 << 20)
    words = ["generate", DEMO, str(tmp_path / "lib"), "--type", "library", "--chip", "ACMEN657X0"]
    done = CliRunner().invoke(app, [*words, "--pack", str(pack)])
    assert done.exit_code == 0, done.output


def test_a_device_has_what_family_and_subfamily_say(pack: Path) -> None:
    board = chip_board("acme411x", pack)
    assert (board.name, board.core.name, board.clock) == ("acme411x", "cortex-m4", 100_000_000)
    assert sizes(board) == {
        "flash_0": ("flash", 512 << 10),
        "iram1": ("ram", 128 << 10),
        "iram2": ("ram", 8 << 10),
    }
    assert (board.flash, board.ram) == (512 << 10, 128 << 10)
    assert board.source == "Acme.ACME_DFP.pdsc"


def test_a_variant_may_lack_the_fpu(pack: Path) -> None:
    board = chip_board("ACME411L", pack)
    assert (board.core.name, board.clock) == ("cortex-m4+nofp", 48_000_000)


def test_one_of_several_cores_is_named(pack: Path) -> None:
    seven, four = chip_board("ACME745:CM7", pack), chip_board("ACME745:CM4", pack)
    assert (seven.core.name, seven.clock, set(sizes(seven))) == ("cortex-m7", 480_000_000, {"bank1", "axi"})
    assert (four.core.name, four.clock, set(sizes(four))) == ("cortex-m4", 240_000_000, {"bank2", "axi"})
    with pytest.raises(UsageError, match="several cores") as caught:
        chip_board("ACME745", pack)
    assert caught.value.hint == "name one: ACME745:CM7, ACME745:CM4"
    with pytest.raises(UsageError, match="no core CM0"):
        chip_board("ACME745:CM0", pack)


@pytest.mark.parametrize(
    ("chip", "message"),
    [
        ("ACME410", "unknown chip ACME410"),
        ("ACMEBARE", "the pack does not describe its flash or RAM"),
        ("ACMER5", "crtgen makes no code for a Cortex-R5"),
        ("ACMEWRONG", '"zero" is no number'),
    ],
)
def test_what_is_no_chip_for_crtgen(pack: Path, chip: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        chip_board(chip, pack)


def test_close_names_are_suggested(pack: Path) -> None:
    with pytest.raises(UsageError) as caught:
        chip_board("ACME41", pack)
    assert "ACME411" in caught.value.hint


def test_a_pack_is_an_archive_with_a_description(pack: Path, tmp_path: Path) -> None:
    archive = tmp_path / "Acme.ACME_DFP.1.0.0.pack"
    with zipfile.ZipFile(archive, "w") as made:
        made.write(pack, "Acme.ACME_DFP.pdsc")
    assert chip_board("ACME411", archive).clock == 100_000_000
    empty = tmp_path / "empty.pack"
    zipfile.ZipFile(empty, "w").close()
    with pytest.raises(UsageError, match=r"the pack contains no \.pdsc"):
        chip_board("ACME411", empty)


def bomb() -> str:
    """Each entity is ten of the one before."""
    entities = ['<!ENTITY b0 "bbbbbbbbbb">']
    entities += [f'<!ENTITY b{n} "{f"&b{n - 1};" * 10}">' for n in range(1, 12)]
    return f"<!DOCTYPE a [{''.join(entities)}]><a>&b11;</a>"


@pytest.mark.parametrize("text", ["", "<package>", "no xml", bomb()], ids=["empty", "open", "text", "bomb"])
@pytest.mark.parametrize("name", ["x.pdsc", "x.pack"])
def test_what_is_no_pack(tmp_path: Path, text: str, name: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(UsageError, match=r"the CMSIS pack (cannot be read|declares entities)"):
        chip_board("ACME411", file)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('Dname="ACME411"', 'Dname="ACME411&quot; &#10;[evil]"'),
        ('name="Flash 0"', 'name="&quot;]&#10;x = 1"'),
        ('name="Flash 0"', 'name="\u00c9t\u00e9"'),
        ('name="Flash 0"', 'name=""'),
        ('id="IRAM2"', 'id="flash.0"'),
        ('id="IRAM1" start', 'nothing="" start'),
    ],
)
def test_names_of_a_pack_are_no_toml(tmp_path: Path, before: str, after: str) -> None:
    """The written file can be read, has the same memories, and nothing more."""
    assert before in PDSC
    file = tmp_path / 'a "pack".pdsc'
    file.write_text(PDSC.replace(before, after, 1))
    chip = chip_board("ACME411X", file)
    written = tmp_path / "acme.toml"
    written.write_text(board_text(chip))
    found = tomllib.loads(written.read_text())
    assert found.keys() <= {"summary", "core", "clock", "source", "start", "memory", "layout"}
    assert found["source"] == file.name
    assert len(found["memory"]) == len(chip.memories)
    assert {name for name in found["memory"]} == {memory.name for memory in chip.memories}


@pytest.mark.parametrize("name", ["../../evil", "a/b", "a b", '"', "-x"])
def test_a_chip_is_called_as_no_path(tmp_path: Path, name: str) -> None:
    file = tmp_path / "a.pdsc"
    file.write_text(PDSC.replace("ACME411X", name.replace('"', "&quot;")))
    with pytest.raises(UsageError, match="no chip can be called"):
        chip_board(name, file)


def test_installed_packs_are_looked_through(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMSIS_PACK_ROOT", str(pack.parent))
    assert chip_board("ACME411").name == "acme411"
    monkeypatch.setenv("CMSIS_PACK_ROOT", str(pack.parent / "empty"))
    with pytest.raises(UsageError, match="unknown chip") as caught:
        chip_board("ACME411")
    assert caught.value.hint == "name its CMSIS pack: --pack FILE"


ADDED = """
[uart]
kind = "stm32_v1"
base = 0x40011000
clock = "16 MHz"
irq = 37

[timer]
kind = "systick"
clock = "16 MHz"

[flash]
runners = ["openocd"]
openocd = ["target/stm32f4x.cfg"]

[serial]
"""


def test_the_start_of_a_boards_file_becomes_a_board(pack: Path, tmp_path: Path) -> None:
    text = board_text(chip_board("ACME411", pack))
    file = tmp_path / "mine.toml"
    file.write_text(text + ADDED)
    board = load_board(file)
    assert (board.core.name, board.clock) == ("cortex-m4", 100_000_000)
    assert (board.flash, board.ram) == (512 << 10, 128 << 10)
    assert board.platforms == ("baremetal",)
    printed = CliRunner().invoke(app, ["boards", "--chip", "ACME411", "--pack", str(pack)])
    assert printed.output == text


def test_commands_take_a_chip(pack: Path, tmp_path: Path) -> None:
    chip = ["--chip", "ACME411L", "--pack", str(pack)]
    fit = CliRunner().invoke(app, ["fit", DEMO, *chip])
    assert fit.exit_code == 0, fit.output
    assert "acme411l" in fit.output
    made = CliRunner().invoke(app, ["generate", DEMO, str(tmp_path / "l"), "--type", "library", *chip])
    assert made.exit_code == 0, made.output
    assert "library for acme411l" in made.output
    refused = {
        "this family has no table of pins": [],
        "--chip is instead of": ["--board", "host", "--type", "library"],
    }
    for message, more in refused.items():
        wrong = CliRunner().invoke(app, ["generate", DEMO, str(tmp_path / "s"), *chip, *more])
        assert wrong.exit_code == 2
        assert message in wrong.output


def test_a_chip_becomes_a_project_with_its_boards_file(pack: Path, tmp_path: Path) -> None:
    """Of a family with a table of pins; the project takes the file along, and says what the core runs at."""
    pack.write_text(PDSC.replace("ACME411X", "STM32F411RE"))
    chip = ["--chip", "STM32F411RE", "--pack", str(pack)]
    project = tmp_path / "p"
    words = ["generate", DEMO, str(project), "--type", "standalone", *chip, "--pins", "PA9,PA10"]
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    assert "stm32f411re runs at 16 MHz: its internal oscillator, no PLL" in made.output
    text = (project / "board.toml").read_text()
    assert "base = 0x40011000" in text
    assert "TX on PA9" in (project / "platform" / "startup.c").read_text()
    printed = CliRunner().invoke(app, ["boards", *chip, "--pins", "PA9,PA10"])
    assert printed.output == text
