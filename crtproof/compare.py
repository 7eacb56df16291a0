"""A stored word beside an output of a layer, for every value of what it depends on.

A word that is a function of one sum is turned into a list of operations. The sums for which the network's
output stays the same are an interval, since its function never falls: there are at most 256. On each of these
intervals the operations have to give that one output. Where they give a wider interval, which may be because
intervals forget how operands belong together, the interval of sums is halved; a single sum is exact.
"""

from collections.abc import Callable, Iterator

from crtproof.layers import Addition, Form, Value
from crtproof.memory import Memory
from crtproof.values import (
    ALL,
    OPERATIONS,
    Bytes,
    Interval,
    Linear,
    Op,
    P,
    Piece,
    Refused,
    Symbol,
    Word,
    signed,
)
from crtproof.words import set_of_greatest

__all__ = ["Comparer", "Entry", "program_of"]

_MOST_INTERVALS = 1 << 20
Leaf = Callable[[Linear], tuple[int, ...]]
Entry = tuple[str, tuple[int, ...], tuple[int, ...]]
Ends = Callable[[int, int], Callable[[tuple[int, ...]], Interval]]


class Comparer:
    """Compares, and remembers what it has compared by the form of a word."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.intervals = 0
        """Number of intervals that were looked at."""
        self._verdicts: dict[object, bool] = {}

    def is_sum(self, word: Piece, form: Form) -> bool:
        """Check that the lowest byte of a word is a layer's output, for each sum that it can have."""
        mark = form.mark % P
        inverse = pow(mark, -1, P)

        def leaf(x: Linear) -> tuple[int, ...]:
            k = x.mark * inverse % P
            k = k - P if k > P >> 1 else k
            if abs(k) >> 40:
                raise _OtherSum
            return k, x.const - k * form.base

        program = _program(word, leaf)
        if program is None:
            return False
        key = program, form.function.key, form.low, form.high
        if key not in self._verdicts:
            self._verdicts[key] = self.agrees(program, form.function, form.low, form.high, _ends)
        return self._verdicts[key]

    def value(self, word: Word, at: Callable[[Linear], int]) -> int:
        """Return the value of a word for given values of its sums."""

        def ends(n: tuple[int, ...]) -> Interval:
            return n[0], n[0]

        return self._run(tuple(_entries(word, lambda x: (at(x),))), ends)[0]

    def agrees(
        self, program: tuple[Entry, ...], function: Callable[[int], int], low: int, high: int, ends: Ends
    ) -> bool:
        """Check that the lowest byte of a program is a function that never falls, from ``low`` to ``high``.

        ``ends`` makes the intervals of the program's leaves from one of the function's argument.
        """
        todo = list(_constant_parts(function, low, high))
        looked = 0
        while todo:
            low, high, wanted = todo.pop()
            looked += 1
            if looked > _MOST_INTERVALS:
                raise Refused("a function of a sum that turns too often to be compared")
            found = _low_byte(self._run(program, ends(low, high)))
            if found != (wanted, wanted):
                if low == high or found[0] > wanted or found[1] < wanted:
                    return False
                middle = (low + high) >> 1
                todo += [(low, middle, wanted), (middle + 1, high, wanted)]
        self.intervals += looked
        return True

    def is_pair(self, word: Piece, layer: Addition, index: int) -> bool:
        """Check that the lowest byte of a word is the sum of two elements, for each pair of them."""
        x, y = layer.operands[index]
        if not isinstance(x, Symbol) or not isinstance(y, Symbol) or x is y:
            raise Refused("an addition of a number, or of an element to itself")

        def leaf(n: Linear) -> tuple[int, ...]:
            factors = n.terms()
            if factors.keys() - {x, y}:
                raise _OtherSum
            return factors.get(x, 0), factors.get(y, 0), n.const

        program = _program(word, leaf)
        if program is None:
            return False
        key = program, id(layer)
        if key not in self._verdicts:
            self._verdicts[key] = self._all_pairs(program, layer)
        return self._verdicts[key]

    def _all_pairs(self, program: tuple[Entry, ...], layer: Addition) -> bool:
        # What depends on one of the two alone is computed once for each value of it.
        depends: list[int] = []
        for name, numbers, args in program:
            own = (numbers[0] != 0) | (numbers[1] != 0) << 1 if name in ("leaf", "field") else 0
            for i in args:
                own |= depends[i]
            depends.append(own)
        every = range(-128, 128)
        self.intervals += 1 << 16
        of_second = [self._filled(program, depends, (0, 2), [None] * len(program), 0, b) for b in every]
        for a in every:
            of_first = self._filled(program, depends, (0, 1), [None] * len(program), a, 0)
            for b, known in zip(every, of_second, strict=True):
                both = [u if u is not None else v for u, v in zip(of_first, known, strict=True)]
                found = self._filled(program, depends, (3,), both, a, b)[-1]
                wanted = layer.value(a, b)
                if found is None or _low_byte(found) != (wanted, wanted):
                    return False
        return True

    def _filled(
        self, program: tuple[Entry, ...], depends: list[int], which: tuple[int, ...],
        results: list[Interval | None], a: int, b: int,
    ) -> list[Interval | None]:  # fmt: skip
        for place, entry in enumerate(program):
            if depends[place] in which and results[place] is None:
                results[place] = self._entry(entry, results, lambda n: (n[0] * a + n[1] * b + n[2],) * 2)
        return results

    def is_greatest(self, word: Piece, values: frozenset[Value]) -> bool:
        """Check that a word is the greatest of these values, each of which is an element or a number."""
        found = set_of_greatest(word)
        return found is not None and found == values - {-128}

    def _run(self, program: tuple[Entry, ...], leaf: Callable[[tuple[int, ...]], Interval]) -> Interval:
        results: list[Interval | None] = []
        for entry in program:
            results.append(self._entry(entry, results, leaf))
        return results[-1] or ALL

    def _entry(
        self, entry: Entry, results: list[Interval | None], leaf: Callable[[tuple[int, ...]], Interval]
    ) -> Interval:
        name, numbers, args = entry
        if name == "leaf":
            low, high = leaf(numbers)
            return OPERATIONS["add"]((), ((min(low, high), max(low, high)), (0, 0)))
        if name == "field":  # of a sum that may need more than 32 bits
            low, high = leaf(numbers[:-1])
            ends = min(low, high) >> numbers[-1], max(low, high) >> numbers[-1]
            return OPERATIONS["add"]((), (ends, (0, 0)))
        if name == "number":
            return numbers[0], numbers[0]
        if name == "unknown":
            raise Refused("a value that depends on memory or a register that nothing wrote")
        operands = tuple([results[i] or ALL for i in args])
        if name == "table":
            return self.memory.from_table(operands[0], numbers[0], bool(numbers[1]))
        return OPERATIONS[name](numbers, operands)


def _ends(low: int, high: int) -> Callable[[tuple[int, ...]], Interval]:
    return lambda n: (n[0] * low + n[1], n[0] * high + n[1])


class _OtherSum(Exception):
    """Raised for a word that depends on another sum."""


def _program(word: Piece, leaf: Leaf) -> tuple[Entry, ...] | None:
    # The operations of a word; None if it depends on another sum.
    try:
        return tuple(_entries(word, leaf))
    except _OtherSum:
        return None


def program_of(word: Piece, given: dict[int, int]) -> tuple[Entry, ...]:
    """Return the operations of a word of which some nodes, by their identity, are leaves with a number.

    Raises ``Refused`` if it depends on anything else.
    """

    def leaf(x: Linear) -> tuple[int, ...]:
        raise Refused("softmax uses an input otherwise than by its difference to the greatest")

    return tuple(_entries(word, leaf, given))


def _low_byte(v: Interval) -> Interval:
    return OPERATIONS["sxtb"]((), (v,))


def _entries(word: Piece, leaf: Leaf, given: dict[int, int] | None = None) -> Iterator[Entry]:
    # The operations of a word in an order in which operands come first; each is named by its place.
    places: dict[int, int] = {}
    entries: list[Entry] = []

    def place(w: Piece) -> int:
        if isinstance(w, Symbol):
            w = w.word
        if id(w) in places and not isinstance(w, int):
            return places[id(w)]
        if isinstance(w, int):
            entry: Entry = ("number", (signed(w),), ())
        elif given and id(w) in given:
            entry = ("leaf", (given[id(w)],), ())
        elif isinstance(w, Linear):
            entry = ("leaf", leaf(w), ())
        elif isinstance(w, Op) and w.name == "field" and isinstance(w.args[0], Linear):
            entry = ("field", (*leaf(w.args[0]), w.numbers[0]), ())
        elif isinstance(w, Op):
            entry = (w.name, w.numbers, tuple(place(a) for a in w.args))
        else:
            parts: tuple[Piece, ...] = w.parts if isinstance(w, Bytes) else (w.low, w.high)
            entry = ("bytes" if isinstance(w, Bytes) else "halves", (), tuple(place(p) for p in parts))
        entries.append(entry)
        if not isinstance(w, int):
            places[id(w)] = len(entries) - 1
        return len(entries) - 1

    place(word)
    yield from entries


def _constant_parts(f: Callable[[int], int], low: int, high: int) -> Iterator[tuple[int, int, int]]:
    # Intervals on which a function that never falls stays the same, with its value.
    todo = [(low, high, f(low), f(high))]
    begin, value = low, f(low)
    while todo:
        a, b, first, last = todo.pop()
        if first == last:
            if first != value:
                yield begin, a - 1, value
                begin, value = a, first
            continue
        middle = (a + b) >> 1
        todo += [(middle + 1, b, f(middle + 1), last), (a, middle, first, f(middle))]
    yield begin, high, value
