"""Huffman codes of at most eight bits for bytes of constants: construction, encoding, decoding.

Problem
    Weights of a network are far from evenly distributed, so a Huffman code makes them smaller. But a decoder
    that walks a tree bit by bit takes longer than the layer, and a table that is indexed by the longest code
    would have 2^n entries for codes of n bits.

Idea
    No code is longer than eight bits, so one lookup in a table of at most 256 entries decodes any symbol.
    Rare bytes do not get codes of their own: they share an escape code, and the byte itself follows. How
    many bytes get a code, and how long codes may be, is tried (``shortest``), since a table of 2^n entries
    is stored, too.

Length limit
    Huffman's algorithm may give codes of any length. The best code of at most L bits comes from the
    package-merge algorithm (Larmore and Hirschberg, 1990): in L rounds the symbols, as coins of their
    weight, are merged with pairs (packages) of what the round before gave. A symbol's code is as long as the
    number of times that it is in the n - 1 cheapest packages of the end, which is at most L, since each
    round can add a symbol to a package only once.

Canonical codes
    Only lengths are chosen; the codes follow by counting up, shorter ones first. So codes of one length are
    neighbours, and the entries that begin with a code are a run of the table.

Example
    Bytes a, b, c, d with counts 5, 2, 1, 1 and a limit of two bits: Huffman would give 1, 2, 3 and 3 bits, 15
    in all; the best code within the limit has two bits each, 18 in all. The table has 4 entries instead of 8,
    which at 2 bytes an entry is what decides.

``read`` is the decoder of ``crt/coded.h`` in Python, and generated codes are checked with it: halfwords are
appended below the bits that are left, the highest bits index the table, and the length in the entry says how
far to move on. At least 16 bits are there before each lookup, enough for an escape code and its byte.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Bytes", "Halfwords", "HuffmanCode", "shortest"]

Bytes: TypeAlias = npt.NDArray[np.uint8]
Halfwords: TypeAlias = npt.NDArray[np.uint16]

_LONGEST = 8
_ESCAPE = 1 << 15
_OTHER = 256  # the symbol of all that have no code
_COUNTS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 1 << 7, 160, 192)
_BEYOND = 2  # halfwords that are read behind the last number


@dataclass(frozen=True)
class HuffmanCode:
    """Code lengths of symbols 0 to 256; 0 if a symbol has no code. Symbol 256 is the escape code."""

    lengths: tuple[int, ...]

    @property
    def bits(self) -> int:
        """Length of the longest code, which is the number of bits that index the table."""
        return max(self.lengths)

    @cached_property
    def _codes(self) -> npt.NDArray[np.int64]:
        # Canonical codes: ascending by length, then by symbol.
        made, code, before = np.zeros(257, np.int64), 0, 0
        for length, symbol in sorted((n, s) for s, n in enumerate(self.lengths) if n):
            code <<= length - before
            made[symbol], code, before = code, code + 1, length
        return made

    @property
    def table(self) -> Halfwords:
        """Decoding table, indexed by the next ``bits`` bits: the byte, with its code length from bit 8 on.

        Bit 15 marks the escape code. An index that begins no code has length 1.
        """
        table = np.full(1 << self.bits, 1 << 8, np.uint16)
        for symbol, length in enumerate(self.lengths):
            if length:
                first, entry = int(self._codes[symbol]) << (self.bits - length), length << 8
                entry |= _ESCAPE if symbol == _OTHER else symbol
                table[first : first + (1 << (self.bits - length))] = entry
        return table

    def written(self, numbers: Bytes) -> Halfwords:
        """Encode bytes, the first one in the highest bits, and append the padding that the decoder reads
        beyond the end.
        """
        lengths = np.array(self.lengths)
        plain = lengths[numbers] > 0
        symbols = np.where(plain, numbers.astype(np.int64), _OTHER)
        codes = np.where(plain, self._codes[symbols], self._codes[_OTHER] << 8 | numbers)
        taken = lengths[symbols] + np.where(plain, 0, 8)
        ends = np.cumsum(taken)
        bits = np.zeros(-(-int(ends[-1]) // 16) * 16 if len(ends) else 0, np.uint8)
        for place in range(_LONGEST + 8):  # from the last bit on
            some = taken > place
            bits[ends[some] - 1 - place] = codes[some] >> place & 1
        packed = np.packbits(bits).view(">u2").astype(np.uint16)
        return np.append(packed, np.zeros(_BEYOND, np.uint16))

    def read(self, codes: Halfwords, count: int) -> Bytes:
        table, shift = self.table.tolist(), 32 - self.bits
        made, hold, left, following = bytearray(count), 0, 0, iter(codes.tolist())
        for place in range(count):
            if left < 16:  # below the bits that are left
                hold, left = hold | next(following) << (16 - left), left + 16
            entry = table[hold >> shift]
            length = entry >> 8 & 15
            hold, left = hold << length & 0xFFFFFFFF, left - length
            if entry & _ESCAPE:  # the byte follows the code
                entry, hold, left = hold >> 24, hold << 8 & 0xFFFFFFFF, left - 8
            made[place] = entry & 255
        return np.frombuffer(bytes(made), np.uint8)

    def nbytes(self, counts: npt.NDArray[np.int64]) -> int:
        """Return the size of the table and of the encoded data, if byte i occurs ``counts[i]`` times."""
        lengths = np.array(self.lengths[:_OTHER])
        others = int(counts[lengths == 0].sum()) * (self.lengths[_OTHER] + 8)
        bits = int((counts * lengths).sum()) + others
        return -(-bits // 16) * 2 + 2 * _BEYOND + 2 * (1 << self.bits)


def shortest(numbers: Bytes) -> HuffmanCode:
    """Return the code for which the encoded bytes and the table are smallest. ``numbers`` must not be
    empty.
    """
    counts = np.bincount(numbers, minlength=256).astype(np.int64)
    order = np.argsort(-counts, kind="stable")
    kinds = int((counts > 0).sum())
    codes = [
        _code(counts, order[:some].tolist(), limit)
        for some in sorted({*(n for n in _COUNTS if n < kinds), kinds})
        for limit in range(1, _LONGEST + 1)
        if some + (some < kinds) <= 1 << limit
    ]
    return min(codes, key=lambda code: code.nbytes(counts))


def _code(counts: npt.NDArray[np.int64], symbols: Sequence[int], limit: int) -> HuffmanCode:
    # The best code of at most ``limit`` bits for these bytes, with an escape code if others occur.
    weights = {symbol: int(counts[symbol]) for symbol in symbols}
    others = int(counts.sum()) - sum(weights.values())
    if others:
        weights[_OTHER] = others
    lengths = [0] * 257
    for symbol, length in zip(weights, _lengths(list(weights.values()), limit), strict=True):
        lengths[symbol] = length
    return HuffmanCode(tuple(lengths))


def _lengths(weights: Sequence[int], limit: int) -> list[int]:
    # Length-limited Huffman code by the package-merge algorithm (Larmore and Hirschberg, 1990).
    if len(weights) == 1:
        return [1]  # no code has less than a bit
    alone = sorted((weight, (symbol,)) for symbol, weight in enumerate(weights))
    packages: list[tuple[int, tuple[int, ...]]] = []
    for _ in range(limit):
        merged = sorted((*alone, *packages), key=lambda package: package[0])
        # Neighbours become packages; an odd last one is too expensive ever to be taken.
        twos = zip(merged[0::2], merged[1::2], strict=False)
        packages = [(one[0] + two[0], one[1] + two[1]) for one, two in twos]
    lengths = [0] * len(weights)
    # The first n - 1 pairs of the last round are its 2n - 2 cheapest items.
    for _, symbols in packages[: len(weights) - 1]:
        for symbol in symbols:
            lengths[symbol] += 1
    return lengths
