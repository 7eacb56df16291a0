"""Constants of an image, and tables of them."""

import numpy as np

from crtgen.proof.checker.expression import evaluate
from crtgen.proof.checker.memory import WordMemory
from crtgen.proof.checker.value import Symbol, Word, WordOp

X = Symbol(0, 0, -128, 127)
PLACE = WordOp("lsr", WordOp("add", X.word, 128), 4)


def test_a_table_of_constants_is_read_once() -> None:
    memory, reads = WordMemory([(0x1002, bytes(range(20)))], unaligned=True), list[Word]()
    memory.allow(0x2000, 0x2010)
    for at in range(0x2000, 0x2010, 4):
        memory.store(at, 5)

    def read(at: Word) -> Word:
        reads.append(at)
        return memory.unsigned_byte(at)

    def number(base: int) -> Word:
        """That of the table at an address."""
        found = memory.table(base, PLACE, 0, read)
        assert isinstance(found, WordOp)
        return found.args[0]

    assert number(0x1002) == number(0x1002)
    assert reads == [*range(0x1002, 0x1012)]
    before = number(0x2000)
    memory.store(0x2004, 6)
    assert number(0x2000) != before
    assert len(reads) == 3 * 16


def test_words_that_two_constants_share() -> None:
    memory = WordMemory([(0x1000, b"\1\2\3\4\5"), (0x1005, b"\6\7\x08\x09")], unaligned=False)
    assert [memory.load(at) for at in (0x1000, 0x1004, 0x1008)] == [0x04030201, 0x08070605, 9]


def test_an_index_of_two_symbols_that_is_shifted() -> None:
    """How far one element of four bytes is below the greatest of two, by narrow instructions: 256 places."""
    other = Symbol(0, 1, -128, 127)
    memory = WordMemory([(0x100, np.arange(256, dtype="<u4").tobytes())], unaligned=False)
    below = WordOp("sub", WordOp("max", X.word, other.word), X.word)
    shifted = memory.table(0x100, WordOp("lsl", below, 2), 0, memory.load)
    scaled = memory.table(0x100, below, 2, memory.load)
    for entry in (shifted, scaled):
        assert isinstance(entry, WordOp)
        assert evaluate(entry, lambda s: 5 if X in s.terms() else 12, {}) == 7
