"""Assembly of depthwise convolutions along one axis: outputs of a channel from words of two neighbours.

A word of inputs holds neighbours 2j and 2j + 1. For an output whose window begins at an even input, the taps
are paired as 0 1, 2 3, ...; if it begins at an odd input, 0 is single, followed by 1 2, 3 4, .... The latter
pairs are multiplied crosswise by SMLADX, so they can be made from the former by one PKHBT each.

If registers suffice, weights stay in them, each word of inputs is loaded once, and outputs are computed one
by one. Otherwise an iteration computes four outputs, and weights are loaded for each iteration.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from crtgen.compiler.kernels.asm import LISTED, Function, Routine, Writer, listed
from crtgen.compiler.kernels.dsp.epilogue import DspEpilogue

__all__ = ["LineOutputs", "Word", "one_line"]

_REGISTERS = 14
_ROUND = 4  # outputs, where weights are loaded
_COUNT, _START = "[sp, #0]", "[sp, #4]"


@dataclass(frozen=True, slots=True, order=True)
class Word:
    """A word of two taps: 2m and the next one or, if ``odd``, 2m and the previous one."""

    m: int
    odd: bool

    @property
    def taps(self) -> tuple[int, int]:
        return 2 * self.m, 2 * self.m + (-1 if self.odd else 1)


@dataclass(frozen=True, slots=True)
class _Mac:
    op: str
    inputs: int
    word: Word


@dataclass(frozen=True, slots=True)
class LineOutputs:
    """``width`` outputs of a channel, whose windows of ``taps`` inputs begin at ``first``, ``stride`` apart.

    ``pairs`` are the words of inputs of a channel, ``step`` the bytes between outputs.
    """

    width: int
    taps: int
    first: int
    stride: int
    pairs: int
    step: int
    epilogue: DspEpilogue

    @property
    def words(self) -> tuple[Word, ...]:
        begins = {(self.first + i * self.stride) % 2 for i in range(self.width)}
        found = {mac.word for begin in begins for mac in self.macs(begin)}
        return tuple(sorted(found))

    @property
    def live(self) -> int:
        """Number of input words that an output needs, or two adjacent outputs of which the second is odd."""
        return -(-(self.taps + (1 if self.stride == 1 else self.first)) // 2)

    @property
    def size(self) -> int:
        return self.epilogue.bits // 8

    @property
    def spare(self) -> int:
        clamps = self.epilogue.clamps if self.size > 1 else 0
        return max(clamps, int(not self.epilogue.floor))

    @property
    def free(self) -> int:
        """Number of registers left beside weights, pointers, count, start, requantisation, inputs and a
        sum.
        """
        taken = 3 + len(self.words) + 1 + self.epilogue.constants + self.spare + self.live + 1
        return _REGISTERS - taken

    @property
    def resident(self) -> bool:
        """True if all weights stay in registers; count and start may be on the stack."""
        return self.free >= -2

    @property
    def round(self) -> int:
        """Number of outputs per iteration, after which the same registers hold the inputs again."""
        if not self.resident:
            return _ROUND
        return self.live * 2 // self.stride

    @property
    def stream_words(self) -> int:
        return 1 + self.tap_words + self.epilogue.constants

    @property
    def tap_words(self) -> int:
        return -(-self.taps // 2)

    def macs(self, begin: int) -> Iterator[_Mac]:
        """Yield the products of the output whose window begins at input ``begin``."""
        for pair in range(begin // 2, (begin + self.taps - 1) // 2 + 1):
            tap = 2 * pair - begin
            lower, upper = tap >= 0, tap + 1 < self.taps
            if lower and upper:
                yield _Mac("smladx" if tap % 2 else "smlad", pair, Word((tap + 1) // 2, tap % 2 > 0))
            elif upper:
                yield _Mac("smlatb", pair, Word(0, False))
            elif tap % 2:
                yield _Mac("smlabt", pair, Word(tap // 2, False))
            else:
                yield _Mac("smlabb", pair, self._last(tap // 2))

    def _last(self, m: int) -> Word:
        # A word with the last tap, of an even number, in its lower half: one that others need, too.
        return Word(m, self.stride == 1 and m > 0)


def one_line(k: LineOutputs) -> Routine:
    """Write ``channels(columns, y, weights, end)``, which processes channels until ``weights`` reaches
    ``end``.
    """
    return (_Resident if k.resident else _Streamed).routine(k)


class _LineWriter(Writer):
    # Common part of both ways: channels, rounds and remainder, epilogue and stores.
    def __init__(self, k: LineOutputs) -> None:
        self.k = k
        self.f = f = Function(
            "channels",
            "const uint32_t *columns",
            "int8_t *y",
            "const uint32_t *weights",
            "const uint32_t *end",
            purpose=f"Lines of {k.width} outputs, channel by channel from `weights` to `end`.",
            keep=(2, 3),
            local=2,
        )
        self.x, self.y, self.weights, end = f.arguments
        f.free(end)

    def _next(self, loaded: int, spare: str) -> None:
        # The pointers go on to the next channel, from behind so many words of inputs.
        f, k = self.f, self.k
        f.advance(self.x, 4 * (k.pairs - loaded), spare=spare)
        f.advance(self.y, k.size - k.width * k.step, spare=spare)


class _Resident(_LineWriter):
    """Weights stay in registers, and each word of inputs is loaded once."""

    def write(self) -> None:
        f, k = self.f, self.k
        f.free(self.weights)
        of_stream = f.cores("start, weights, requantisation", k.stream_words, LISTED)
        self.start, self.constants = of_stream[0], of_stream[1 + k.tap_words :]
        self.even = of_stream[1 : 1 + k.tap_words]
        odd = [word for word in k.words if word.odd]
        kept = [word.m for word in k.words if not word.odd]
        other = {word: f.core("weights") for word in odd if word.m in kept}
        self.taps = {word: other.get(word, self.even[word.m]) for word in k.words}
        self.spare = f.cores("of requantisation", k.spare)
        if k.free < -1:
            f.free(self.start)
        self.count = f.core("rounds left") if k.free >= 0 else ""
        self.data = f.cores("inputs", k.live)
        self.totals = f.cores("sums", 2 if k.free > 0 else 1)
        self.loaded = 0
        with f.loop("channels", "channels") as again:
            stream, end = self.totals[0], self.data[0]
            f("ldr", stream, f.kept[2])
            f("ldm", f"{stream}!", listed(of_stream))
            f("str", stream, f.kept[2])
            for word in reversed(odd):
                f("pkhbt", self.taps[word], self.even[word.m], self.even[word.m - 1])
            if k.free < -1:
                f("str", self.start, _START)
            self._line()
            self._next(self.loaded, end)
            for register, place in ((stream, f.kept[2]), (end, f.kept[3])):
                f("ldr", register, place)
            f("cmp", stream, end)
            f("bne", again)

    def _line(self) -> None:
        k = self.k
        self.loaded = 0
        self._load((k.first - k.stride + k.taps - 1) // 2)
        rounds = k.width // k.round
        if rounds:
            count, place = (self.count, "") if self.count else (self.totals[0], _COUNT)
            with nullcontext() if rounds == 1 else self.f.counted_loop("rounds", count, rounds, place):
                for number in range(k.round):
                    self._output(k.first + number * k.stride, number)
            self.loaded += (rounds - 1) * k.live
        for number in range(rounds * k.round, k.width):
            self._output(k.first + number * k.stride, number)

    def _load(self, pair: int) -> None:
        # The words of inputs up to this one.
        while self.loaded <= pair:
            self.f("ldr", self.data[self.loaded % self.k.live], f"[{self.x}], #4")
            self.loaded += 1

    def _output(self, begin: int, number: int) -> None:
        f, k, before = self.f, self.k, self.start
        total = self.totals[number % len(self.totals)]
        if k.free < -1:
            f("ldr", total, _START)
            before = total
        for mac in k.macs(begin):
            self._load(mac.inputs)
            f(mac.op, total, self.data[mac.inputs % k.live], self.taps[mac.word], before)
            before = total
        k.epilogue.append_all(f, (total,), self.constants, self.spare, k.epilogue.doubled)
        f.store_each(k.epilogue.store, (total,), self.y, k.step)


class _Streamed(_LineWriter):
    def write(self) -> None:
        f, k = self.f, self.k
        count = f.core("rounds left, then where weights end", ("lr",))
        self.sums = f.cores("sums", _ROUND)
        self.taps = f.cores("weights, then requantisation", 2)
        self.data = f.cores("inputs, then requantisation", 4)
        odd = k.stride == 1 and k.first % 2 > 0
        rounds, left = divmod(k.width - odd, _ROUND)
        words = 2 * k.stride  # of a round
        with f.loop("channels", "channels") as again:
            if odd:
                self._outputs(1, 1, 1)
            if rounds:
                with nullcontext() if rounds == 1 else f.counted_loop("rounds", count, rounds):
                    self._outputs(_ROUND, k.first - odd, words)
            if left:
                self._outputs(left, k.first - odd, 0)
            self._next(rounds * words + odd, count)
            f.advance(self.weights, 4 * k.stream_words)
            f("ldr", count, f.kept[3])
            f("cmp", self.weights, count)
            f("bne", again)

    def _outputs(self, count: int, first: int, moved: int) -> None:
        # ``count`` outputs; the first one begins at input ``first`` after the pointer, which then moves.
        f, k = self.f, self.k
        sums = self.sums[:count]
        by_word: dict[Word, list[tuple[int, _Mac]]] = {}
        for number in range(count):
            for mac in k.macs(first + number * k.stride):
                by_word.setdefault(mac.word, []).append((number, mac))
        f("ldr", sums[-1], f"[{self.weights}]")
        begun: set[int] = set()
        inputs = _Inputs(f, self.x, self.data, moved)
        before, current = self.taps
        for m in range(-(-k.taps // 2)):
            before, current = current, before
            f("ldr", current, f"[{self.weights}, #{4 * (1 + m)}]")
            for word, register in ((Word(m, False), current), (Word(m, True), before)):
                if word.odd and word in by_word:
                    f("pkhbt", before, current, before)
                for number, mac in by_word.get(word, ()):
                    start = sums[number] if number in begun else sums[-1]
                    f(mac.op, sums[number], inputs.load(mac.inputs), register, start)
                    begun.add(number)
        constants = (*self.taps, *self.data)
        self._constants(constants)
        n = k.epilogue.constants
        k.epilogue.append_all(f, sums, constants[:n], constants[n:], k.epilogue.doubled)
        f.store_each(k.epilogue.store, sums, self.y, k.step)

    def _constants(self, registers: Sequence[str]) -> None:
        f, at = self.f, 4 * (self.k.stream_words - self.k.epilogue.constants)
        f("ldrd", *registers[:2], f"[{self.weights}, #{at}]")
        if self.k.epilogue.constants > 2:
            f("ldr", registers[2], f"[{self.weights}, #{at + 8}]")


class _Inputs:
    """The most recently loaded words of inputs in registers; the first load advances the pointer."""

    def __init__(self, f: Function, x: str, registers: Sequence[str], moved: int) -> None:
        self.f, self.x, self.moved = f, x, moved
        self.free, self.held = list(registers), dict[int, str]()

    def load(self, pair: int) -> str:
        # The register of a word, counted from where the pointer was.
        if pair not in self.held:
            first = not self.held and not pair
            register = self.free.pop() if self.free else self.held.pop(min(self.held))
            at = f"[{self.x}, #{4 * (pair - self.moved)}]"
            self.f("ldr", register, f"[{self.x}], #{4 * self.moved}" if first and self.moved else at)
            self.held[pair] = register
        return self.held[pair]
