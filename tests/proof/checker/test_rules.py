"""Each use of a rule for rewriting, verified by values: what goes in beside what comes out.

The checker rewrites words while it runs an image (``words``, ``long_sums``). Here each of these functions is
replaced by one that computes the plain meaning of what it was given, for random values of the symbols and for
their ends, and compares it with the value of the result. So a rule is tried on every form that real images
have, also on those that nobody thought of.
"""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtgen import api
from crtgen.proof.checker import prove
from crtgen.proof.checker.algebra import long_sums, words
from crtgen.proof.checker.algebra.expression import evaluate
from crtgen.proof.checker.algebra.meaning import OPS, wrap
from crtgen.proof.checker.algebra.value import M32, LinearSum, Symbol, WordByte
from crtgen.proof.checker.refusal import Refusal
from tests.support import ROOT, model_path, nightly, require_tool

pytestmark = pytest.mark.qemu

DIGITS = ROOT / "demo" / "digits.tflite"
_SAMPLES = 6


class Values:
    """Values of words for some values of the symbols: the least, the greatest, and random ones."""

    def __init__(self, seed: int) -> None:
        self.numbers = np.random.default_rng(seed)
        self.symbols: dict[Symbol, Any] = {}
        self.memo: dict[int, Any] = {}
        self.kept: list[object] = []

    def symbol(self, s: Symbol) -> Any:
        if s not in self.symbols:
            drawn = self.numbers.integers(s.low, s.high + 1, _SAMPLES)
            ends = self.numbers.integers(0, 2, 3).astype(bool)
            drawn[:3] = np.where(ends, s.low, s.high)
            self.symbols[s] = drawn
        return self.symbols[s]

    def exact(self, x: LinearSum) -> Any:
        """The sum in the integers."""
        total = np.full(_SAMPLES, x.constant, object)
        for s, k in x.terms().items():
            total = total + k * self.symbol(s).astype(object)
        return total

    def of(self, w: Any) -> Any:
        """A word, as numbers with a sign; a byte as its 8 bits."""
        self.kept.append(w)  # so that its id stays its own
        found = evaluate(w, lambda x: _int64(self.exact(x)), self.memo)
        return np.broadcast_to(np.asarray(found, np.int64), _SAMPLES)

    def byte(self, b: Any) -> Any:
        return self.of(b) & 255 if isinstance(b, WordByte) else self._plain(b) & 255

    def _plain(self, b: Any) -> Any:
        return self.symbol(b) if isinstance(b, Symbol) else np.full(_SAMPLES, b, np.int64)


def _int64(v: Any) -> Any:
    return np.array([(int(n) + (1 << 63)) % (1 << 64) - (1 << 63) for n in v], np.int64)


def _whole(values: Values, low: Any, high: Any) -> Any:
    # 64 bits in two words, as integers from 0.
    return [(int(h) & M32) << 32 | int(n) & M32 for n, h in zip(values.of(low), values.of(high), strict=True)]


def _field(values: Values, w: Any, place: int, width: int) -> Any:
    whole = isinstance(w, LinearSum)
    exact = values.exact(w) if whole else values.exact(w.args[0])
    return [int(n) >> (place if whole else place + 32) & (1 << width) - 1 for n in exact]


def _bits(found: Any) -> list[int]:
    return [int(n) & M32 for n in found]


def _half(v: Any) -> list[int]:
    return [int(n) & 0xFFFF for n in v]


Meaning = Callable[..., tuple[Any, Any]]

# By function: from values, the result and the arguments, two lists that have to be equal.
MEANINGS: dict[str, Meaning] = {
    "add": lambda v, r, a, b, k=1: (_bits(v.of(r)), _bits(wrap(v.of(a) + k * v.of(b)))),
    "subtract": lambda v, r, a, b: (_bits(v.of(r)), _bits(wrap(v.of(a) - v.of(b)))),
    "mul": lambda v, r, a, b: (_bits(v.of(r)), _bits(v.of(a) * v.of(b))),
    "mac": lambda v, r, c, a, b: (_bits(v.of(r)), _bits(v.of(c) + v.of(a) * v.of(b))),
    "shifted": lambda v, r, kind, a, n: (_bits(v.of(r)), _bits(OPS[kind](v.of(a), np.int64(n)))),
    "complement": lambda v, r, a: (_bits(v.of(r)), _bits(~v.of(a))),
    "logic": lambda v, r, name, a, b: (_bits(v.of(r)), _bits(OPS[name](v.of(a), v.of(b)))),
    "select": lambda v, r, c, a, b: (_bits(v.of(r)), _bits(np.where(v.of(c) != 0, v.of(a), v.of(b)))),
    "pair": lambda v, r, a, b: (_bits(v.of(r)), _bits(v.of(a) & 0xFFFF | (v.of(b) & 0xFFFF) << 16)),
    "halves_of": lambda v, r, a: (
        [*_bits(v.of(r[0])), *_bits(v.of(r[1]))],
        [*_bits(OPS["sxth"](v.of(a))), *_bits(v.of(a) >> 16)],
    ),
    "raw_halves": lambda v, r, a: (
        [*_half(v.of(r[0])), *_half(v.of(r[1]))],
        [*_half(v.of(a)), *_half(v.of(a) >> 16)],
    ),
    "low_half": lambda v, r, a: (_half(v.of(r)), _half(v.of(a))),
    "bytes_of": lambda v, r, a: (
        [[int(n) for n in v.byte(b)] for b in r],
        [[int(n) >> 8 * i & 255 for n in v.of(a)] for i in range(4)],
    ),
    "word_of": lambda v, r, b: (_bits(v.of(r)), _bits(sum(v.byte(p) << 8 * i for i, p in enumerate(b)))),
    "byte_word": lambda v, r, b: (_bits(v.of(r)), _bits(OPS["sxtb"](v.byte(b)))),
    "unsigned_byte": lambda v, r, b: (_bits(v.of(r)), _bits(v.byte(b))),
    "long_shift": lambda v, r, high, low, n: (
        _bits(v.of(r)),
        [w >> n & M32 for w in _whole(v, low, high)],
    ),
    "high_part": lambda v, r, x, n: (_bits(v.of(r)), _bits(int(k) >> n for k in v.exact(x))),
    "field": lambda v, r, w, place, width: (_bits(v.of(r)), _field(v, w, place, width)),
    "long_words": lambda v, r, x: (_whole(v, *r), [int(k) % (1 << 64) for k in v.exact(x)]),
    "long_add": lambda v, r, a, b, k=1: (
        _whole(v, *r),
        [(x + k * y) % (1 << 64) for x, y in zip(_whole(v, *a), _whole(v, *b), strict=True)],
    ),
}  # fmt: skip


class Verified:
    """Replaces each function in every module of the checker that uses it, and counts what was compared."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, each: int) -> None:
        self.values, self.each = Values(each), each
        self.counts: Counter[str] = Counter()
        self.calls = 0
        self.inside = False
        rooms = [m for name, m in sys.modules.items() if name.startswith("crtgen.proof.checker")]
        for name, meaning in MEANINGS.items():
            original: Callable[..., Any] = getattr(words if hasattr(words, name) else long_sums, name)
            for room in rooms:
                if vars(room).get(name) is original:
                    monkeypatch.setattr(room, name, self._wrapped(name, original, meaning))

    def _wrapped(self, name: str, original: Callable[..., Any], meaning: Meaning) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            result = original(*args)
            self.calls += 1
            if not self.inside and result is not None and self.calls % self.each == 0:
                self.inside = True
                try:
                    self._compare(name, meaning, result, args)
                finally:
                    self.inside = False
            return result

        return called

    def _compare(self, name: str, meaning: Meaning, result: Any, args: tuple[Any, ...]) -> None:
        try:
            found, wanted = meaning(self.values, result, *args)
        except Refusal:  # memory or a register that nothing wrote
            return
        assert list(found) == list(wanted), (name, args, result)
        if isinstance(result, LinearSum):
            low, high = result.bounds()
            assert all(low <= n <= high for n in self.values.exact(result)), (name, args, low, high)
        self.counts[name] += 1


@pytest.mark.parametrize(
    ("model", "board", "each"),
    [
        ("digits", "mps2_an386", 31),
        ("digits", "rpi_pico", 31),
        nightly("digits", "mps3_an547", 1),
        nightly("digits", "mps2_an385", 1),
        *(nightly(name, board, 101) for name in ("kws_int8", "vww_int8", "ic01_int8")
          for board in ("mps2_an385", "mps2_an386", "mps3_an547", "rpi_pico")),
    ],
)  # fmt: skip
def test_each_use_of_a_rule(
    model: str, board: str, each: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    require_tool("arm-none-eabi-gcc")
    path = DIGITS if model == "digits" else model_path(model)
    image = api.load(path).compile(board).generate("standalone").build()
    verified = Verified(monkeypatch, each)
    proof = prove(image.path, path)
    assert proof.is_computed, proof.stopped
    print(f"{sum(verified.counts.values()):,} uses of rules: {dict(verified.counts)}")
    assert sum(verified.counts.values()) > 1_000
    assert len(verified.counts) > 8


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shift by 15 in place of 16, for halves."""
    image = api.load(DIGITS).compile("mps2_an386").generate("standalone").build()
    right = words.pair
    monkeypatch.setattr(words, "pair", lambda low, high: right(high, low))
    for room in list(sys.modules.values()):
        if vars(room).get("pair") is right:
            monkeypatch.setattr(room, "pair", words.pair)
    Verified(monkeypatch, 1)
    with pytest.raises(AssertionError):
        prove(image.path, DIGITS)
