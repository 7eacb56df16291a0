"""Softmax: a stored byte beside an output, for all differences and all sums of powers.

A row's sum S adds, for each element, a function of its difference d to the greatest, which is a list of 256
numbers: each is compared. So S is one of at most depth * 2^19 numbers, and an output is a function of d
and S.

In the output's word are nodes that depend on S alone. Those that give the network's reciprocal R for a few
sums are taken for R, and the greatest others to depend on nothing but the length of S in bits, such as a
shift. Then all that was taken for granted is *tried for every S*, by a Python function that is
made of the nodes: the reciprocals, the other nodes, and the directions of branches that were guessed
(``ways``). What is left is, for each d and each length, a function of R alone, which is compared on intervals
as for every other layer.

Example: digits has rows of 10. S has 4.7 million values of 5 lengths; a function of about 80 operations is
tried for each of them, which takes 25 seconds.
"""

from collections.abc import Callable, Iterator
from typing import Any

from crtproof.compare import Comparer, Entry, program_of
from crtproof.layers import Softmax
from crtproof.values import Interval, Op, Piece, Refused, Symbol, Word, signed
from crtproof.ways import DIFFERENCES, Total, Ways, terms_of

__all__ = ["Rows", "compiled", "finder"]

_MOST_SUMS = 1 << 25
_SAMPLES = 12
# By length of a sum: least and greatest reciprocal, and the other nodes.
_Lengths = dict[int, tuple[int, int, tuple[int, ...]]]
_TRIED: dict[object, _Lengths] = {}
"""Functions that were tried for all sums, and hold."""


class Rows:
    """Compares outputs of softmax, and remembers what it has compared."""

    def __init__(self, machine: Ways, comparer: Comparer) -> None:
        self.machine, self.comparer = machine, comparer
        self.totals: dict[int, tuple[Total, Softmax, int]] = {}
        """The total of each node, with the layer and the row that it sums up."""
        self._right: set[object] = set()

    def place(self, piece: Piece, layer: Softmax) -> int | None:
        """Return the output that a byte is for every input, or None."""
        total = self.machine.total_of(piece)
        if total is None or not isinstance(piece, Op):
            return None
        depends, differences = self.machine.depends_on(piece, total)
        if not depends or len(differences) != 1:
            return None
        ((node),) = differences
        element, row = self.machine.elements[id(node)]
        number = self._row(total, row, layer)
        if number is None:
            return None
        self._compare(piece, node, total, layer)
        return number * layer.depth + layer.rows[number].index(element)

    def check_premises(self) -> None:
        """Check the guesses that were made after the last output."""
        for total, layer, _ in list(self.totals.values()):
            self._lengths(total, layer, [], [])
        if not all(total.is_checked for total in self.machine.totals.values()):
            raise Refused("a branch that depends on a sum that is not softmax's")

    def _row(self, total: Total, row: frozenset[Symbol], layer: Softmax) -> int | None:
        # The row of which a total is the sum, term by term.
        if id(total.node) in self.totals:
            _, other, number = self.totals[id(total.node)]
            return number if other is layer and row == frozenset(layer.rows[number]) else None
        numbers = [n for n, elements in enumerate(layer.rows) if frozenset(elements) == row]
        if not numbers:
            return None
        shares: dict[Symbol, list[int]] = {}
        for term in terms_of(total.node):
            if isinstance(term, int) and term == 0:
                continue
            (node,) = self.machine.support(term) or (None,)
            if node is None or id(node) not in self.machine.elements:
                return None
            element, other_row = self.machine.elements[id(node)]
            if other_row != row:
                return None
            share = shares.setdefault(element, [0] * len(DIFFERENCES))
            for k, d in enumerate(DIFFERENCES):
                share[k] += self._number(self.machine.at(term, node, d))
        elements = layer.rows[numbers[0]]
        wanted = {e: [n * elements.count(e) & 0xFFFFFFFF for n in layer.shares] for e in elements}
        if {e: [n & 0xFFFFFFFF for n in s] for e, s in shares.items()} != wanted:
            return None
        self.totals[id(total.node)] = total, layer, numbers[0]
        return numbers[0]

    @staticmethod
    def _number(w: Word) -> int:
        if not isinstance(w, int):
            raise Refused("a term of softmax's sum that depends on more than a difference")
        return w

    # ---- an output

    def _compare(self, word: Op, node: Op, total: Total, layer: Softmax) -> None:
        reciprocals, others = self._cuts(word, total, layer)
        lengths = self._lengths(total, layer, reciprocals, others)
        given = {id(w): 0 for w in reciprocals} | {id(w): 1 + k for k, w in enumerate(others)}
        programs = [program_of(self.machine.at(word, node, d), given) for d in DIFFERENCES]
        key = layer.key, tuple(programs), tuple(lengths.items())
        if key in self._right:
            return
        for d, program in zip(DIFFERENCES, programs, strict=True):
            for length, (least, most, fixed) in lengths.items():
                self._along(program, layer, d, 3 + length, (least, most), fixed)
        self._right.add(key)

    def _along(
        self, program: tuple[Entry, ...], layer: Softmax, d: int, shift: int, ends: Interval,
        fixed: tuple[int, ...],
    ) -> None:  # fmt: skip
        def leaves(low: int, high: int) -> Callable[[tuple[int, ...]], Interval]:
            return lambda n: (low, high) if n[0] == 0 else (fixed[n[0] - 1],) * 2

        def function(scale: int) -> int:
            return layer.result(d, scale, shift)

        if not self.comparer.agrees(program, function, *ends, leaves):
            raise Refused(f"softmax differs at the difference {d}, with the shift {shift}")

    def _cuts(self, word: Op, total: Total, layer: Softmax) -> tuple[list[Op], list[Op]]:
        # Nodes that are taken for the reciprocal, and the greatest others that depend on the sum alone.
        most, is_alone = layer.depth << 19, self._is_alone
        samples = [(1 << 19) + (most - (1 << 19)) * k // (_SAMPLES - 1) for k in range(_SAMPLES)]
        wanted = [(s, layer.reciprocal(s) & 0xFFFFFFFF, dict[int, tuple[Word, Word]]()) for s in samples]
        reciprocals: dict[int, bool] = {}
        holds: dict[int, bool] = {}

        def is_reciprocal(w: Op) -> bool:
            if id(w) not in reciprocals:
                of = (self.machine.at(w, total.node, s, memo) == r for s, r, memo in wanted)
                reciprocals[id(w)] = is_alone(w, total) and all(of)
            return reciprocals[id(w)]

        def has(w: Word) -> bool:
            # A reciprocal somewhere in it.
            if not isinstance(w, Op) or w is total.node or not self.machine.depends_on(w, total)[0]:
                return False
            if id(w) not in holds:
                holds[id(w)] = is_reciprocal(w) or any(has(a) for a in w.args)
            return holds[id(w)]

        found: tuple[dict[int, Op], dict[int, Op]] = {}, {}
        todo: list[Word] = [word]
        seen: set[int] = set()
        while todo:
            w = todo.pop()
            if isinstance(w, Op) and id(w) not in seen and self.machine.depends_on(w, total)[0]:
                seen.add(id(w))
                if w is not total.node and is_reciprocal(w):
                    found[0][id(w)] = w
                elif is_alone(w, total) and not has(w):
                    found[1][id(w)] = w
                else:
                    todo += w.args
        return list(found[0].values()), list(found[1].values())

    def _is_alone(self, w: Word, total: Total) -> bool:
        return self.machine.depends_on(w, total) == (True, frozenset())

    # ---- all sums

    def _lengths(self, total: Total, layer: Softmax, reciprocals: list[Op], others: list[Op]) -> _Lengths:
        given = {id(total.node): 0}
        first, last = layer.shares[-1], max(layer.shares) * layer.depth  # one difference is 0
        if last > _MOST_SUMS or min(layer.shares) < 0:
            raise Refused("a sum of softmax that has too many values to try")
        scales = tuple(dict.fromkeys(program_of(w, given) for w in reciprocals))
        fixed = tuple(program_of(w, given) for w in others)
        premises = tuple(dict.fromkeys((program_of(w, given), v) for w, v in total.premises))
        key = first, last, scales, fixed, premises
        if key not in _TRIED:
            _TRIED[key] = dict(_tried(first, last, layer, scales, fixed, premises))
        total.is_checked = True
        return _TRIED[key]


def _tried(
    first: int, last: int, layer: Softmax, scales: tuple[tuple[Entry, ...], ...],
    fixed: tuple[tuple[Entry, ...], ...], premises: tuple[tuple[tuple[Entry, ...], int], ...],
) -> Iterator[tuple[int, tuple[int, int, tuple[int, ...]]]]:  # fmt: skip
    # Tries all sums, by their length.
    begin, count = first, len(scales)
    others = compiled((*(p for p, _ in premises), *fixed))
    find = finder((*scales, *(p for p, _ in premises), *fixed), count)
    while begin <= last:
        length = begin.bit_length()
        end = min(last + 1, 1 << length)
        expected = (*(value for _, value in premises), *others(begin)[len(premises) :])
        wrong, least, most = find(begin, end, expected, layer.reciprocal)
        if wrong is not None:
            raise Refused(f"a function of softmax's sum is another one for {wrong}")
        if least < 0:
            raise Refused("a reciprocal of softmax that is negative")
        yield length, (least, most, tuple(signed(v) for v in expected[len(premises) :]))
        begin = end


# Operations on words as numbers from 0, in Python. ``s0`` is the first operand with its sign, ``n0`` the
# first number.
_PYTHON = {
    "add": "{0} + {1} & M", "sub": "{0} - {1} & M", "mul": "{0} * {1} & M",
    "and": "{0} & {1}", "orr": "{0} | {1}", "eor": "{0} ^ {1}", "mvn": "{0} ^ M",
    "asr": "{s0} >> {n0} & M", "lsl": "{0} << {n0} & M", "lsr": "{0} >> {n0}",
    "sxtb": "({0} & 255 ^ 128) - 128 & M", "sxth": "({0} & 65535 ^ 32768) - 32768 & M",
    "uxtb": "{0} & 255", "uxth": "{0} & 65535", "clz": "32 - {0}.bit_length()",
    "min": "{0} if {s0} < {s1} else {1}", "max": "{0} if {s0} > {s1} else {1}",
    "eq": "+({0} == {1})", "gt": "+({s0} > {s1})", "ge": "+({s0} >= {s1})",
    "hi": "+({0} > {1})", "cs": "+({0} >= {1})", "carry": "{0} + {1} >> 32",
    "sel": "{1} if {0} else {2}", "ulong": "{0} * {1} >> {n0} & M",
    "lslr": "{0} << ({1} & 255) & M", "lsrr": "{0} >> ({1} & 255)", "asrr": "{s0} >> ({1} & 255) & M",
}  # fmt: skip


def compiled(programs: tuple[tuple[Entry, ...], ...]) -> Callable[[int], tuple[int, ...]]:
    """Return a function of a sum that gives the words of all programs, as numbers from 0.

    Raises ``Refused`` for an operation that has no form in Python.
    """
    lines, results = _Text().of(programs)
    body = "".join(f"    {line}\n" for line in lines)
    made: Callable[[int], tuple[int, ...]] = _made(
        f"def function(total):\n{body}    return ({''.join(r + ', ' for r in results)})\n"
    )
    return made


def finder(programs: tuple[tuple[Entry, ...], ...], count: int) -> Callable[..., tuple[int | None, int, int]]:
    """Return a function that looks for a sum from ``first`` to below ``end`` for which a program is wrong.

    The first ``count`` programs have to give the reciprocal, the others what is ``expected``. The function
    returns the sum, or None, and the least and the greatest reciprocal.
    """
    lines, results = _Text().of(programs)
    body = "".join(f"        {line}\n" for line in lines)
    others = [f"{r} != e{k}" for k, r in enumerate(results[count:])]
    wrong = " or ".join([f"{r} != scale" for r in results[:count]] + others) or "False"
    names = "".join(f"e{k}, " for k in range(len(others)))
    unpacked = f"    ({names}) = expected\n" if names else ""
    made: Callable[..., tuple[int | None, int, int]] = _made(
        "def function(first, end, expected, reciprocal):\n"
        f"{unpacked}    least = most = reciprocal(first)\n"
        "    for total in range(first, end):\n"
        f"{body}        scale = reciprocal(total)\n"
        f"        if {wrong}:\n            return total, least, most\n"
        "        if scale < least:\n            least = scale\n"
        "        elif scale > most:\n            most = scale\n"
        "    return None, least, most\n"
    )
    return made


def _made(text: str) -> Any:
    room: dict[str, Any] = {}
    exec(text, room)  # of the forms above, numbers and names alone
    return room["function"]


class _Text:
    """Lines of Python that compute each operation once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, str] = {}

    def of(self, programs: tuple[tuple[Entry, ...], ...]) -> tuple[list[str], list[str]]:
        results = []
        for program in programs:
            own: list[str] = []
            for name, numbers, args in program:
                if name == "leaf":
                    own.append("total")
                elif name == "number":
                    own.append(str(numbers[0] & 0xFFFFFFFF))
                else:
                    own.append(self._named(self._form(name, numbers, [own[i] for i in args])))
            results.append(own[-1])
        return self.lines, results

    def _named(self, form: str) -> str:
        if form not in self.names:
            self.names[form] = f"v{len(self.names)}"
            self.lines.append(f"{self.names[form]} = {form}")
        return self.names[form]

    def _signed(self, word: str) -> str:
        if word.isdigit():
            return f"({signed(int(word))})"
        return word if word == "total" else self._named(f"({word} ^ 0x80000000) - 0x80000000")

    def _form(self, name: str, numbers: tuple[int, ...], args: list[str]) -> str:
        if name == "long":
            pairs = [self._product(args[i], args[i + 1]) for i in range(0, len(args), 2)]
            total = self._named(" + ".join([f"({numbers[0]})", *pairs]))
            return f"{total} >> {numbers[1]} & 0xFFFFFFFF" if numbers[1] else f"{total} & 0xFFFFFFFF"
        if name == "sum_ge":
            a, b, c = map(self._signed, args)
            left = f"{a} + {b} + {c}" if numbers[0] > 0 else f"{a} - {b} - 1 + {c}"
            return f"+({left} >= {numbers[1]})"
        if name in ("ssat", "usat"):
            bits, low = (numbers[0] - 1, -1 << numbers[0] - 1) if name == "ssat" else (numbers[0], 0)
            return f"max({low}, min({(1 << bits) - 1}, {self._signed(args[0])})) & 0xFFFFFFFF"
        if name not in _PYTHON:
            raise Refused(f"a function of softmax's sum with {name}")
        form = _PYTHON[name].replace("M", "0xFFFFFFFF")
        signs = {f"s{k}": self._signed(a) for k, a in enumerate(args) if f"{{s{k}}}" in form}
        return form.format(*args, **signs, **{f"n{k}": n for k, n in enumerate(numbers)})

    def _product(self, a: str, b: str) -> str:
        return self._named(f"{self._signed(a)} * {self._signed(b)}")
