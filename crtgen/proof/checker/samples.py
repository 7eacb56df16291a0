"""Pipelines: ``<model>_push``, called for samples as they come, gives the network each window of the signal.

The problem. A signal may arrive in any parts. The network has to run whenever a window is full, on exactly
its samples: none twice, none missing, in order. Which samples these are is in a ``SampleStream``. For each
fill level of the window memory is another, and each number of samples in a call takes another way through
the function.

The idea. Let M(k) be what is known of memory after k new samples of a window: the bytes of the samples that
the window before has left, wherever they are, and counters, which grow with k. M(0) and M(1) are found by
calls, and the counters by one more. That M(k) is right for all k is shown by induction over the calls, with k
and the number of samples in a call as symbols. There are three kinds of calls:

- no samples, which leaves memory as it is;
- c samples after k, with k + c + e = ``missing`` and e at least 1: they do not fill the window. They have to
  be copied behind the k that are there, and memory has to be M(k + c);
- c samples after k with k + c = ``missing``, and d more: the window is full and the network runs. The d more
  are part of the next window, or fill it, and so on, for as many windows as ``_MOST_HOPS`` says.

A comparison in the code, such as of c with the room, ``span`` - filled = c + e, is decided by the sign of the
difference, e. The network is not followed: when it is called, the bytes at its input are compared with the
window's, and then its memory and outputs are unknown.

One window after the other. After a run the samples that the next window needs are renamed: what was at
position i + hop is at i. If two windows begin with the same memory, then they are alike, and so are all that
follow. What differs from window to window (runs until the first decision, averages) is unknown from the third
window on if the code lets it be; otherwise windows are followed until their memories repeat.

Example: windows of 5 samples, 3 new ones each. M(0) of the second window knows samples 0 and 1. M(1) differs
by ``filled``, which is 3; so M(k) has filled = 2 + k. A call of c samples after k finds filled = 2 + (3 - c -
e) = 5 - c - e. It must copy c samples to position 5 - c - e, and leave filled = 5 - e.

The number of samples since the start has 64 bits and never repeats. Its words are found by their values in
the first window, and are symbols in the others; each call has to add its count to them, with the carry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crtgen.proof.checker.algebra.meaning import apply
from crtgen.proof.checker.algebra.value import M32, Symbol, Word, WordOp
from crtgen.proof.checker.algebra.words import add, is_same
from crtgen.proof.checker.binary.image import DecodedImage
from crtgen.proof.checker.pushes import EVENT, NOTHING, Known, PipelineCalls, SampleStream, State, times
from crtgen.proof.checker.refusal import Refusal

__all__ = ["WindowsProof", "follow_windows"]

_MOST_HOPS = 4
_MOST_WINDOWS = 64
_COUNTS = -3
"""Tensor of the symbols that are counts."""


def _count(index: int, low: int, high: int) -> Word:
    # A number of samples; a number if only one is possible.
    return low if low == high else Symbol(_COUNTS, index, low, high, 32).word


_TOTAL = tuple(_count(i, -(1 << 31), (1 << 31) - 1) for i in (1, 2))
"""The number of samples before a call: its lower word, and its upper one."""


@dataclass(frozen=True, slots=True)
class WindowsProof:
    """Result: in calls of up to ``most`` samples the network gets each window of the stream, unless
    something is ``wrong``, or could not be followed.

    ``copies`` are functions of the compiler's library that are trusted, with the number of copies that were
    tried.
    """

    stream: SampleStream
    most: int = 0
    copies: Mapping[str, int] = field(default_factory=dict)
    wrong: str = ""
    certificate: Mapping[str, str] = field(default_factory=dict)

    @property
    def premises(self) -> list[str]:
        # Conditions that the program and the network have to meet.
        name = self.stream.name
        return [
            f"the network, which {name}_run calls, reads its window where that puts it, writes nothing but "
            "its arena, its variables and the stack, and gives registers back",
            "variables are 0 at the first call, and code and constants are in memory as the file has them",
            "nothing else writes the pipeline's memory, and no call is interrupted by another",
        ]


def follow_windows(image: DecodedImage, stream: SampleStream) -> tuple[WindowsProof, frozenset[int]]:
    """Follow ``<model>_push`` and ``<model>_reset``; return also the addresses of their instructions.

    Raises ``Refusal`` for the first thing that is wrong, or that is not followed.
    """
    if stream.skip:
        raise Refusal("a pipeline that drops its first samples is not followed")
    for function in ("push", "reset"):
        if f"{stream.name}_{function}" not in image.symbols:
            raise Refusal(f"the image has no {stream.name}_{function}")
    return _Windows(image, stream).follow()


@dataclass(slots=True)
class _FilledWindow:
    # A window. ``kept`` samples are there at its ``start``, ``missing`` more fill it. ``first`` is memory
    # after one of these.

    number: int
    start: State
    kept: int
    missing: int
    first: State = field(default_factory=dict)
    counters: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Words that grow with each sample: after the first one, and from one to the next."""
    next: "_FilledWindow | None" = None

    def after(self, k: Word) -> tuple[State, dict[int, Word]]:
        # Return memory after k samples: what is known, and the counters.
        if k == 0:
            return self.start, {}
        rest = {i: known for i, known in self.first.items() if i not in self.counters}
        later = add(k, M32)
        return rest, {i: add(first, times(step, later)) for i, (first, step) in self.counters.items()}


class _Windows:
    def __init__(self, image: DecodedImage, stream: SampleStream) -> None:
        self.stream, self.name = stream, stream.name
        self.calls = PipelineCalls(image, stream, stream.span + (_MOST_HOPS + 1) * stream.hop)
        self.memory = self.calls.memory
        self.taken = -1

    def follow(self) -> tuple[WindowsProof, frozenset[int]]:
        try:
            windows = self._found(joins=True)
        except Refusal:
            windows = self._found(joins=False)
        for window in windows:
            self._follow(window)
        self._follow_from(windows[0], 0, windows[0].missing, starts=True)
        copies = self.calls.copies
        tried = copies.tried()
        found = WindowsProof(self.stream, _MOST_HOPS * self.stream.hop, tried)
        return found, frozenset(self.calls.machine.code | copies.code)

    # ---- windows

    def _found(self, joins: bool) -> list[_FilledWindow]:
        # The windows from a start to one that is like an earlier one.
        stream, self.taken = self.stream, -1
        self.calls.set({})
        self.calls.note(0, 0, 0, 0)
        self.calls.call("reset")
        found = [_FilledWindow(0, self.calls.state(), stream.before, stream.span - stream.before)]
        while len(found) <= _MOST_WINDOWS:
            last = found[-1]
            after = self._filled(last)
            earlier = [w for w in found[1:] if self._is_full(w.number)]
            if self._is_full(last.number + 1):
                last.next = next((w for w in earlier if _covers(w.start, after)), None)
            if last.next:
                return _most_general(found)
            if joins and last in earlier:
                after = _common(last.start, after)
            last.next = _FilledWindow(last.number + 1, after, stream.span - stream.hop, stream.hop)
            found.append(last.next)
        raise Refusal(f"what {_MOST_WINDOWS} windows leave does not repeat")

    def _is_full(self, number: int) -> bool:
        # True for a window without a zero from before the signal.
        return number * self.stream.hop >= self.stream.before

    def _filled(self, window: _FilledWindow) -> State:
        # Find memory after one sample, the counters, and what the next window begins with.
        if self.taken < 0:
            self._find_total(window)
        self._begin(window, 0)
        if window.missing > 1:
            self._push(_PushCall(window, 0, 1, []))
            window.first = self._without_new(window, self.calls.state())
        if window.missing > 2:
            self._begin(window, 1)
            self._push(_PushCall(window, 1, 1, []))
            for i, known in self._without_new(window, self.calls.state()).items():
                before = _number(window.first.get(i, NOTHING)), _number(known)
                if before[0] is not None and before[1] is not None and before[0] != before[1]:
                    window.counters[i] = before[0], before[1] - before[0]
        self._begin(window, 0)
        self._push(_PushCall(window, 0, window.missing, [window.missing]))
        return self._renamed(window)

    def _find_total(self, window: _FilledWindow) -> None:
        # The words that count samples are those that hold 1 after one, and all of the window when it is full.
        counting, words = set(self.calls.own), self.memory.words
        self.calls.silent = self.stream.before
        for count in {1, window.missing}:
            self.calls.set(window.start)
            self._push(_PushCall(window, 0, count, [count] if count == window.missing else []))
            counting = {i for i in counting if _is(words.get(i), count) and _is(words.get(i + 1), 0)}
        if len(counting) != 1:
            raise Refusal(f"{len(counting)} variables of 64 bits count the samples, not one")
        (self.taken,) = counting
        window.start = self._without_new(window, window.start)

    def _begin(self, window: _FilledWindow, k: Word) -> None:
        # Memory after k samples of a window.
        state, counters = window.after(k)
        self.calls.set(state)
        self.calls.silent = max(self.stream.before - window.number * self.stream.hop, 0)
        self.memory.words |= counters
        self.memory.words[self.taken], self.memory.words[self.taken + 1] = _total(window, k)

    def _without_new(self, window: _FilledWindow, state: State) -> State:
        # What is known but for the places of new samples, and the number of all samples.
        self.calls.kept = window.kept
        self.calls.note(0, 0, 0, 0)
        cells = self.calls.cells()
        rest = {
            i: tuple(None if 4 * i + b in cells else byte for b, byte in enumerate(known))
            for i, known in state.items()
            if i not in (self.taken, self.taken + 1)
        }
        return {i: known for i, known in rest.items() if known != NOTHING}

    def _renamed(self, window: _FilledWindow) -> State:
        # Memory after a run, with the names of the next window.
        samples, after = self.calls.samples, _FilledWindow(0, {}, self.stream.span - self.stream.hop, 0)

        def renamed(byte: int | Symbol | None) -> int | Symbol | None:
            if not isinstance(byte, Symbol):
                return byte
            index = byte.index - self.stream.hop * self.stream.size
            return samples[index] if index >= 0 else None

        state = {i: tuple(map(renamed, known)) for i, known in self.calls.state().items()}
        return self._without_new(after, state)

    # ---- calls

    def _follow(self, window: _FilledWindow) -> None:
        # All calls after any number of new samples.
        missing = window.missing
        self._follow_from(window, 0, missing)
        if missing > 1:
            room = _count(0, 1, missing - 1)
            self._follow_from(window, add(missing, room, -1), room)
        if missing > 2:
            count, more = (_count(i, 1, missing - 2) for i in (3, 4))
            self._compare(_PushCall(window, add(add(missing, count, -1), more, -1), count, []))

    def _follow_from(self, window: _FilledWindow, k: Word, room: Word, *, starts: bool = False) -> None:
        # Calls that leave a window as it is, those with some samples for one that is empty, those that fill
        # it, and further ones.
        hop = self.stream.hop
        self._compare(_PushCall(window, k, 0, []), starts)
        if k == 0 and window.missing > 1:
            self._compare(_PushCall(window, k, _count(3, 1, window.missing - 1), []), starts)
        filled: list[Word] = [room]
        for n in range(_MOST_HOPS):
            self._compare(_PushCall(window, k, add(room, n * hop), filled), starts)
            if hop > 1:
                self._compare(
                    _PushCall(window, k, add(add(room, n * hop), _count(5, 1, hop - 1)), filled), starts
                )
            filled = [*filled, hop]

    def _push(self, call: "_PushCall") -> None:
        self.calls.push(call.window.kept, call.k, call.count)
        if self.calls.runs != len(call.filled):
            raise Refusal(f"{self.calls.runs} runs of the network, not {len(call.filled)}")

    def _compare(self, call: "_PushCall", starts: bool = False) -> None:
        # A call must run once for each part that fills a window, and leave what single samples do. The first
        # one after a start finds zeros.
        try:
            self._begin(call.window, call.k)
            if starts:
                self.calls.set({i: (0, 0, 0, 0) for i in self.calls.own | self.calls.networks})
            self._push(call)
            self._check_memory(call)
            if not self._is_there(4 * self.taken, self._counted(call, [*call.filled, call.rest])):
                raise Refusal("another number of samples since the start is kept")
            if self.stream.reports:
                self._check_event(call)
        except Refusal as refusal:
            raise Refusal(f"{call}: {refusal}") from None

    def _check_memory(self, call: "_PushCall") -> None:
        state, counters = call.target.after(add(call.before, call.rest))
        shift = len(call.filled) * self.stream.hop * self.stream.size
        for i, known in state.items():
            moved = (self.calls.samples[b.index + shift] if isinstance(b, Symbol) else b for b in known)
            if not all(w in (None, b) for w, b in zip(moved, self.calls.known(i), strict=True)):
                raise Refusal(f"what is left at {4 * i:#x} is not what single samples leave")
        for i, word in counters.items():
            if not _is_alike(self.memory.load(4 * i), word):
                raise Refusal(f"what is left at {4 * i:#x} does not grow by the same with each sample")

    def _counted(self, call: "_PushCall", parts: Sequence[Word]) -> Sequence[Word]:
        # The number of samples after parts of a call, with a carry for each.
        low, high = _total(call.window, call.k)
        for part in parts:
            if part != 0:
                low, high = add(low, part), add(high, apply("carry", low, part, 0))
        return low, high

    def _check_event(self, call: "_PushCall") -> None:
        if self.calls.machine.r[0] != len(call.filled):
            raise Refusal(f"the call does not return {len(call.filled)}, the number of runs")
        if call.filled and not self._is_there(EVENT, self._counted(call, call.filled)):
            raise Refusal("the event names another sample than the last one of its window")
        if call.filled and not is_same(self.memory.load(EVENT + 8), self.calls.output):
            raise Refusal("the event's row is not the model's output")

    def _is_there(self, at: int, words: Sequence[Word]) -> bool:
        return all(_is_alike(self.memory.load(at + 4 * i), word) for i, word in enumerate(words))


@dataclass(frozen=True, slots=True)
class _PushCall:
    # A call with ``count`` samples after ``k`` new ones of a window; ``filled`` are the parts that fill one
    # window each.

    window: _FilledWindow
    k: Word
    count: Word
    filled: Sequence[Word]

    def __str__(self) -> str:
        count, k = _said(self.count), _said(self.k)
        return f"a call with {count} samples after {k} of window {self.window.number + 1}"

    @property
    def rest(self) -> Word:
        # Samples for the last window, which they do not fill.
        rest = self.count
        for part in self.filled:
            rest = add(rest, part, -1)
        return rest

    @property
    def target(self) -> _FilledWindow:
        # The window that is not full at the end.
        window = self.window
        for _ in self.filled:
            assert window.next is not None
            window = window.next
        return window

    @property
    def before(self) -> Word:
        # New samples in that window before the rest.
        return 0 if self.filled else self.k


def _said(word: Word) -> str:
    low, high = (word, word) if isinstance(word, int) else word.bounds()  # type: ignore[union-attr]
    return f"{low}" if low == high else f"{low} to {high}"


def _total(window: _FilledWindow, k: Word) -> Sequence[Word]:
    return _TOTAL if window.number else (k, 0)


def _is_alike(a: Word, b: Word) -> bool:
    if is_same(a, b):
        return True
    if isinstance(a, WordOp) and a.name == "sel":
        return all(_is_alike(way, b) for way in a.args[1:])
    if not isinstance(a, WordOp) or not isinstance(b, WordOp) or a.name != b.name or a.name == "unknown":
        return False
    orders = [b.args, (b.args[1], b.args[0], *b.args[2:])] if a.name in ("add", "carry") else [b.args]
    return any(all(map(_is_alike, a.args, args)) for args in orders)


def _number(known: Known) -> int | None:
    numbers = [b for b in known if isinstance(b, int)]
    return int.from_bytes(bytes(numbers), "little") if len(numbers) == 4 else None


def _is(word: object, number: int) -> bool:
    return isinstance(word, int) and word == number


def _most_general(windows: Sequence[_FilledWindow]) -> list[_FilledWindow]:
    # The windows that are no cases of later ones, each with the last one that the next is a case of.
    for window in windows:
        assert window.next is not None
        after = window.next
        window.next = [w for w in windows if w.number >= after.number and _covers(w.start, after.start)][-1]
    found, following = [windows[0]], windows[0].next
    while following is not None and all(following is not w for w in found):
        found.append(following)
        following = following.next
    return found


def _common(one: State, other: State) -> State:
    found = {i: _common_bytes(known, other.get(i, NOTHING)) for i, known in one.items()}
    return {i: known for i, known in found.items() if known != NOTHING}


def _common_bytes(one: Known, other: Known) -> Known:
    return tuple(
        a if a is b or (isinstance(b, int) and a == b) else None for a, b in zip(one, other, strict=True)
    )


def _covers(state: State, other: State) -> bool:
    return _common(state, other) == state
