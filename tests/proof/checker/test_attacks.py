"""Images that were made by hand to deceive the checker, each refused for the right reason.

Each of them gives a wrong result on a core, or does so once an interrupt comes, or is not what is loaded.
"""

import re
import struct
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from crtgen.base.errors import CrtgenError
from crtgen.proof.certificate import certificate_of
from crtgen.proof.checker import Proof, prove
from crtgen.proof.checker.binary.image import read_image
from crtproof.check import check
from crtproof.values import Refused
from tests.proof.checker import tiny
from tests.proof.checker.tiny import ELEMENT

pytestmark = pytest.mark.qemu

M4 = "cortex-m4"
CORES = tuple(f"cortex-m{n}" for n in ("0", "0plus", "3", "4", "7", "23", "33", "55"))


def said(proof: Proof) -> str:
    """Why an image is not proven."""
    assert not proof.is_proven
    reasons = [r for layer in proof.layers for r in layer.reasons]
    return "; ".join([proof.stopped, proof.reset.stopped, proof.first_reason, *reasons])


def relu(text: str) -> dict[str, str]:
    """Element 0 by other instructions: from r0, signed, to r0; r1 has the address."""
    rest = " ; ".join(ELEMENT.format(k) for k in range(1, 4))
    element = f"ldrb r0, [r1] ; sxtb r0, r0 ; {text} ; strb r0, [r1, #16]"
    return {"elements": f"{element} ; {rest}"}


def wide(text: str) -> dict[str, str]:
    """Element 0 times 256, by other instructions: from r0 to r0."""
    return relu(f"lsls r0, r0, #8 ; {text} ; asrs r0, r0, #8")


@pytest.mark.parametrize("core", CORES)
def test_the_image_itself_is_proven(core: str, tmp_path: Path) -> None:
    proof = tiny.check(tmp_path, {}, core)
    assert proof.is_proven, said(proof)
    assert proof.stack == 8
    assert proof.reset.stack == 8


TABLE = tomllib.loads(Path(__file__).with_name("attacks.toml").read_text(encoding="utf-8"))


def made(folder: Path, entry: dict[str, str]) -> Proof:
    """The proof of an image of the table."""
    parts = {name: text for name, text in entry.items() if name not in ("core", "reason", "relu", "wide")}
    if "relu" in entry:
        parts |= relu(entry["relu"])
    if "wide" in entry:
        parts |= wide(entry["wide"])
    return tiny.check(folder, parts, entry.get("core", M4))


def is_accepted(folder: Path, proof: Proof) -> bool:
    """Ask the second checker, which takes the way from reset and interrupts for given."""
    (folder / "tiny.proof").write_bytes(certificate_of(proof))
    try:
        return check(folder / "tiny.proof", folder / "tiny.tflite", folder / "tiny.elf").is_accepted
    except Refused:
        return False


# Helium, floats, and instructions of Armv6-M that wait; a variable beside the arena; TBB and TBH; an
# address in the stack as a condition.
NOT_FOLLOWED = (
    "a pointer into the stack is not null",
    "registers of the FPU",
    "a variable that is written only",
    "a branch by a table",
    "a branch by a table of halves",
)


@pytest.mark.parametrize("name", TABLE["right"])
def test_what_is_right_is_proven(name: str, tmp_path: Path) -> None:
    proof = made(tmp_path, TABLE["right"][name])
    assert proof.is_proven, said(proof)
    helium = TABLE["right"][name].get("core") == "cortex-m55"
    assert is_accepted(tmp_path, proof) or helium or name in NOT_FOLLOWED


@pytest.mark.parametrize("name", TABLE["wrong"])
def test_an_attack_is_refused(name: str, tmp_path: Path) -> None:
    """By both checkers, each on its own, where the function itself is wrong."""
    proof = made(tmp_path, TABLE["wrong"][name])
    found = said(proof)
    assert re.search(TABLE["wrong"][name]["reason"], found), found
    assert proof.is_computed or not is_accepted(tmp_path, proof)


# ---- what is in the file


def _symbol(path: Path, name: str, value: int | None = None, size: int | None = None) -> Path:
    """The file with another value or size of a symbol."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        (k,) = (k for k, s in enumerate(table.iter_symbols()) if s.name == name)
        place = table["sh_offset"] + 16 * k
    data = bytearray(path.read_bytes())
    for offset, number in ((4, value), (8, size)):
        if number is not None:
            struct.pack_into("<I", data, place + offset, number)
    path.write_bytes(data)
    return path


KEPT = {"bss": ".global tiny_kept ; .type tiny_kept, %object ; tiny_kept: .space 16 ; .size tiny_kept, 16"}


@pytest.mark.parametrize(
    ("name", "value", "size", "reason"),
    [
        ("tiny_kept", 0x20000380, 32, "the stack and the variable at 0x20000380 overlap"),
        ("tiny_kept", 0x20000400, 32, "overlap"),
        ("tiny_kept", 0xE000ED00, 256, "not in memory that the image has for variables"),
        ("tiny_kept", 0x20000410, 0x10000, "not in memory that the image has for variables"),
        ("tiny_arena", 0x200003E0, None, "overlap"),
        ("tiny_arena", 0x10000000, None, "not in memory that the image has for variables"),
        ("crt_stack_bottom", 0x1FFFF000, None, "not in memory that the image has for variables"),
        ("crt_stack_top", 0x20000800, None, "not in memory"),
        ("crt_stack_bottom", 0x20000004, None, "multiples of 8"),
        ("crt_vectors", 0x40, None, "the vector table"),
        ("main", 0x51, None, ""),
    ],
)
def test_a_symbol_that_lies(name: str, value: int, size: int | None, reason: str, tmp_path: Path) -> None:
    path = _symbol(tiny.build(tmp_path, KEPT), name, value, size)
    assert reason in said(prove(path, tiny.network(tmp_path)))


OFFSET, ADDRESS, LOAD, STORED, SIZE, FLAGS = 4, 8, 12, 16, 20, 24
"""Offsets of the fields in a program header."""


def _put(data: bytearray, place: int, number: int) -> None:
    struct.pack_into("<I", data, place, number)


def _get(data: bytearray, place: int) -> int:
    return int.from_bytes(data[place : place + 4], "little")


def _other_code(data: bytearray, headers: list[int]) -> None:
    """Load ``movs r0, #0 ; bx lr`` instead of the network; sections still have the right code."""
    code, at = headers[0], len(data)
    first, size = _get(data, code + OFFSET), _get(data, code + STORED)
    loaded = data[first : first + size]
    place = loaded.index(bytes.fromhex("10b5"), 0x60)  # push {r4, lr}
    loaded[place : place + 4] = bytes.fromhex("00207047")
    data += bytes(-at % 0x1000) + loaded
    _put(data, code + OFFSET, at + -at % 0x1000)


def _moved(field: int, number: int, which: int = 0) -> Callable[[bytearray, list[int]], None]:
    def change(data: bytearray, headers: list[int]) -> None:
        _put(data, headers[which] + field, _get(data, headers[which] + field) + number)

    return change


def _set(field: int, number: int, which: int = 0) -> Callable[[bytearray, list[int]], None]:
    return lambda data, headers: _put(data, headers[which] + field, number)


def _no_code(data: bytearray, headers: list[int]) -> None:
    """The code is in no segment."""
    _put(data, headers[0], 4)  # PT_NOTE


def _begin(data: bytearray, _: list[int]) -> None:
    _put(data, 24, _get(data, 24) + 4)


SEGMENTS: dict[str, tuple[Callable[[bytearray, list[int]], None], str]] = {
    "other code than sections have": (_other_code, "does not hold what its segments load"),
    "code at another address": (_moved(LOAD, 0x1000), "the vector table"),
    "code that begins later": (_moved(LOAD, 4), "the vector table|two of its segments"),
    "variables from another place": (_moved(LOAD, 4, 1), "does not hold 0x5|two of its segments"),
    "variables from a segment before": (_set(LOAD, 0, 1), "two of its segments have bytes at"),
    "two segments at an address": (
        _set(ADDRESS, 0x10, 1),
        "does not hold what its segments load|two of its segments",
    ),
    "more bytes than memory": (_set(SIZE, 16), "larger than it says"),
    "code that is written": (_set(FLAGS, 7), ""),
    "code that is nowhere": (_no_code, "does not hold what its segments load"),
    "another beginning": (_begin, "the file says that the image begins at"),
}


@pytest.mark.parametrize("name", SEGMENTS)
def test_a_file_that_is_not_what_is_loaded(name: str, tmp_path: Path) -> None:
    change, reason = SEGMENTS[name]
    path = tiny.patched(tiny.build(tmp_path, {"data": "value: .word 5, 6"}), change)
    try:
        found = said(prove(path, tiny.network(tmp_path)))
    except CrtgenError as error:
        found = str(error)
    assert any(part in found for part in reason.split("|")), found


def test_the_digest_has_addresses_and_sizes(tmp_path: Path) -> None:
    """Two images whose bytes are the same and are loaded to other places are two."""
    path = tiny.build(tmp_path, {"data": "value: .word 5"})
    digests = {read_image(path).sha256}
    for change in (_moved(LOAD, 8, 1), _moved(SIZE, 8, 2), _set(FLAGS, 4, 1)):
        digests.add(read_image(tiny.patched(path, change)).sha256)
    assert len(digests) == 4
