"""The log of slots: a model runs after each start, wherever the power was cut."""

import subprocess
from pathlib import Path

import pytest

from tests.runtime.build import RUNTIME, SANITIZE
from tests.support import compile_each, require_tool

pytestmark = pytest.mark.cc

_SOURCES = ("crt_slot.c", "crt_slots.c", "crt_crc32.c")
_SEEDS, _SEEDS_SANITIZED = 225, 20
"""A seed is a flash of some sizes, what torn writes leave there, and a second cut behind each first one."""


def _build(folder: Path, source: str, flags: tuple[str, ...], replaced: tuple[str, str] = ("", "")) -> Path:
    """A program with the slots of the runtime, of which some text may be replaced."""
    manager = (RUNTIME / "src" / "crt_slots.c").read_text()
    assert replaced[0] in manager
    (folder / "crt_slots.c").write_text(manager.replace(*replaced))
    sources = [RUNTIME / "src" / name for name in _SOURCES if name != "crt_slots.c"]
    command = [require_tool("gcc"), "-std=c11", "-w", *flags, f"-I{RUNTIME / 'include'}"]
    sources = [Path(__file__).with_name(source), folder / "crt_slots.c", *sources]
    return compile_each(command, sources, folder / "program")


def _run(program: Path, seeds: int) -> str:
    done = subprocess.run([program, str(seeds)], capture_output=True, text=True, timeout=100, check=False)
    return (done.stdout + done.stderr).strip()


@pytest.mark.parametrize(
    ("flags", "seeds", "least"), [(("-O2",), _SEEDS, 50_000), (SANITIZE, _SEEDS_SANITIZED, 4_000)]
)
def test_a_model_runs_after_each_cut(tmp_path: Path, flags: tuple[str, ...], seeds: int, least: int) -> None:
    """The power is cut at every erasing and every write of some updates, and then once more.

    On a flash with error correction no torn unit is loaded: the sanitizer would end the program.
    """
    cuts, refused = _run(_build(tmp_path, "power_cuts.c", flags), seeds).split()
    assert int(cuts) >= least
    assert int(refused) >= least / 4


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        ("crt_flash_read(slots->config.flash, slots->config", "crt_flash_read(NULL, slots->config"),
        ("crt_flash_read(flash, at, bytes", "crt_flash_read(NULL, at, bytes"),
        (": slots->config.flash;", ": NULL;"),
    ],
)
def test_a_load_of_torn_bytes_is_found(tmp_path: Path, said: str, instead: str) -> None:
    """The log, its next place and the slots are read by the port, or the sanitizer ends the program."""
    text = _run(_build(tmp_path, "power_cuts.c", SANITIZE, (said, instead)), 5)
    assert "use-after-poison" in text


@pytest.mark.parametrize(
    ("said", "instead", "found"),
    [
        ("(record.crc == crt_crc32(0, &record, CRT_SLOTS_SIGNED))", "1", ""),
        ("crt_slots_is_erased(flash, at, cell)", "(at != 0)", "written"),
        ("(int32_t)(record.sequence - slots->last.sequence) > 0", "1", ""),
        ("if (crt_slots_needs(slots, slot) != 0) {", "if (0) {", ""),
        ("int32_t error = crt_slots_check(slots, slot);", "int32_t error = CRT_OK;", ""),
    ],
)
def test_broken_slots_are_found(tmp_path: Path, said: str, instead: str, found: str) -> None:
    text = _run(_build(tmp_path, "power_cuts.c", ("-O2",), (said, instead)), 60)
    assert text.startswith("cut ")
    assert found in text


def test_every_changed_byte_of_an_image_is_refused(tmp_path: Path) -> None:
    """Each byte of the header by each value, others three times, sizes that lie, addresses between words."""
    program = _build(tmp_path, "flips.c", SANITIZE)
    assert int(_run(program, 0)) == 96 * 255 + (1000 - 96) * 3 + 32 + 14


def test_slots_on_a_file(tmp_path: Path) -> None:
    """Versions follow each other over starts of a program; what no flash does is refused."""
    sources = [RUNTIME / "src" / name for name in (*_SOURCES, "crt_flash_file.c")]
    command = [
        require_tool("gcc"),
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-no-pie",
        *SANITIZE,
        f"-I{RUNTIME / 'include'}",
    ]
    program, flash = tmp_path / "program", tmp_path / "flash.bin"
    compile_each(command, [Path(__file__).with_name("flash_file.c"), *sources], program)
    for version in range(4):
        done = subprocess.run([program, flash], capture_output=True, text=True, timeout=100, check=True)
        ran, refused = done.stdout.splitlines()
        assert ran == str(100 * version + version + 1)
        # erased, written, not twice, not across units, no part of a block
        assert refused == "0 0 -6 -1 -1"
    assert flash.stat().st_size == 5 * 4096
    loaded = subprocess.run(
        [program, tmp_path / "other", "load"], capture_output=True, text=True, timeout=100
    )
    # encrypted: the reader refuses, a wrong key gives no image, the right one the model
    assert loaded.stdout.split() == ["0:-99:0", "4:-32:0", "5:0:77"]
    (tmp_path / "short").write_bytes(b"1234")
    done = subprocess.run([program, tmp_path / "short"], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (1, "no flash\n")
