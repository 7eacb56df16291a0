"""Images that take rows: ``<model>_push``, called for rows as they come, computes the network.

The problem. ``<model>_compute`` of such an image pushes all rows at once. A camera's program pushes them as
they come, one or several in a call, so all that a row leaves for the next one is between two calls. An image
of 96 rows can arrive in 2^95 ways.

The idea. After k rows, memory must be good for the rest of the image however these k rows arrived. So there
is one state for each k: what all ways have in common. From the state after k rows, a call with j rows is
followed for each j from 1 to n, which gives a state after k + j rows; all states after k rows are joined, and
bytes on which they differ are unknown from then on. By induction over k, a way by calls of at most n rows
each finds at each call a memory of which the joined state says nothing wrong. Before the first row, the arena
is unknown and variables are 0, as after a start, or as the last image left them.

Example: an image of 3 rows. One row from the start gives a state after 1, two give one after 2; one row from
the state after 1 gives another after 2. What these two have in common is taken for the last row. Three rows
at once, and two after one, end as the single ones do.

Every call but the last has to return 0, the last one 1, with the outputs at their places and the variables as
they were before the first row. Rows are symbols in a buffer of the application's that is no more aligned than
its elements are, and that is not written. Between calls registers, flags and the buffer become unknown.

From each of these states ``<model>_restart`` must leave the variables as before the first row; and a call
with a count below 0 or above the rows that are missing returns -1, one with a count of 0 returns 0, and both
leave memory as it is. For these the count is a symbol with a range, and the pointer is unknown.

n is the number of rows of the image if that takes few instructions, else as many as a limit allows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from crtgen.proof.checker.algebra.value import (
    M32,
    Byte,
    Symbol,
    WordByte,
    WordOp,
    signed,
    unknown,
)
from crtgen.proof.checker.algebra.words import bytes_of, is_same
from crtgen.proof.checker.core.layout import allow, kept_variables
from crtgen.proof.checker.core.machine import Machine
from crtgen.proof.checker.core.memory import Content
from crtgen.proof.checker.core.ranged import RangedMachine
from crtgen.proof.checker.network.layer import Value
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.run import InlinedRun, ProofRun
from crtgen.proof.checker.surroundings.places import outer_places

__all__ = ["PushedRun", "RowsRun"]

State: TypeAlias = Mapping[int, Content]
"""Words of the arena and of variables that are known, by address / 4."""

_MOST_INSTRUCTIONS = 4_000_000
"""Instructions of calls with several rows that are followed, about."""
_LONGEST = 1_000_000
"""Instructions of calls that take no rows."""
_DROPPED = 77
"""Element of the buffer once a row has been taken."""


class RowsRun(InlinedRun):
    """A run by ``<model>_run`` of an image that takes rows, after which the next row is an image's first."""

    def _call(self) -> None:
        super()._call()
        for first, end in () if self.network.states else kept_variables(self.image, self.name):
            for i in range(first >> 2, end + 3 >> 2):
                if not _is_same_word(self.machine.memory.words.get(i, unknown()), 0):
                    raise Refusal(
                        f"{self.name}_run leaves something else than 0 in the variable at {4 * i:#x}"
                    )


class PushedRun(ProofRun):
    # A run by ``<model>_push``, by calls of up to ``most`` rows.

    function = "push"
    most = 1

    def kept(self) -> list[tuple[int, int]]:
        return kept_variables(self.image, self.name)

    @property
    def rows(self) -> int:
        return int(self.network.file.shape(self.network.file.inputs[0])[1])

    def _put_inputs(self) -> None:
        pass

    def _keeps_inputs(self) -> bool:
        return True  # the application's rows, of each call

    def _call(self) -> None:
        machine, rows = self.machine, self.rows
        (self.buffer,) = outer_places(self.network, machine)["input"]
        arena = [
            i for span in self.image.arenas(self.name).values() for i in range(span[0] >> 2, span[1] + 3 >> 2)
        ]
        self.lasting = tuple({*arena, *self._kept_words()})
        start, begun = self._state(self._kept_words()), machine.count
        after: list[list[State]] = [[start], *([] for _ in range(rows))]
        last = begun
        for k in range(rows):
            last = machine.count
            self._push(k, 1)
            after[k + 1].append(self._state(self.lasting))
        first, end = self.image.span(f"{self.name}_state") if self.network.states else (0, 0)
        self.ended = {i: w for i, w in after[rows][0].items() if i in start and not first <= 4 * i < end}
        if not self.network.states and not all(_is_same_word(word, 0) for word in self.ended.values()):
            raise Refusal("a variable is not 0 after the last row")
        if self.network.uncompared or not self._is_complete():
            return  # then single rows are not followed either
        self.most = _most_rows(rows, (last - begun, machine.count - last))
        self.ranged = RangedMachine(self.image, _LONGEST)
        allow(self.ranged, self.name)
        with self._uncounted():
            self._push_in_any_calls(after)

    def _push_in_any_calls(self, after: list[list[State]]) -> None:
        # Join what single rows left with what calls of several rows leave.
        rows = self.rows
        anew, restarts = after[0][0], f"{self.name}_restart" in self.image.symbols
        if restarts:
            self._restore(after[1][0])
            self._from_anything("restart")
            anew = self._state(self._kept_words())
        if not _are_same(anew, after[0][0]):
            after[0].append(anew)  # of a network whose states are set by the first row after a start
        for k in range(rows):
            states = after[k] if k == 0 else [_joined(after[k])]
            for state in states:
                if restarts:
                    self._follow_restart(k, state, anew if k else state)
                self._follow_no_rows(k, state)
                single = (k > 0 and state is after[k][0]) or state is after[0][0]
                for j in range(2 if single else 1, min(self.most, rows - k) + 1):
                    self._restore(state)
                    self._push(k, j)
                    after[k + j].append(self._state(self.lasting))
                    if k + j == rows:
                        self._check_end(self._call_of(k, j))
        self._restore(after[rows][0])

    def _push(self, k: int, count: int) -> None:
        # A call with the rows from k on.
        (tensor,), ends = self.network.file.inputs, k + count == self.rows
        values, bits = self.network.fed[tensor], self.network.file.kind(tensor).bits
        size = len(values) // self.rows
        row: Sequence[Value] = values[k * size : (k + count) * size]
        self._put(self.buffer, tensor, row)
        self._from_anything("push", self.buffer, count)
        if self._status() != int(ends):
            raise Refusal(f"{self._call_of(k, count)} does not return {int(ends)}")
        for i, value in enumerate(row):
            if not self._is(self.buffer + i * bits // 8, bits, value):
                raise Refusal(f"{self._call_of(k, count)} writes the application's rows")
        self._put(self.buffer, tensor, [_DROPPED] * len(row))

    def _call_of(self, k: int, count: int) -> str:
        return f"a call with {count} row{'s' * (count > 1)} after {k}"

    def _check_end(self, call: str) -> None:
        # The same as by single rows.
        if not self._is_complete():
            raise Refusal(f"{call} leaves another output than single rows do")
        if not _are_same(self._state(self.ended), self.ended):
            raise Refusal(f"{call} leaves other variables than single rows do")

    def _is_complete(self) -> bool:
        file, places = self.network.file, self._places("output") + self._states()
        return all(
            self._is(at + i * file.kind(tensor).bits // 8, file.kind(tensor).bits, value)
            for at, tensor in zip(places, self.network.results, strict=True)
            for i, value in enumerate(self.network.values(tensor))
        )

    # ---- states

    def _state(self, where: Iterable[int]) -> State:
        words = self.machine.memory.words
        return {i: words[i] for i in where if i in words}

    def _restore(self, state: State, machine: Machine | None = None) -> None:
        words = (machine or self.machine).memory.words
        for i in self.lasting:
            words.pop(i, None)
        words |= state

    @contextmanager
    def _uncounted(self) -> Iterator[None]:
        # Time and calls are those of single rows.
        m = self.machine
        before, calls = (m.count, m.slack, m.cycles), len(m.calls)
        yield
        m.count, m.slack, m.cycles = before
        del m.calls[calls:]

    # ---- calls that take no rows

    def _follow_restart(self, k: int, state: State, anew: State) -> None:
        self._restore(state)
        self._from_anything("restart")
        if not _are_same(self._state(anew), anew):
            raise Refusal(f"{self.name}_restart after {k} rows leaves something of them")

    def _follow_no_rows(self, k: int, state: State) -> None:
        missing = self.rows - k
        for low, high, status in ((-(1 << 31), -1, M32), (missing + 1, (1 << 31) - 1, M32), (0, 0, 0)):
            machine = self.ranged
            self._restore(state, machine)
            count = Symbol(-2, 0, low, high, 32).word if low < high else low
            self._from_anything("push", unknown(), count, machine=machine)
            said = f"a call with {low} to {high} rows after {k}" if low < high else self._call_of(k, low)
            if machine.r[0] != status:
                raise Refusal(f"{said} does not return {signed(status)}")
            for i in self.lasting:
                if not _is_as_before(state.get(i), machine.memory.words.get(i)):
                    raise Refusal(f"{said} writes to {4 * i:#x}")


def _most_rows(rows: int, cost: tuple[int, int]) -> int:
    # The rows in a call that can be afforded, by the instructions of all rows but the last, and of the last.
    first, last = cost
    costs = {n: n * (n + 1) // 2 * first + n * last for n in range(2, rows + 1)}
    return max((n for n, all_calls in costs.items() if all_calls <= _MOST_INSTRUCTIONS), default=1)


# ---- what states have in common


def _joined(states: Sequence[State]) -> State:
    # What all states have in common; the first of them if that is all.
    first, *others = states
    if all(_are_same(first, other) for other in others):
        return first
    found = dict(first)
    for other in others:
        found = {i: _common(word, other[i]) for i, word in found.items() if i in other}
    return found


def _common(x: Content, y: Content) -> Content:
    if _is_same_word(x, y):
        return x
    both = zip(_bytes(x), _bytes(y), strict=True)
    return [one if _is_same_byte(one, other) else WordByte(unknown(), 0) for one, other in both]


def _bytes(x: Content) -> Sequence[Byte]:
    return x if isinstance(x, list) else bytes_of(x)


def _are_same(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(_is_same_word(word, b[i]) for i, word in a.items())


def _is_same_word(x: Content, y: Content) -> bool:
    if isinstance(x, list) or isinstance(y, list):
        return all(_is_same_byte(one, other) for one, other in zip(_bytes(x), _bytes(y), strict=True))
    return is_same(x, y)


def _is_same_byte(x: Byte, y: Byte) -> bool:
    if isinstance(x, WordByte) and isinstance(y, WordByte):
        return x.index == y.index and is_same(x.word, y.word)
    return x is y or (isinstance(x, int) and x == y)


def _is_as_before(before: Content | None, after: Content | None) -> bool:
    # A word of which nothing was known may have been read, which makes it unknown.
    if before is None:
        return after is None or (isinstance(after, WordOp) and after.name == "unknown")
    return after is not None and _is_same_word(before, after)
