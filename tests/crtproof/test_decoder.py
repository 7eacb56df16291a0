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


@pytest.mark.parametrize("count", [2000, nightly(60_000)])
def test_what_is_decoded_has_a_meaning(count: int, tmp_path: Path) -> None:
    every = list(encodings(count, seed=count))
    data = b"".join(
        (bits >> 16).to_bytes(2, "little") + (bits & 0xFFFF).to_bytes(2, "little")
        if size == 32
        else bits.to_bytes(2, "little") + b"\x00\xbf"
        for size, bits in every
    )
    image = Image((Segment(_BASE, _BASE, len(data), False, data),), {}, frozenset(("DSP",)))
    machine = Machine(image, Memory(image, []), lambda address, size: None)
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
