"""Branches that depend on inputs.

The program counter is always a number. Where a branch depends on an input, each way is run on its own up to
the place where all of them meet, and then registers and memory are put together again. There are three kinds:

- The branch is a function of one *difference*: an element less the greatest of its row, which is from -255
  to 0. The code is run 256 times, with that number as the difference. A word that comes out is the
  list of its 256 values (``cases``), or what it was before plus such a list. So nothing has to be known
  of how the code computes a power of e: its table is made.
- The branch is a function of a *total*, a sum of functions of several differences, and the same for a few
  values of it. This way is taken, and noted as a premise: softmax's check tries each value (``rows``).
- For any other, there are two ways, and what comes out is chosen by the branch's condition.

Any place that all ways come to with the same open calls may be where they meet: what is put together there is
right. The first one is found by running some ways, or all, until they cannot go on alone.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from crtproof.core import RETURNED, SP
from crtproof.elf import Image
from crtproof.memory import Memory
from crtproof.products import Products
from crtproof.values import MASK, Bytes, Halves, Linear, Op, P, Piece, Refused, Symbol, Word, signed
from crtproof.words import (
    add,
    byte_of,
    chosen,
    operation,
    packed,
    same,
    set_of_greatest,
    subtract,
    symbol_of,
    word_of_bytes,
)

__all__ = ["DIFFERENCES", "Total", "Ways", "terms_of"]

DIFFERENCES = range(-255, 1)
_OTHER = Op("other", ())
"""Stands for all that is neither a difference nor a number."""
_SAMPLES = (1 << 19, (1 << 19) + 1, 3 << 18, 1 << 20, (1 << 20) + 12345)
"""Totals of softmax that branches are tried with; the least is that of one element, the greatest by far."""
_LONGEST = 1 << 20
_Memo = dict[int, tuple[Word, Word]]
_SCOUTED, _SCOUTS = 20000, 4
"""Instructions of a way that looks where it leads, and ways of each direction that look first."""


class Total:
    """A sum of functions of one difference each, with what has to hold for each value of it."""

    def __init__(self, node: Op) -> None:
        self.node = node
        self.premises: list[tuple[Word, int]] = []
        """Words that are functions of the total, and the value that each has to have."""
        self.is_checked = True
        self.known: dict[int, tuple[Word, bool, frozenset[Op]]] = {}
        """Dependence of each word on the total, and the differences that it has besides."""


@dataclass
class _State:
    r: list[Word]
    flags: tuple[str, Word, Word, Word]
    greater: tuple[Word, Word] | None
    calls: list[tuple[int, int, list[Word]]]
    below: range
    count: int
    before: list[Word] = field(default_factory=list)
    """Registers at the beginning of a way."""
    written: dict[int, Word | list[Piece] | None] = field(default_factory=dict)


class _Undecided(Exception):
    """Raised where a way that is run to look where it leads comes to another branch."""


class Ways(Products):
    """Adds ``fork``. ``elements`` are the element and the row of a difference, by its identity."""

    def __init__(self, image: Image, memory: Memory, seen: Callable[[int, int], None]) -> None:
        super().__init__(image, memory, self._note)
        self.elements: dict[int, tuple[Symbol, frozenset[Symbol]]] = {}
        self.totals: dict[int, Total] = {}
        self._whole_store = seen
        self._places: dict[tuple[int, int], None] = {}
        self._differences: dict[tuple[Symbol, frozenset[Symbol]], Op] = {}
        self._fixed: dict[int, int] = {}
        self._fixed_elements: frozenset[Op] = frozenset()
        self._resolved: _Memo = {}
        self._supports: dict[int, tuple[Word, frozenset[Op]]] = {}
        self._reaches: dict[int, tuple[Word, frozenset[Op]]] = {}
        self._meetings: dict[tuple[int, int], tuple[int, int]] = {}
        self._is_scout = False

    def _note(self, address: int, size: int) -> None:
        # Stores of a way are seen once the ways have met.
        if self.memory.journal is None:
            self._whole_store(address, size)
        else:
            self._places[address, size] = None

    # ---- words that depend on differences

    def difference(self, w: Word) -> Word:
        """Return the word of a difference to the greatest of a row: one object for each element."""
        if isinstance(w, Op) and w.name == "sub":
            for x, y in (w.args, w.args[::-1]):
                element = symbol_of(x) if isinstance(x, Linear) else None
                row = set_of_greatest(y) if element and isinstance(y, Op) else None
                if element and row and element in row:
                    symbols = frozenset(v for v in row if isinstance(v, Symbol))
                    if len(symbols) == len(row):
                        named = self._named(element, symbols)
                        return named if x is w.args[0] else subtract(0, named)
        return w

    def _named(self, element: Symbol, row: frozenset[Symbol]) -> Word:
        key = element, row
        if key not in self._differences:
            made = self._differences[key] = Op("difference", ())
            self.elements[id(made)] = key
        return self.resolved(self._differences[key])

    def resolved(self, w: Word) -> Word:
        """Return a word with the differences and conditions that this way has fixed."""
        if not self._fixed or not isinstance(w, Op | Halves | Bytes):
            return w
        if self._fixed_elements and isinstance(w, Op) and self._reach(w).isdisjoint(self._fixed_elements):
            return w
        if id(w) not in self._resolved:
            self._resolved[id(w)] = w, self._of_parts(w)
        return self._resolved[id(w)][1]

    def _of_parts(self, w: Op | Halves | Bytes) -> Word:
        if id(w) in self._fixed:
            return self._fixed[id(w)] & MASK
        if isinstance(w, Halves):
            low, high = self.resolved(w.low), self.resolved(w.high)
            return w if low is w.low and high is w.high else packed(low, high)
        if isinstance(w, Bytes):
            parts = tuple(p if isinstance(p, Symbol) else self.resolved(p) for p in w.parts)
            unchanged = all(a is b for a, b in zip(parts, w.parts, strict=True))
            return w if unchanged else word_of_bytes(tuple(_byte(p) for p in parts))
        if w.name == "cases":
            difference = self.resolved(w.args[0])
            if isinstance(difference, int):
                return self.resolved(w.args[1 + signed(difference) - DIFFERENCES[0]])
        if w.name == "field" or id(w) in self.totals:
            return w
        args = tuple(self.resolved(a) for a in w.args)
        if all(a is b for a, b in zip(args, w.args, strict=True)):
            return w
        if w.name == "table":
            a = args[0]
            if not isinstance(a, int):
                return Op(w.name, args, w.numbers)
            return self.memory.from_table((a, a), w.numbers[0], bool(w.numbers[1]))[0] & MASK
        return add(*args) if w.name == "add" else operation(w.name, *args, numbers=w.numbers)

    def at(self, w: Word, node: Op, value: int, memo: "_Memo | None" = None) -> Word:
        """Return a word where one node has a value. ``memo`` is of the same node and value."""
        kept = self._fixed, self._fixed_elements, self._resolved
        self._fix(node, value)
        self._resolved = {} if memo is None else memo
        try:
            return self.resolved(w)
        finally:
            self._fixed, self._fixed_elements, self._resolved = kept

    def _fix(self, node: Op, value: int) -> None:
        self._fixed = {**self._fixed, id(node): value}
        self._resolved = {}
        others = self._fixed_elements if len(self._fixed) > 1 else frozenset()
        # Empty if a node is fixed that is no difference.
        known = id(node) in self.elements and len(others) == len(self._fixed) - 1
        self._fixed_elements = others | {node} if known else frozenset()

    def support(self, w: Piece) -> frozenset[Op]:
        """Return the differences that a word depends on, and ``_OTHER`` if it depends on anything else."""
        if isinstance(w, int):
            return frozenset()
        if not isinstance(w, Op):
            return frozenset((_OTHER,))
        if id(w) not in self._supports:
            if w.name == "difference":
                found = frozenset((w,))
            elif not w.args or w.name == "field":
                found = frozenset((_OTHER,))
            else:
                found = frozenset[Op]().union(*(self.support(a) for a in w.args))
            self._supports[id(w)] = w, found
        return self._supports[id(w)][1]

    def _reach(self, w: Op) -> frozenset[Op]:
        # The differences that a word depends on besides those in totals, which stay whole.
        if id(w) not in self._reaches:
            if w.name == "difference":
                found = frozenset((w,))
            elif id(w) in self.totals:
                found = frozenset()
            else:
                own = (self._reach(a) if isinstance(a, Op) else self.support(a) for a in w.args)
                found = frozenset[Op]().union(*own)
            self._reaches[id(w)] = w, found
        return self._reaches[id(w)][1]

    def total_of(self, w: Piece) -> Total | None:
        """Return the one total that a word depends on; all else in it are differences."""
        if not isinstance(w, Op) or len(self.support(w)) < 2 or _OTHER in self.support(w):
            return None
        if id(w) in self.totals:
            return self.totals[id(w)]
        found: dict[int, Op] = {}
        todo, seen = [w], {id(w)}
        while todo:
            node = todo.pop()
            if node.name == "add" and all(len(self.support(t)) < 2 for t in terms_of(node)):
                found[id(node)] = node
                continue
            for a in node.args:
                if isinstance(a, Op) and len(self.support(a)) > 1 and id(a) not in seen:
                    seen.add(id(a))
                    todo.append(a)
        if len(found) != 1:
            return None
        ((key, node),) = found.items()
        if key not in self.totals:
            self.totals[key] = Total(node)
            self._reaches.clear()
        return self.totals[key]

    def depends_on(self, w: Piece, total: Total) -> tuple[bool, frozenset[Op]]:
        """Return if a word depends on a total, and the differences that it depends on besides."""
        if w is total.node:
            return True, frozenset()
        if not isinstance(w, Op) or len(self.support(w)) < 2:
            return False, self.support(w)
        if id(w) not in total.known:
            parts = [self.depends_on(a, total) for a in w.args]
            total.known[id(w)] = w, any(p[0] for p in parts), frozenset[Op]().union(*(p[1] for p in parts))
        return total.known[id(w)][1:]

    # ---- ways

    def fork(self, condition: Op, to: int, following: int) -> int:
        """Run all ways of a branch; return the address at which they have met."""
        if self.block:
            raise Refused("a branch within a block")
        decided = self.resolved(condition)
        if isinstance(decided, int):
            return to if decided else following
        if not isinstance(decided, Op):
            raise Refused("a condition that is not followed")
        own = self.support(decided)
        total = self.total_of(decided)
        if total is not None and not self.depends_on(decided, total)[1]:
            values = {self.at(decided, total.node, sample) for sample in _SAMPLES}
            if values in ({0}, {1}):
                (value,) = values
                if not self._is_scout:
                    total.premises.append((decided, 1 if value else 0))
                    total.is_checked = False
                return to if value else following
        if self._is_scout:
            raise _Undecided
        if len(own) == 1 and _OTHER not in own:
            (node,) = own
            starts = [(d, to if self.at(decided, node, d) else following) for d in DIFFERENCES]
            if len({pc for _, pc in starts}) == 1:
                return starts[0][1]
        else:
            node, starts = decided, [(1, to), (0, following)]
        return self._together(node, starts, (to, following))

    def _together(self, node: Op, starts: list[tuple[int, int]], key: tuple[int, int]) -> int:
        begin = _State(
            list(self.r), self.flags, self.greater, list(self.calls), self.memory.below, self.count
        )
        ends = None
        if key in self._meetings:
            ends = self._all(begin, node, starts, self._meetings[key])
        for scouts in (_some_of(starts), starts):
            if ends is None:
                self._meetings[key] = self._meeting(begin, node, scouts)
                ends = self._all(begin, node, starts, self._meetings[key])
        if ends is None:
            raise Refused("a branch that depends on an input, whose ways do not meet")
        self._merge(begin, node, ends)
        if self.memory.journal is None:
            places, self._places = list(self._places), {}
            for address, size in places:
                if address not in self.memory.below:
                    self._whole_store(address, size)
        return self._meetings[key][1]

    def _all(
        self, begin: _State, node: Op, starts: list[tuple[int, int]], meeting: tuple[int, int]
    ) -> list[_State] | None:
        # The ends of all ways; None if one does not come to the meeting.
        depth, place = len(begin.calls) + meeting[0], meeting[1]
        ends: list[_State] = []
        for value, first in starts:
            with closing(self._way(begin, node, value, first, ends)) as way:
                for pc in way:
                    if pc == place and len(self.calls) == depth:
                        break
                    if len(self.calls) < depth:
                        return None
                else:
                    return None
        return ends

    def _way(self, begin: _State, node: Op, value: int, pc: int, ends: list[_State]) -> Generator[int]:
        # Yields the address of each instruction before it is run; the state is noted where it is left.
        kept = self._fixed, self._fixed_elements, self._resolved, self.memory.journal
        self._fix(node, value)
        self.memory.journal = {}
        r = self.r
        r[:] = [self.resolved(w) for w in begin.r]
        kind, a, b, c = begin.flags
        self.flags = kind, self.resolved(a), self.resolved(b), self.resolved(c)
        self.greater = None
        self.calls[:] = [(to, n, [self.resolved(w) for w in some]) for to, n, some in begin.calls]
        before, self.count = list(r), begin.count
        try:
            sp = r[SP]
            while pc != RETURNED and self.count - begin.count < _LONGEST:
                if not self.block:
                    yield pc
                pc = self.one(pc)
                if r[SP] is not sp:
                    sp = r[SP]
                    self.memory.move(self.stack_pointer())
        finally:
            memory = self.memory
            written = {i: memory.words.get(i) for i in memory.journal or ()}
            ends.append(
                _State(list(r), self.flags, None, list(self.calls), memory.below, self.count, before, written)
            )
            for i, w in (memory.journal or {}).items():
                if w is None:
                    memory.words.pop(i, None)
                else:
                    memory.words[i] = w
            memory.below, self.block = begin.below, []
            self._fixed, self._fixed_elements, self._resolved, memory.journal = kept
            r[:], self.flags, self.greater = begin.r, begin.flags, begin.greater
            self.calls[:], self.count = begin.calls, begin.count

    def _meeting(self, begin: _State, node: Op, starts: list[tuple[int, int]]) -> tuple[int, int]:
        # The first place of the first way that all ways come to: calls that are closed before, and address.
        common: dict[tuple[int, int], None] | None = None
        depth = len(begin.calls)
        self._is_scout = True
        try:
            for value, first in starts:
                seen: dict[tuple[int, int], None] = {}
                least = 0
                try:
                    with closing(self._way(begin, node, value, first, [])) as way:
                        for pc in way:
                            least = min(least, len(self.calls) - depth)
                            if len(self.calls) - depth == least:
                                seen[least, pc] = None
                            if self.count - begin.count > _SCOUTED:
                                break
                except (_Undecided, Refused):
                    pass
                common = seen if common is None else {k: None for k in common if k in seen}
        finally:
            self._is_scout = False
        if not common:
            raise Refused("a branch that depends on an input, whose ways do not meet")
        return next(iter(common))

    # ---- putting ways together

    def _merge(self, begin: _State, node: Op, ends: list[_State]) -> None:
        if any(e.below != ends[0].below for e in ends):
            raise Refused("a stack pointer that depends on an input")
        for n in range(16):
            if any(e.r[n] is not e.before[n] for e in ends):
                self.r[n] = self._one_of(node, [e.r[n] for e in ends])
        kinds = {e.flags[0] for e in ends}
        parts = zip(*(e.flags[1:] for e in ends), strict=True)
        if len(kinds) == 1 and all(_all_alike(words) for words in parts):
            self.flags = ends[0].flags
        else:
            self.flags = "none", 0, 0, 0
        self.greater = None
        self.calls[:] = begin.calls[: len(ends[0].calls)]
        self.count = max(e.count for e in ends)
        memory = self.memory
        memory.below = ends[0].below
        for i in dict.fromkeys(i for e in ends for i in e.written):
            old = memory.words.get(i)
            words = [e.written.get(i, old) for e in ends]
            memory.put(i, None if any(w is None for w in words) else self._word_of(node, words))

    def _word_of(self, node: Op, words: Sequence[Word | list[Piece] | None]) -> Word | list[Piece]:
        if not any(isinstance(w, list) for w in words):
            return self._one_of(node, [w for w in words if w is not None and not isinstance(w, list)])
        parts: list[Piece] = []
        for k in range(4):
            pieces = [w[k] if isinstance(w, list) else byte_of(w, k) for w in words if w is not None]
            if all(p is pieces[0] or (isinstance(p, int) and p == pieces[0]) for p in pieces):
                parts.append(pieces[0])
            else:
                own = [p.word if isinstance(p, Symbol) else p for p in pieces]
                parts.append(byte_of(self._one_of(node, own), 0))
        return parts

    def _one_of(self, node: Op, words: list[Word]) -> Word:
        # The word that has these values for the values of a node.
        first = words[0]
        if _all_alike(words):
            return first
        if id(node) not in self.elements:
            return chosen(node, *words)
        bases = [base for base, _ in map(_base, words)]
        numbers = [number for _, number in map(_base, words)]
        if not isinstance(bases[0], int) and all(b is bases[0] for b in bases):
            return add(bases[0], operation("cases", node, *numbers))
        return operation("cases", node, *words)


def _some_of(starts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    # A few ways of each direction.
    by_first: dict[int, list[tuple[int, int]]] = {}
    for value, first in starts:
        by_first.setdefault(first, []).append((value, first))
    some = (ways[len(ways) * k // _SCOUTS] for ways in by_first.values() for k in range(_SCOUTS))
    return list(dict.fromkeys(some))


def _byte(p: Piece) -> Piece:
    return p & 255 if isinstance(p, int) else p


def terms_of(w: Word) -> Iterator[Word]:
    """Yield what a tree of additions adds up."""
    todo = [w]
    while todo:
        node = todo.pop()
        if isinstance(node, Op) and node.name == "add":
            todo.extend(node.args)
        else:
            yield node


def _base(w: Word) -> tuple[Word, int]:
    # A word as another one and a number that is added to it.
    number = 0
    while isinstance(w, Op) and w.name == "add" and any(isinstance(a, int) for a in w.args):
        a, b = w.args
        w, n = (a, b) if isinstance(b, int) else (b, a)
        number += n if isinstance(n, int) else 0
    return w, number & MASK


def _all_alike(words: Sequence[Word]) -> bool:
    return all(_is_alike(w, words[0], 3) for w in words)


def _is_alike(a: Word, b: Word, depth: int) -> bool:
    if same(a, b):
        return True
    if isinstance(a, Linear) and isinstance(b, Linear):
        return a.const == b.const and (a.mark - b.mark) % P == 0
    if depth and isinstance(a, Op) and isinstance(b, Op):
        return (
            (a.name, a.numbers, len(a.args)) == (b.name, b.numbers, len(b.args))
            and a.name not in ("unknown", "difference")
            and all(_is_alike(x, y, depth - 1) for x, y in zip(a.args, b.args, strict=True))
        )
    return False
