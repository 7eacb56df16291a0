"""Reports of faults: read from lines, put into words, written as a core dump."""

import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtgen.device.fault import Fault, FaultReader, Symbols, core_dump, describe
from crtgen.device.fault.decode import kind_of, status_words
from crtgen.device.fault.record import REGISTERS
from tests.support import require_tool

BOTTOM, TOP, RECORD = 0x20000000, 0x20000100, 0x20001000


def crc(data: bytes) -> int:
    """CRC-16, polynomial 0x1021, from 0xFFFF, bit by bit."""
    value = 0xFFFF
    for bit in (byte >> k & 1 for byte in data for k in range(7, -1, -1)):
        value = (value << 1 ^ (0x1021 if (value >> 15 ^ bit) & 1 else 0)) & 0xFFFF
    return value


def record(**values: int) -> bytes:
    """A record as the device makes it; what is not named is 0."""
    names = (
        *REGISTERS,
        *("exception", "exc_return", "cfsr", "hfsr", "mmfar", "bfar", "bottom", "top", "rate", "low", "high"),
    )
    assert set(values) <= set(names)
    values = {"bottom": BOTTOM, "top": TOP, "sp": TOP - 0x40, **values}
    body = struct.pack("<29I", 0x31544C46, *(values.get(name, 0) for name in names))
    return body + struct.pack("<I", crc(body))


def fault(memory: Mapping[int, bytes] | None = None, **values: int) -> Fault:
    found = Fault.of_bytes(record(**values), memory)
    assert found is not None
    return found


def lines(data: bytes, stack: bytes = b"") -> list[str]:
    pieces = [(TOP - len(stack), stack), *((RECORD + i, data[i : i + 32]) for i in range(0, len(data), 32))]
    dumps = [f"crtgen.dump {address:08x} {part.hex()}" for address, part in pieces if part]
    return [*dumps, f"crtgen.fault {RECORD:08x}"]


def test_a_report_is_read_from_its_lines() -> None:
    reader = FaultReader()
    *before, last = lines(
        record(r0=1, r12=12, lr=13, pc=14, xpsr=15, rate=1000, low=500, high=1), b"\1\2\3\4" * 16
    )
    assert [reader.take(line) for line in before] == [True] * len(before)
    found = reader.take(last)
    assert isinstance(found, Fault)
    assert (found.registers["r0"], found.registers["r12"]) == (1, 12)
    assert [found.registers[name] for name in ("sp", "lr", "pc", "xpsr")] == [TOP - 0x40, 13, 14, 15]
    assert found.uptime == ((1 << 32) + 500) / 1000
    assert (found.stack_size, found.stack_used) == (256, 64)
    assert found.words(TOP - 8, TOP) == [(TOP - 8, 0x04030201), (TOP - 4, 0x04030201)]


def test_other_lines_are_left_to_the_log() -> None:
    reader = FaultReader()
    for line in (
        "",
        "hello",
        "crtgen.dump",
        "crtgen.dump 20000000 0",
        "crtgen.fault 2000",
        "xcrtgen.fault 20000000",
    ):
        assert reader.take(line) is False


@pytest.mark.parametrize("at", [0, 4, 60, 118])
def test_a_damaged_record_is_no_fault(at: int) -> None:
    data = bytearray(record(pc=4))
    data[at] ^= 1
    reader = FaultReader()
    assert [reader.take(line) for line in lines(bytes(data))][-1] is True
    assert Fault.of_bytes(record()[:-1]) is None


def test_the_memory_of_a_report_is_bounded() -> None:
    reader = FaultReader()
    for i in range(20_000):
        reader.take(f"crtgen.dump {i * 32:08x} {'00' * 32}")
    assert sum(map(len, reader._memory.values())) <= 1 << 18


@settings(deadline=None, max_examples=200)
@given(st.binary(min_size=120, max_size=120), st.binary(max_size=64))
def test_no_record_breaks_the_description(data: bytes, stack: bytes) -> None:
    body = struct.pack("<I", 0x31544C46) + data[4:-4]
    found = Fault.of_bytes(body + struct.pack("<I", crc(body)), {0x20000000: stack})
    assert found is not None
    error = describe(found, Symbols(Path("/nonexistent")))
    assert error.to_dict()["kind"] == error.kind
    assert core_dump(error).startswith(b"\x7fELF")


KINDS = [
    ({"exception": 2}, "watchdog: no progress"),
    ({"cfsr": 1 << 20}, "stack overflow"),
    ({"cfsr": 1 << 4 | 1 << 1}, "stack overflow"),
    ({"cfsr": 1 << 1, "sp": BOTTOM - 8}, "stack overflow"),
    ({"cfsr": 1 << 7 | 1 << 1}, "access to protected memory"),
    ({"cfsr": 1 << 16, "hfsr": 1 << 30}, "undefined instruction"),
    ({"cfsr": 1 << 25}, "division by zero"),
    ({"hfsr": 1 << 31}, "a breakpoint without a debugger"),
    ({"exception": 3}, "fault (exception 3)"),
    ({"exception": 512}, "guard"),
]


@pytest.mark.parametrize(("values", "kind"), KINDS)
def test_the_kinds(values: dict[str, Any], kind: str) -> None:
    assert kind_of(fault(**values)) == kind


def test_the_status_in_words() -> None:
    found = fault(cfsr=1 << 25 | 1 << 15 | 1 << 9, hfsr=1 << 30)
    assert [word.partition(":")[0] for word in status_words(found)] == ["PRECISERR", "DIVBYZERO", "FORCED"]


def test_the_message_says_what_and_where() -> None:
    error = describe(fault(cfsr=1 << 15 | 1 << 9, bfar=0x60000000, pc=0x120))
    assert str(error) == ("device: bus error at 0x60000000, pc 0x00000120, 64 of 256 B of stack used")
    assert error.exit_code == 7
    assert error.to_dict()["registers"]["pc"] == "0x00000120"
    assert error.to_dict()["bfar"] == "0x60000000"


@pytest.mark.parametrize(("at", "side"), [(0x20000FFF, "below"), (0x20001040, "above")])
def test_a_guard_without_an_image(at: int, side: str) -> None:
    error = describe(fault(exception=512, r0=0x100, r1=0x200, r2=0x20001000, r3=64, bfar=at, rate=10, low=5))
    assert error.message == (
        f"guard: a call wrote {side} the arena of a model at {at:#010x}, the arena is 64 B from 0x20001000 on"
    )
    assert (error.kind, error.address, error.uptime, set(error.registers.values())) == ("guard", at, 0.5, {0})
    assert core_dump(error).startswith(b"\x7fELF")


def test_a_guard_of_a_part_without_an_image() -> None:
    error = describe(
        fault(exception=512, r0=0x100, r1=0x200, r2=0x20001000, r3=64, r4=0x300, bfar=0x20001040)
    )
    assert error.message == (
        "guard: a call wrote above a part of the arena of a model at 0x20001040, "
        "the part is 64 B from 0x20001000 on"
    )


def test_a_core_dump_has_registers_and_memory() -> None:
    found = fault({TOP - 0x40: b"a" * 32, TOP - 0x20: b"b" * 32, RECORD: b"c" * 4}, pc=0x120, r3=7)
    data = core_dump(describe(found))
    assert struct.unpack_from("<HH", data, 16) == (4, 40)
    assert struct.unpack_from("<H", data, 44) == (3,)  # a note and two blocks of memory
    segments = [struct.unpack_from("<8I", data, 52 + 32 * i) for i in range(3)]
    note = data[segments[0][1] :]
    assert struct.unpack_from("<3I", note) == (5, 148, 1)
    registers = struct.unpack_from("<17I", note, 20 + 72)
    assert dict(zip(REGISTERS, registers, strict=True)) == dict(found.registers)
    assert [(s[2], data[s[1] : s[1] + s[4]]) for s in segments[1:]] == [
        (TOP - 0x40, b"a" * 32 + b"b" * 32),
        (RECORD, b"cccc"),
    ]


CALLS = """
.syntax unified
.thumb
.global whole
.type whole, %function
whole:
    bl whole
    blx r3
    b.w whole
    bx r3
    movw r0, #0xd000
    nop
.size whole, . - whole
"""


def _linked(folder: Path, entry: str, assembly: str) -> Path:
    """An image of it, from 0x1000 on."""
    (folder / "code.s").write_text(assembly)
    command = [require_tool("arm-none-eabi-gcc"), "-mcpu=cortex-m4", "-nostdlib", "-Wl,-Ttext=0x1000"]
    command += [f"-Wl,--entry={entry}", "code.s", "-o", "code.elf"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    return folder / "code.elf"


@pytest.mark.qemu
def test_what_is_behind_a_call(tmp_path: Path) -> None:
    """BL and BLX are calls; other instructions of the same halfwords are none."""
    symbols = Symbols(_linked(tmp_path, "whole", CALLS))
    behind = {"bl": 0x1004, "blx": 0x1006, "b.w": 0x100A, "bx": 0x100C, "movw": 0x1010}
    assert [name for name, at in behind.items() if symbols.is_return(at | 1)] == ["bl", "blx"]
    assert not symbols.is_return(behind["bl"])  # a return to Thumb has the lowest bit
    assert not symbols.is_return(0x2001)


LAYERS = """
.syntax unified
.thumb
.text
.type early, %function
early:
    bx lr
.size early, . - early
.space 0x1800
.global model
.type model, %function
model:
    bl early
    b.w early
    bl late
    bl early
    bl late
    bx lr
.size model, . - model
.space 0x1800
.type late, %function
late:
    bx lr
.size late, . - late
"""


@pytest.mark.qemu
def test_which_layer_of_those_that_share_a_function(tmp_path: Path) -> None:
    """It is the one whose call, of those in the model's code, the function returns to; else it is any."""
    layers = [("a", ["early"]), ("b", ["late"]), ("c", ["early"]), ("d", ["late"]), ("e", ["other"])]
    symbols = Symbols(_linked(tmp_path, "model", LAYERS), layers)
    model = 0x1000 + 2 + 0x1800
    behind = {"a": model + 4, "b": model + 12, "c": model + 16, "d": model + 20}
    for layer, function in (("a", "early"), ("b", "late"), ("c", "early"), ("d", "late")):
        assert symbols.layer_of(function, [0x2001, behind[layer] | 1]) == layer
    assert symbols.layer_of("early", [behind["b"] | 1]) == "a, c"
    assert symbols.layer_of("other", []) == "e"
    assert symbols.layer_of("none", []) == ""


@pytest.mark.qemu
def test_a_model_at_the_end_of_the_code(tmp_path: Path) -> None:
    early, _, model = LAYERS.partition(".global model")
    last = early + ".global model" + model.partition(".space")[0].replace("late", "early")
    symbols = Symbols(_linked(tmp_path, "model", last), [("a", ["early"]), ("b", ["early"])] * 2)
    assert symbols.layer_of("early", [0x1000 + 2 + 0x1800 + 12 | 1]) == "b"
