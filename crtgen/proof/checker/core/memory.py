"""The memory of an image: constants, and writable memory, whose contents are unknown before the run.

A byte can be read if the image loads it or if the run may write it; any other access is refused, even within
a word of which other bytes are readable. Memory below the stack pointer is never safe, because an interrupt
may write there at any time: accesses there are refused, and its contents are unknown when the stack grows
again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from crtgen.proof.checker.algebra.expression import has_leaf, is_short
from crtgen.proof.checker.algebra.greatest import greatest_of, single_symbol
from crtgen.proof.checker.algebra.meaning import table
from crtgen.proof.checker.algebra.tried import TriedIndices
from crtgen.proof.checker.algebra.value import (
    M32,
    STACK_TOP,
    Byte,
    Bytes,
    Halves,
    LinearSum,
    Word,
    WordByte,
    WordOp,
    place_of,
    signed,
    unknown,
)
from crtgen.proof.checker.algebra.words import (
    add,
    byte_word,
    bytes_of,
    halves_of,
    low_byte,
    low_half,
    moved_byte,
    pair,
    raw_halves,
    shifted,
    unsigned_byte,
    word_of,
)
from crtgen.proof.checker.refusal import Refusal

__all__ = ["Content", "Recognise", "WordMemory"]

_LONGEST_TABLE = 1024

Content: TypeAlias = Word | list[Byte]
Recognise: TypeAlias = Callable[[Word, int], Word | None]
"""Function that tells what the lowest bits of a stored word are: a symbol, a number, or None for no
output.
"""
Pick: TypeAlias = Callable[[Word, Word], Word]


class WordMemory:
    """Memory as words, by address / 4; a word to which bytes were stored is a list of four.

    ``recognise`` looks at the lowest ``bits`` of a stored word. It returns the symbol of a tensor, or an
    integer, if the bits are proven to be that, and None if they are no output. ``sizes`` are the sizes of
    outputs in bits. A stored byte that is no output is forgotten, unless it is a short function of one byte;
    words and halfwords may be intermediate values of kernels and are kept.
    """

    def __init__(
        self,
        constant: Iterable[tuple[int, bytes]],
        unaligned: bool,
        split: Callable[[], None] = lambda: None,
    ) -> None:
        self.recognise: Recognise = lambda word, bits: None
        self.split = split
        """Called before each access whose alignment matters."""
        self.words: dict[int, Content] = {}
        self.writable: set[int] = set()
        self.parts: dict[int, int] = {}
        """Bytes of incomplete words that may be read and written, a bit each."""
        self.edges: dict[int, list[int | None]] = {}
        """Bytes of words in which constants begin or end; None for a byte that is not there."""
        self.stack = range(0)
        """Words in which compilers keep registers; they are not searched for outputs stored as words."""
        self.floor = STACK_TOP
        self.unaligned = unaligned
        self.sizes = frozenset((8,))
        self.undo: list[dict[int, Content | None]] = []
        self.assumed: list[tuple[WordOp, bool]] = []
        """Conditions that hold, and conditions that do not, on the current path."""
        # Numbers of tables that were read and stay as they are, by how they were read.
        self._tables: dict[tuple[object, ...], int] = {}
        self._tried = TriedIndices()
        for first, data in constant:
            self._load(first, data)

    def _load(self, first: int, data: bytes) -> None:
        # Constants at an address. The words at both ends may have bytes of others, or none.
        skipped, whole = -first & 3, max(len(data) - (-first & 3), 0) >> 2
        if whole:
            body = np.frombuffer(data, "<u4", whole, skipped)
            self.words.update(enumerate(body.tolist(), first + 3 >> 2))
        for k in (*range(min(skipped, len(data))), *range(skipped + 4 * whole, len(data))):
            edge = self.edges.setdefault(first + k >> 2, [None] * 4)
            edge[first + k & 3] = data[k]
            if None not in edge:
                self.words[first + k >> 2] = int.from_bytes(bytes(b or 0 for b in edge), "little")

    def allow(self, first: int, end: int) -> None:
        for i in range(first >> 2, (end + 3) >> 2):
            if i in self.words or i in self.edges:
                raise Refusal(f"constants of the image and memory that it writes overlap at {4 * i:#x}")
            which = sum(1 << k for k in range(4) if first <= 4 * i + k < end)
            if i in self.writable:
                which |= self.parts.pop(i, 15)
            self.writable.add(i)
            if which != 15:
                self.parts[i] = which

    def allow_stack(self, bottom: int, top: int) -> None:
        self.allow(bottom, top)
        self.stack, self.floor = range(bottom >> 2, top >> 2), top

    def give_back(self, floor: int) -> None:
        """Move the end of the stack up; contents below become unknown."""
        for i in range(self.floor >> 2, floor >> 2):
            if i in self.words:
                self._before(i, self.words[i])
                del self.words[i]
        self.floor = floor

    def forget(self, first: int, end: int) -> None:
        """Mark bytes as written by something other than the code, such as an NPU: their contents are
        unknown.
        """
        for a in range(first, end):
            i = self._to(a, 1)
            w = self.words.get(i)
            parts = list(w if isinstance(w, list) else bytes_of(unknown() if w is None else w))
            parts[a & 3] = WordByte(unknown(), 0)
            self.words[i] = parts

    def drop(self, i: int) -> None:
        # Make a word unknown.
        if i in self.words:
            self._before(i, self.words.pop(i))

    # ---- loads

    def _miss(self, i: int) -> Word:
        if i not in self.writable:
            raise Refusal(f"a load from {_name(4 * i)}, outside of constants, arena and stack")
        word = self.words[i] = unknown()
        self._before(i, None)
        return word

    def load(self, a: Word) -> Word:
        a = _address(a)
        if a & 3:
            self._aligned(a, 4)
            return word_of(tuple(self.byte(a + i) for i in range(4)))
        if a > M32 and a < self.floor:
            raise Refusal(_BELOW)
        if a >> 2 in self.parts and self.parts[a >> 2] != 15:
            raise Refusal(f"a load from {_name(a)}, of which not all bytes are constants, arena or stack")
        v = self.words.get(a >> 2)
        if v is None:
            v = self._miss(a >> 2)
        return word_of(tuple(v)) if isinstance(v, list) else v

    def table(self, base: int, index: Word, scale: int, read: Callable[[int], Word]) -> Word:
        """Return ``read`` at base + (index << scale), for an index that depends on inputs.

        Every address that the index can reach must hold constants. Raises ``Refusal`` if that cannot be
        shown.
        """
        if isinstance(index, WordOp) and index.name == "lsl":
            inner, by = index.args
            index, scale = (inner, scale + by) if isinstance(by, int) else (index, scale)
        bounds = range_of(index)
        wide = bounds is None or bounds[1] - bounds[0] >= _LONGEST_TABLE
        tried = self._tried.span(index, self.assumed) if wide or isinstance(index, LinearSum) else None
        found = tried or (bounds and (*bounds, 0))
        if found is None or found[1] - found[0] >= _LONGEST_TABLE << found[2]:
            raise Refusal("an address depends on an input")
        low, high, bits = found
        key = read, base, scale, found
        number = self._tables.get(key)
        if number is None:
            places = [(base + (i << scale)) & M32 for i in range(low, high + 1, 1 << bits)]
            number = self._number([read(place) for place in places])
            if self.writable.isdisjoint(word for place in places for word in (place >> 2, place + 3 >> 2)):
                self._tables[key] = number
        return WordOp("table", number, shifted("lsr", add(index, -low & M32), bits))

    def _number(self, entries: Sequence[Word]) -> int:
        # That of a table with these entries.
        values = [signed(entry) for entry in entries if isinstance(entry, int)]
        if len(values) < len(entries):
            raise Refusal("an address depends on an input, and not all there is constant")
        return table(values)

    def byte(self, a: Word) -> Byte:
        a = _address(a)
        if a > M32 and a < self.floor:
            raise Refusal(_BELOW)
        if a >> 2 in self.parts and not self.parts[a >> 2] >> (a & 3) & 1:
            raise Refusal(f"a load from {_name(a)}, outside of constants, arena and stack")
        v = self.words.get(a >> 2)
        if v is None:
            edge = self.edges.get(a >> 2)
            if edge is not None and (known := edge[a & 3]) is not None:
                return known
            v = self._miss(a >> 2)
        if isinstance(v, int):
            return v >> 8 * (a & 3) & 255
        return v[a & 3] if isinstance(v, list) else bytes_of(v)[a & 3]

    def unsigned_byte(self, a: Word) -> Word:
        return unsigned_byte(self.byte(a))

    def signed_byte(self, a: Word) -> Word:
        return byte_word(self.byte(a))

    def half(self, a: Word, signed: bool) -> Word:
        a = _address(a)
        if a & 1:
            self._aligned(a, 2)
        v = self.words.get(a >> 2) if a <= M32 or a >= self.floor else None
        if isinstance(v, Halves) and not a & 1 and a >> 2 not in self.parts:
            h = v.high if a & 2 else v.low
            if not signed:
                return h & 0xFFFF if isinstance(h, int) else pair(h, 0)
            h = halves_of(v)[a >> 1 & 1]
            return h & 0xFFFFFFFF if isinstance(h, int) else h
        low, high = self.byte(a), self.byte(a + 1)
        if isinstance(low, int) and isinstance(high, int):
            x = low | high << 8
            return x | 0xFFFF0000 if signed and x >> 15 else x
        if signed:
            h = halves_of(Bytes((low, high, 0, 0)))[0]
            return h & 0xFFFFFFFF if isinstance(h, int) else h
        if not isinstance(low, WordByte) or not isinstance(high, WordByte) or low.word is not high.word:
            return WordOp("uxth", Bytes((low, high, 0, 0)))
        return (
            pair(low.word, 0)
            if (low.index, high.index) == (0, 1)
            else WordOp("uxth", word_of((low, high, 0, 0)))
        )

    # ---- stores

    def store(self, a: Word, v: Word) -> None:
        a = _address(a)
        if a & 3:
            self._aligned(a, 4)
            if isinstance(v, Halves) and not a & 1:  # two values of 16 bits, as GCC 14 joins stores
                self.store_half(a, v.low)
                self.store_half(a + 2, v.high)
                return
            for i, b in enumerate(bytes_of(v)):
                self.store_byte(a + i, b)
            return
        i = self._to(a, 4)
        self.words[i] = v if i in self.stack else self._output(v)

    def store_byte(self, a: Word, b: Byte) -> None:
        a = _address(a)
        i = self._to(a, 1)
        b = self._known(b)
        w = self.words.get(i)
        parts = list(w if isinstance(w, list) else bytes_of(unknown() if w is None else w))
        parts[a & 3] = b
        self.words[i] = parts

    def store_low_byte(self, a: Word, v: Word) -> None:
        """Store the lowest byte of a word; recognition sees the whole word."""
        b = low_byte(v)
        if isinstance(b, WordByte) and b.word is v:
            a = _address(a)
            self._to(a, 1)
            b = self._seen(v, b)
        self.store_byte(a, b)

    def store_half(self, a: Word, v: Word) -> None:
        a = _address(a)
        if a & 1:
            self._aligned(a, 2)
        i = self._to(a, 1 if a & 1 else 2)
        w = self.words.get(i)
        if a & 1 or isinstance(w, list) or isinstance(v, Bytes):
            b = bytes_of(v if a & 1 or isinstance(v, Bytes) else self._half(low_half(v)))
            self.store_byte(a, b[0])
            self.store_byte(a + 1, b[1])
            return
        low, high = raw_halves(unknown() if w is None else w)
        h = self._half(low_half(v))
        self.words[i] = pair(low, h) if a & 2 else pair(h, high)

    def _output(self, v: Word) -> Content:
        # A word as it is stored, with symbols of outputs in place of what they are proven to be.
        if isinstance(v, Bytes):
            return [*self._pair(*v.parts[:2]), *self._pair(*v.parts[2:])]
        if isinstance(v, Halves):
            return pair(self._half(v.low), self._half(v.high))
        return self._wide(v, 32)

    def _pair(self, low: Byte, high: Byte) -> tuple[Byte, ...]:
        # Two bytes, which may be of one number of 16 bits.
        if (
            16 in self.sizes
            and isinstance(low, WordByte)
            and isinstance(high, WordByte)
            and low.word is high.word
        ):
            word = WordOp("asr", low.word, 8 * low.index) if low.index else low.word
            found = self._half(word) if high.index == low.index + 1 else word
            if found is not word:
                return bytes_of(found)[:2]
            known = self._known(low), self._known(high)
            return (low, high) if all(map(_is_forgotten, known)) else known  # as halves are kept
        return self._known(low), self._known(high)

    def _half(self, v: Word) -> Word:
        return self._wide(v, 16)

    def _wide(self, v: Word, bits: int) -> Word:
        if isinstance(v, int) or bits not in self.sizes or self.undo or _is_symbol(v):
            return v
        found = self.recognise(v, bits)
        return v if found is None else found

    def _to(self, a: int, size: int) -> int:
        # The word that ``size`` bytes at an address are in, which the run may write.
        i = a >> 2
        if a > M32 and a < self.floor:
            raise Refusal(_BELOW)
        if i not in self.writable or (i in self.parts and ~self.parts[i] >> (a & 3) & (1 << size) - 1):
            raise Refusal(f"a store to {_name(a)}, outside of arena and stack")
        if self.undo:
            self._before(i, self.words.get(i))
        return i

    def _before(self, i: int, v: Content | None) -> None:
        for log in self.undo:
            log.setdefault(i, v)

    def _known(self, b: Byte) -> Byte:
        return self._seen(byte_word(b), b) if isinstance(b, WordByte) else b

    def _seen(self, word: Word, part: WordByte) -> Byte:
        # Within a branch that depends on inputs a byte need not be what it is in the end.
        if self.undo or _is_symbol(part.word) or not has_leaf(word):
            return part
        found = self.recognise(word, 8)
        if found is not None:
            return low_byte(found)
        return moved_byte(word) or (part if is_short(word) else WordByte(unknown(), 0))

    def _aligned(self, a: int, size: int) -> None:
        self.split()
        if not self.unaligned and a % size:
            raise Refusal(f"{a:#x} is not aligned, and this core asks for that")

    # ---- both ways of a branch

    def merge(self, i: int, a: Content | None, b: Content | None, pick: Pick) -> None:
        if a is b:
            self.words[i] = a if a is not None else unknown()
            return
        x = unknown() if a is None else a
        y = unknown() if b is None else b
        if isinstance(x, list) or isinstance(y, list):
            p = x if isinstance(x, list) else list(bytes_of(x))
            q = y if isinstance(y, list) else list(bytes_of(y))
            self.words[i] = [self._known(_pick_byte(u, v, pick)) for u, v in zip(p, q, strict=True)]
        elif isinstance(x, Halves) or isinstance(y, Halves):
            both = zip(raw_halves(x), raw_halves(y), strict=True)
            self.words[i] = pair(*(self._half(pick(u, v)) for u, v in both))
        else:
            self.words[i] = self._wide(pick(x, y), 32)


def range_of(v: Word) -> tuple[int, int] | None:
    """Return the smallest and the largest value of a word, modulo 2^32, or None if nothing limits it."""
    if isinstance(v, int):
        return v, v
    if isinstance(v, LinearSum):
        low, high = v.bounds()
        return (low, high) if low >= -(1 << 31) and high < 1 << 31 else None
    if isinstance(v, Bytes):
        return 0, sum(_most(b) << 8 * i for i, b in enumerate(v.parts))
    return _range_of_operation(v) if isinstance(v, WordOp) else None


def _range_of_operation(v: WordOp) -> tuple[int, int] | None:
    if v.name == "uxtb":
        return 0, 255
    if v.name in ("umin", "and") and isinstance(v.args[1], int):
        return 0, v.args[1]
    if v.name in ("min", "max") and isinstance(v.args[1], int):
        bounds, f = range_of(v.args[0]), min if v.name == "min" else max
        return bounds and (f(bounds[0], signed(v.args[1])), f(bounds[1], signed(v.args[1])))
    if v.name == "sub":
        return _below_greatest(v.args[0], v.args[1])
    if v.name == "lsr" and isinstance(v.args[1], int):
        return 0, _greatest(v.args[0]) >> v.args[1]
    return (0, _greatest_selected(v)) if v.name == "sel" else None


def _below_greatest(greatest: Word, one: Word) -> tuple[int, int] | None:
    # The range of a greatest symbol less one of those that it is the greatest of.
    symbol, found = single_symbol(one), greatest_of(greatest)
    if symbol is None or found is None or symbol not in found[0]:
        return None
    return 0, max(found[1], *(s.high for s in found[0])) - symbol.low


def _greatest(v: Word) -> int:
    # Upper bound of a word, unsigned.
    bounds = range_of(v)
    return bounds[1] if bounds and bounds[0] >= 0 else M32


def _most(b: Byte) -> int:
    if isinstance(b, int):
        return b
    return min(255, _greatest(b.word) >> 8 * b.index) if isinstance(b, WordByte) else 255


def _greatest_selected(v: WordOp) -> int:
    # Upper bound, also for ``x if x < number else y`` and its mirror image.
    taken, a, b = v.args
    most = [_greatest(a), _greatest(b)]
    if isinstance(taken, WordOp) and taken.name in ("cc", "cs") and isinstance(taken.args[1], int):
        i = taken.name == "cs"
        if taken.args[0] is (b if i else a):
            most[i] = min(most[i], taken.args[1] - 1)
    return max(most)


def _is_forgotten(b: Byte) -> bool:
    return isinstance(b, WordByte) and isinstance(b.word, WordOp) and b.word.name == "unknown"


def _is_symbol(v: Word) -> bool:
    return isinstance(v, LinearSum) and v.constant == 0 and list(v.terms().values()) == [1]


_BELOW = "memory below the stack pointer, which an interrupt may write at any time"


def _address(a: Word) -> int:
    place = place_of(a)
    if place is None:
        raise Refusal("an address depends on an input")
    return place


def _name(place: int) -> str:
    return f"{place:#x}" if place <= M32 else f"the stack pointer of the entry {place - STACK_TOP:+}"


def _pick_byte(u: Byte, v: Byte, pick: Pick) -> Byte:
    if u is v or (isinstance(u, int) and isinstance(v, int) and u == v):
        return u
    if isinstance(u, WordByte) and isinstance(v, WordByte) and u.index == v.index and u.word is v.word:
        return u
    return low_byte(pick(byte_word(u), byte_word(v)))
