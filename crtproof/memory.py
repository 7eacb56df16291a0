"""Memory: constants of the image, and the bytes that a run may write, which hold nothing known before."""

from collections.abc import Iterable

from crtproof.elf import Image
from crtproof.values import ALL, Halves, Interval, Piece, Refused, Word, unknown
from crtproof.words import byte_of, half_of, packed, signed_byte, unsigned_byte, word_of_bytes

__all__ = ["Memory"]


class Memory:
    """Words by address / 4: a word, or a list of four bytes where bytes were stored."""

    def __init__(self, image: Image, writable: Iterable[tuple[int, int]]) -> None:
        self.image = image
        self.words: dict[int, Word | list[Piece]] = {}
        self.stores = 0
        self.journal: dict[int, Word | list[Piece] | None] | None = None
        """Words from before they were changed, while one of several ways is run."""
        self.below: range = range(0)
        """The stack below the stack pointer, which interrupts write at any time."""
        self.writable: set[int] = set()
        for first, end in writable:
            if first & 3 or end & 3:
                raise Refused(f"writable memory from {first:#x} to {end:#x} is not in words")
            self.writable.update(range(first >> 2, end >> 2))
        for s in image.segments:
            reach = range(s.address >> 2, s.address + s.size + 3 >> 2)
            if not s.is_written and any(i in self.writable for i in reach):
                raise Refused("constants of the image are where the network writes")

    def move(self, stack_pointer: int) -> None:
        """Set the end of the stack; what is below it is no longer known."""
        for i in range(self.below.stop >> 2, stack_pointer >> 2):
            if i in self.words:
                self.put(i, None)
        if stack_pointer < self.below.start:
            raise Refused("the stack is too small")
        self.below = range(self.below.start, stack_pointer)

    def put(self, i: int, w: Word | list[Piece] | None) -> None:
        """Write a word by its number, or forget it."""
        if self.journal is not None and i not in self.journal:
            self.journal[i] = self.words.get(i)
        if w is None:
            self.words.pop(i, None)
        else:
            self.words[i] = w

    def load(self, a: int) -> Word:
        if a & 3:
            return word_of_bytes(tuple(self.byte(a + i) for i in range(4)))
        w = self.words.get(a >> 2)
        if w is None:
            w = self._miss(a, 4)
        elif a in self.below:
            raise Refused("a load from below the stack pointer")
        return word_of_bytes(tuple(w)) if isinstance(w, list) else w

    def _miss(self, a: int, size: int) -> Word:
        # What is at an address that nothing was stored to.
        number = self.image.constant(a, size)
        if number is not None:
            if size == 4:
                self.words[a >> 2] = number
            return number
        if a >> 2 not in self.writable or a in self.below:
            raise Refused(f"a load from {a:#x}, outside of constants, arena and stack")
        return unknown()

    def byte(self, a: int) -> Piece:
        w = self.words.get(a >> 2)
        if w is None:
            return self._miss(a, 1)
        if a in self.below:
            raise Refused("a load from below the stack pointer")
        return w[a & 3] if isinstance(w, list) else byte_of(w, a & 3)

    def narrow(self, a: int, bits: int, is_signed: bool) -> Word:
        """Load a byte or a halfword."""
        if bits == 8:
            return signed_byte(self.byte(a)) if is_signed else unsigned_byte(self.byte(a))
        w = self.words.get(a >> 2)
        if isinstance(w, Halves) and not a & 1 and a not in self.below:
            half = half_of(w, a >> 1 & 1)
            if is_signed or isinstance(half, int):
                return half if is_signed else half & 0xFFFF if isinstance(half, int) else half
        low, high = self.byte(a), self.byte(a + 1)
        both = word_of_bytes((low, high, 0, 0))
        if isinstance(both, int):
            return half_of(both, 0) if is_signed else both
        return half_of(both, 0) if is_signed else both

    def store(self, a: int, w: Word) -> None:
        if a & 3:
            for i in range(4):
                self.store_byte(a + i, byte_of(w, i))
            return
        self._check(a)
        self.put(a >> 2, w)

    def store_byte(self, a: int, p: Piece) -> None:
        self._check(a)
        w = self.words.get(a >> 2)
        if w is None:
            w = unknown()
        parts = list(w) if isinstance(w, list) else [byte_of(w, i) for i in range(4)]
        parts[a & 3] = p
        self.put(a >> 2, parts)

    def store_half(self, a: int, w: Word) -> None:
        self.store_byte(a, byte_of(w, 0))
        self.store_byte(a + 1, byte_of(w, 1))
        both = self.words[a >> 2]
        if not a & 1 and isinstance(both, list):
            other = both[:2] if a & 2 else both[2:]
            before = half_of(word_of_bytes((*other, 0, 0)), 0)
            self.put(a >> 2, packed(before, half_of(w, 0)) if a & 2 else packed(half_of(w, 0), before))

    def _check(self, a: int) -> None:
        self.stores += 1
        if a >> 2 not in self.writable or a in self.below:
            raise Refused(f"a store to {a:#x}, outside of arena and stack")
        if self.image.constant(a & ~3, 4) is not None:
            raise Refused(f"a store to constants at {a:#x}")

    def from_table(self, address: Interval, bits: int, is_signed: bool) -> Interval:
        """Return what a load may give whose address depends on inputs: an entry of one constant table."""
        low, high = address[0] & 0xFFFFFFFF, address[1] & 0xFFFFFFFF
        for s in self.image.segments:
            if not s.is_written and s.address <= low <= high and high + bits // 8 <= s.address + len(s.data):
                break
        else:
            raise Refused(f"a load from {low:#x} to {high:#x} by an input, which are not all constants")
        if low != high:
            return ALL if bits == 32 else (-(1 << bits - 1), (1 << bits) - 1)
        v = int.from_bytes(s.data[low - s.address : low - s.address + bits // 8], "little")
        v = v - (1 << bits) if (is_signed or bits == 32) and v >> (bits - 1) else v
        return v, v
