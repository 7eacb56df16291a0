"""The second checker's decoder beside objdump: nothing undefined or unpredictable is decoded."""

import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from crtproof import decoder
from crtproof.elf import Image, Segment
from crtproof.machine import Machine
from crtproof.memory import Memory
from crtproof.values import Refused
from tests.support import nightly, require_tool

_BASE = 0x1000
_OTHERWISE = re.compile(r"^b|^cb|\[pc|lsr #32|^ldr(\.w)?\tsp")
"""Instructions that the assembler writes differently, or not at all: branches, literals, a shift
that has no width, SP, of which an erratum makes it warn."""
_WRONG = re.compile("UNDEFINED|UNPREDICTABLE|illegal|inst")


def encodings(count: int, seed: int) -> Iterator[tuple[int, int]]:
    """Sizes and encodings: every halfword, and lines of the table for words with random fields."""
    drawn = random.Random(seed)
    for _ in range(count):
        line = drawn.choice(decoder.TABLES[32])
        free = (1 << 32) - 1 ^ line.mask
        yield 32, line.value | drawn.getrandbits(32) & free
    yield from ((16, bits) for bits in range(0, 0xE800, 1 if count > 5000 else 7))


def texts(folder: Path, data: bytes) -> dict[int, tuple[str, str]]:
    """Bytes and text of the instruction that objdump finds at each address."""
    (folder / "code.bin").write_bytes(data)
    command = [require_tool("arm-none-eabi-objdump"), "-D", "-b", "binary", "-marm", "-Mforce-thumb"]
    run = subprocess.run(
        [*command, "code.bin"], cwd=folder, capture_output=True, text=True, timeout=120, check=True
    )
    found = re.finditer(r"^ *([0-9a-f]+):\t([0-9a-f ]+)\t(.*)$", run.stdout, re.MULTILINE)
    return {int(m[1], 16): (m[2].replace(" ", ""), m[3]) for m in found}


def machine_of(every: list[tuple[int, int]]) -> tuple[Machine, bytes]:
    """A machine with these instructions at every fourth byte, and the bytes."""
    data = b"".join(
        (bits >> 16).to_bytes(2, "little") + (bits & 0xFFFF).to_bytes(2, "little")
        if size == 32
        else bits.to_bytes(2, "little") + b"\x00\xbf"
        for size, bits in every
    )
    image = Image((Segment(_BASE, _BASE, len(data), False, data),), {}, frozenset(("DSP",)))
    return Machine(image, Memory(image, []), lambda address, size: None), data


@pytest.mark.parametrize("count", [2000, nightly(60_000)])
def test_what_is_decoded_has_a_meaning(count: int, tmp_path: Path) -> None:
    every = list(encodings(count, seed=count))
    machine, data = machine_of(every)
    said, followed = texts(tmp_path, data), 0
    for k, (size, bits) in enumerate(every):
        machine.block = []
        try:
            _, following = machine.compiled(_BASE + 4 * k)
        except Refused:
            continue
        taken, text = said[4 * k]
        assert not _WRONG.search(text), (hex(bits), text)
        assert 4 * len(taken) == size == 8 * (following - _BASE - 4 * k), (hex(bits), text)
        followed += 1
    assert followed > len(every) // 2


@pytest.mark.parametrize("count", [1500, nightly(60_000)])
def test_what_is_decoded_is_predictable(count: int, tmp_path: Path) -> None:
    """The assembler refuses what the manual does, such as a base that is loaded and written back."""
    every = [(size, bits) for size, bits in encodings(count, seed=count + 1) if size == 32]
    machine, data = machine_of(every)
    said = texts(tmp_path, data)
    source = [".syntax unified", ".thumb", ".arch armv7e-m"]
    for k in range(len(every)):
        try:
            machine.compiled(_BASE + 4 * k)
        except Refused:
            continue
        text = said[4 * k][1].partition(";")[0].partition("@")[0]
        if not _OTHERWISE.search(text):
            source.append(text)
    (tmp_path / "all.s").write_text("\n".join([*source, ""]))
    command = [require_tool("arm-none-eabi-as"), "-o", "all.o", "all.s"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert not done.stderr
    assert len(source) > len(every) // 4
