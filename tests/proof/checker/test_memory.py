"""Constants of an image, and tables of them."""

from collections.abc import Callable

import numpy as np
import pytest

from crtgen.proof.checker.algebra.expression import evaluate
from crtgen.proof.checker.algebra.value import STACK_TOP, Halves, Symbol, Word, WordOp
from crtgen.proof.checker.core.memory import WordMemory
from crtgen.proof.checker.refusal import Refusal

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
    assert [memory.load(at) for at in (0x1000, 0x1004)] == [0x04030201, 0x08070605]
    assert memory.unsigned_byte(0x1008) == 9


def test_bytes_that_are_not_there() -> None:
    """Beyond the end of a constant, or of what a run may write, in words of which other bytes are there."""
    memory = WordMemory([(0x1001, b"\1\2\3\4\5\6")], unaligned=True)
    memory.allow(0x2001, 0x2007)
    assert memory.half(0x1001, signed=False) == 0x0201
    assert memory.load(0x1003) == 0x06050403
    reads: tuple[Callable[[], object], ...] = (
        lambda: memory.load(0x1000),
        lambda: memory.load(0x1004),
        lambda: memory.unsigned_byte(0x1000),
        lambda: memory.half(0x1006, signed=True),
        lambda: memory.load(0x2000),
        lambda: memory.load(0x2004),
        lambda: memory.unsigned_byte(0x2007),
        lambda: memory.half(0x2006, signed=False),
    )
    for read in reads:
        with pytest.raises(Refusal, match=r"a load from 0x[12]00"):
            read()
    memory.store(0x2003, 7)
    memory.store_half(0x2001, 7)
    writes: tuple[Callable[[], object], ...] = (
        lambda: memory.store(0x2000, 7),
        lambda: memory.store(0x2004, 7),
        lambda: memory.store_half(0x2006, 7),
        lambda: memory.store_byte(0x2000, 7),
        lambda: memory.store_low_byte(0x2007, X.word),
    )
    for write in writes:
        with pytest.raises(Refusal, match="a store to 0x200"):
            write()


def test_what_is_below_the_stack_pointer() -> None:
    """Nobody reads or writes there, and what stood there is unknown when the stack grows again."""
    memory = WordMemory([], unaligned=True)
    memory.allow_stack(STACK_TOP - 64, STACK_TOP)
    memory.floor = STACK_TOP - 16
    memory.store(STACK_TOP - 16, 5)
    with pytest.raises(Refusal, match="below the stack pointer"):
        memory.store(STACK_TOP - 20, 5)
    memory.give_back(STACK_TOP - 8)
    for read in (memory.load, memory.unsigned_byte, memory.signed_byte):
        with pytest.raises(Refusal, match="below the stack pointer"):
            read(STACK_TOP - 16)
    with pytest.raises(Refusal, match="below the stack pointer"):
        memory.half(STACK_TOP - 16, signed=True)
    memory.floor = STACK_TOP - 16
    assert memory.load(STACK_TOP - 16) != 5


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


def test_each_byte_of_a_word_that_is_not_all_there() -> None:
    memory = WordMemory([], unaligned=True)
    memory.allow(0x2009, 0x200B)
    for at in range(0x2008, 0x200C):
        if 0x2009 <= at < 0x200B:
            memory.byte(at)
        else:
            with pytest.raises(Refusal, match="outside of constants, arena and stack"):
                memory.byte(at)


def test_a_half_of_two_symbols_bytes() -> None:
    """Its upper byte has the sign."""
    memory, y = WordMemory([], unaligned=True), Symbol(0, 1, -128, 127)
    memory.allow(0x2000, 0x2004)
    for at, symbol in enumerate((X, y)):
        memory.store_byte(0x2000 + at, symbol)
    numbers = {X: 0x7F, y: -2}
    for signed, wanted in ((True, -2 << 8 | 0x7F), (False, 0xFE7F)):
        word = memory.half(0x2000, signed=signed)
        assert not isinstance(word, int)
        found = evaluate(
            word, lambda leaf: np.array([sum(k * numbers[s] for s, k in leaf.terms().items())]), {}
        )
        assert int(found[0]) & 0xFFFFFFFF == wanted & 0xFFFFFFFF


@pytest.mark.parametrize("at", [0x2000, 0x2002])
def test_halves_that_are_stored_together_are_outputs_each(at: int) -> None:
    """GCC 14 joins stores of 16 bits at addresses that are no multiple of 4."""
    memory, asked = WordMemory([], unaligned=True), list[tuple[Word, int]]()
    memory.allow(0x2000, 0x2008)
    memory.sizes = frozenset((16,))
    low, high = (WordOp("max", Symbol(0, i, -32768, 32767).word, 0) for i in range(2))
    outputs = Symbol(1, 0, 0, 32767, 16), Symbol(1, 1, 0, 32767, 16)

    def recognise(word: Word, bits: int) -> Word | None:
        asked.append((word, bits))
        return outputs[[low, high].index(word)].word if word in (low, high) else None

    memory.recognise = recognise
    memory.store(at, Halves(low, high))
    assert asked == [(low, 16), (high, 16)]
    assert [memory.half(at + 2 * i, signed=True) for i in range(2)] == [s.word for s in outputs]
