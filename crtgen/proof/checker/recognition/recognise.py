"""Recognition: finds the layer output that a stored byte is.

A stored expression depends on symbols, and the layers that read these symbols are the candidates. What has to
be shown depends on the kind of the layer:

- A layer of sums (convolution, fully connected, mean, ...): every leaf of the expression must be a multiple
  of one of the layer's sums. Sums are found by a fingerprint of their coefficients. Then the expression is a
  function of one integer, and it is compared with the network's function for every value that the sum can
  have.
- An element-wise layer of two operands: the function of two integers is compared for all pairs, or in parts.
- A maximum: the set of symbols is compared, and the limits.
- Softmax and LSTM have modules of their own.

Verdicts are kept by layer, channel and the *shape* of the expression, in which sums are identified by factor
and offset only: the thousands of outputs of a channel have a few shapes, so each is compared once.

A byte that is not the output of any layer is forgotten, unless it is a short function of one byte: it may be
an intermediate value that the final output does not depend on. If the final output does depend on it, that
output is not proven. So recognition may miss an output, but what it accepts is equal for every input.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from crtgen.proof.checker.algebra.expression import (
    Node,
    evaluate,
    has_unknown,
    is_short,
    leaves,
    parts_of,
    shape_of,
)
from crtgen.proof.checker.algebra.fixed import fixed
from crtgen.proof.checker.algebra.greatest import greatest_of, least_of
from crtgen.proof.checker.algebra.monotone import Course, course_of
from crtgen.proof.checker.algebra.real import number_of
from crtgen.proof.checker.algebra.spans import where_wrong
from crtgen.proof.checker.algebra.value import M32, LinearSum, Symbol, Word, WordOp
from crtgen.proof.checker.algebra.words import moved_byte
from crtgen.proof.checker.core.invalid import asked_flag, conversions_of, is_invalid
from crtgen.proof.checker.network.choices import ChoiceLayer, ExtremePlace
from crtgen.proof.checker.network.elementwise import ElementLayer, ExtremeLayer
from crtgen.proof.checker.network.layer import Layer, Value
from crtgen.proof.checker.network.lstm import LstmLayer
from crtgen.proof.checker.network.matrices import MatrixProducts
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.network.others import MaxPool, SoftmaxLayer
from crtgen.proof.checker.network.real_ends import RealInput
from crtgen.proof.checker.network.sums import Channel, OutputForm, SumLayer, fingerprint
from crtgen.proof.checker.network.svdf import SvdfLayer
from crtgen.proof.checker.recognition.choices import chosen_output, place_output
from crtgen.proof.checker.recognition.joint import is_joined
from crtgen.proof.checker.recognition.lstm import lstm_output
from crtgen.proof.checker.recognition.softmax import softmax_output
from crtgen.proof.checker.refusal import Refusal

__all__ = ["Recogniser", "source_of"]

# Numbers that are evaluated at once: arrays that caches hold, and that need no new pages.
_CHUNK = 1 << 14
# Sums of a channel that are tried one by one, where the expression is not known to be monotone.
_MOST_SUMS = 1 << 25


class Recogniser:
    """Looks at stored bytes, halfwords and words.

    A byte that is not the output of any layer is forgotten: nothing that depends on it is proven.
    ``forgotten`` counts them, up to ``limit``. ``rename`` is called when all bits of a word equal a symbol.
    """

    def __init__(
        self, network: Network, limit: int, rename: Callable[[Word, Word], None] = lambda word, symbol: None
    ) -> None:
        self.network, self.limit, self.rename = network, limit, rename
        self.forgotten = 0
        self.first_reason = ""
        self._verdicts: dict[Any, bool] = {}

    def output(self, word: Word, bits: int) -> Word | None:
        """Return the symbol of an output, or the integer, that the lowest bits of ``word`` are proven to
        be.
        """
        value = self._value(word, bits, {})
        if value is not None:
            return value & M32 if isinstance(value, int) else value.word
        self.forgotten += bits == 8 and moved_byte(word) is None and not is_short(word)
        if self.forgotten > self.limit:
            raise Refusal(f"too many bytes are no output of any layer; the first: {self.first_reason}")
        return None

    def _value(self, word: Word, bits: int, tried: dict[int, Value | None]) -> Value | None:
        # ``tried`` are the ways of choices that were looked at, by ``id``.
        if id(word) not in tried:
            tried[id(word)] = self._tried(word, bits, tried)
        return tried[id(word)]

    def _tried(self, word: Word, bits: int, tried: dict[int, Value | None]) -> Value | None:
        found = leaves(word)
        try:
            value = self._of_layers(word, found, bits) if found else None
        except Refusal as refusal:
            self._because(str(refusal))
            value = None
        if value is None and isinstance(word, WordOp) and word.name == "sel":
            ways = [self._value(way, bits, tried) for way in word.args[1:]]
            if ways[0] == ways[1]:  # whatever the condition says
                return ways[0]
        return value

    def _because(self, reason: str) -> None:
        self.first_reason = self.first_reason or reason

    def _of_layers(self, word: Word, found: list[LinearSum], bits: int) -> Value | None:
        first = next(iter(found[0].terms()))
        for layer in self.network.readers.get(first.tensor, ()):
            if bits not in layer.sizes:
                continue
            self.network.prepared(layer)
            try:
                value = self._of_layer(layer, word, found, bits)
            except Refusal as refusal:  # it may be the output of another layer of the same inputs
                self._because(str(refusal))
                continue
            if value is not None:
                return value
        self._because(f"a byte that depends on {source_of(word)}")
        return None

    def _of_layer(self, layer: Layer, word: Word, found: list[LinearSum], bits: int) -> Value | None:
        value = None
        if isinstance(layer, RealInput):
            return self._of_real(layer, word, found)
        if isinstance(layer, ChoiceLayer | ExtremePlace):
            return self._of_choice(layer, word, found)
        if isinstance(layer, MatrixProducts | SvdfLayer):
            word = self._rewritten(layer, word, bits)
            found = leaves(word)
        if isinstance(layer, SumLayer):
            value = self._of_sum(layer, word, found)
        if value is None and isinstance(layer, ElementLayer):
            return self._of_pair(layer, word, found)
        if isinstance(layer, MaxPool):
            return self._of_set(layer, word)
        if isinstance(layer, SoftmaxLayer):
            return self._of_softmax(layer, word)
        return self._of_lstm(layer, word, bits) if isinstance(layer, LstmLayer) else value

    def _of_lstm(self, layer: LstmLayer, word: Word, bits: int) -> Value | None:
        value = lstm_output(layer, word, bits, self._verdicts)
        if isinstance(value, Symbol):
            self.rename(word, value.word)
        return value

    @staticmethod
    def _of_choice(layer: ChoiceLayer | ExtremePlace, word: Word, found: list[LinearSum]) -> Value | None:
        if isinstance(layer, ChoiceLayer):
            output = chosen_output(layer, word, found)
        else:
            output = place_output(layer, word, found)
        return None if output is None else layer.found(output)

    def _rewritten(self, layer: MatrixProducts | SvdfLayer, word: Word, bits: int) -> Word:
        # The word as a function of sums.
        if isinstance(layer, SvdfLayer):
            return fixed(word, {}, self._newest_in(layer, word))
        return layer.products.rewritten(word) if bits == 8 else word  # of int16 these are sums already

    def _newest_in(self, layer: SvdfLayer, word: Word) -> dict[int, Word]:
        # The parts of a word that are newest products, by ``id``: kernels add them up before they are stored.
        found, seen, todo = dict[int, Word](), set[int](), list[Node]([word])
        while todo:
            node = todo.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            value = self._newest(layer, node) if isinstance(node, WordOp) else None
            if isinstance(value, Symbol):
                found[id(node)] = value.word
            else:
                todo += parts_of(node)
        return found

    def _newest(self, layer: SvdfLayer, node: WordOp) -> Value | None:
        clamped = node.name in _CLAMPS and _never_wraps(layer.newest, node)
        return self._of_sum(layer.newest, node, leaves(node)) if clamped else None

    # ---- functions of one sum

    def _of_sum(self, layer: SumLayer, word: Word, found: list[LinearSum]) -> Value | None:
        # All leaves have to be multiples of one sum of the layer, up to constants.
        forms, scales = None, {}
        for leaf in found:
            terms = leaf.terms()
            k = math.gcd(*terms.values())
            known = layer.forms.get(fingerprint({s: n // k for s, n in terms.items()}))
            if known is None:
                k = -k
                known = layer.forms.get(fingerprint({s: n // k for s, n in terms.items()}))
            if known is None or forms not in (None, known):
                return None
            forms, scales[id(leaf)] = known, k
        for form in forms or ():
            whole = not any(k % form.factor for k in scales.values())
            if whole and self._all_sums(layer, form, word, scales):
                return layer.found(form.output)
            if self._own_sums(layer, form, word, scales, found[0]):
                return layer.found(form.output)
        return None

    def _all_sums(self, layer: SumLayer, form: OutputForm, word: Word, scales: dict[int, int]) -> bool:
        # True if it is the network's function for every sum that the channel can have.
        def line(leaf: LinearSum) -> tuple[int, int]:
            k = scales[id(leaf)] // form.factor
            return k, leaf.constant - k * form.base

        name = (layer, form.channel, shape_of(word, line, {}))
        if name not in self._verdicts:
            low, high = layer.ranges[form.channel]

            def course(leaf: LinearSum) -> Course:
                k, c = line(leaf)
                a, b = k * low + c, k * high + c
                return Course(min(a, b), max(a, b), (k > 0) - (k < 0))

            self._verdicts[name] = self._compared(
                layer, form.channel, word, line, course_of(word, course, {})
            )
        return self._verdicts[name]

    def _compared(self, layer: SumLayer, c: Channel, word: Word, line: Any, course: Course | None) -> bool:
        (low, high), kind = layer.ranges[c], layer.type
        fits = course is not None and course.way >= 0 and kind.low <= course.low and course.high <= kind.high
        if fits and layer.rises:
            steps = layer.steps(c)
            parts = (steps[i : i + _CHUNK] for i in range(0, steps.size, _CHUNK))
            return all(self._equal(layer, c, word, line, part) for part in parts)
        if high - low > _MOST_SUMS:
            layer.because(f"channel {c}: its expression may turn, and has too many sums to try all")
            return False
        return all(
            self._equal(layer, c, word, line, np.arange(a, min(high + 1, a + _CHUNK), dtype=np.int64))
            for a in range(low, high + 1, _CHUNK)
        )

    def _equal(self, layer: SumLayer, c: Channel, word: Word, line: Any, acc: Any) -> bool:
        # True if the lowest byte is the network's output for each of these sums.
        def value(leaf: LinearSum) -> Any:
            k, constant = line(leaf)
            return k * acc + constant

        layer.evaluations += acc.size
        got = np.broadcast_to(layer.type.of(evaluate(word, value, {})), acc.shape)
        wanted = layer.function(c, acc)
        wrong = np.nonzero(layer.differs(got, wanted))[0]
        if wrong.size:
            i, leaf = wrong[0], leaves(word)[0]
            ends = ([(leaf.terms(), int(value(leaf)[k]) - leaf.constant)] for k in (i, wrong[-1]))
            text = f"channel {c}: the sum {acc[i]} gives {got[i]}, the network says {wanted[i]}"
            layer.because(text, *ends)
        return not wrong.size

    def _own_sums(
        self, layer: SumLayer, form: OutputForm, word: Word, scales: dict[int, int], leaf: LinearSum
    ) -> bool:
        # The sums that this output can have, where not all of the channel's are right: at borders.
        k = scales[id(leaf)]
        a, b = ((v - leaf.constant) // k for v in leaf.bounds())
        low, high = min(a, b), max(a, b)
        if high - low > _MOST_SUMS:
            return False

        def line(x: LinearSum) -> tuple[int, int]:
            return scales[id(x)], x.constant

        name = (layer, form.channel, form.base, form.factor, low, high, shape_of(word, line, {}))
        if name not in self._verdicts:
            before = list(layer.reasons)
            normal = np.arange(low, high + 1, dtype=np.int64)
            layer.evaluations += normal.size
            memo: dict[int, Any] = {}
            got = layer.type.of(evaluate(word, lambda x: line(x)[0] * normal + line(x)[1], memo))
            wanted = layer.function(form.channel, form.base + form.factor * normal)
            self._verdicts[name] = bool((got == wanted).all())
            if self._verdicts[name]:
                layer.reasons[:] = [r for r in before if not r.startswith(f"channel {form.channel}:")]
        return self._verdicts[name]

    # ---- functions of two symbols

    def _of_pair(self, layer: ElementLayer, word: Word, found: list[LinearSum]) -> Value | None:
        symbols = frozenset(s for leaf in found for s in leaf.terms())
        extreme = isinstance(layer, ExtremeLayer) and layer.found_in(word) == symbols
        for output in layer.pairs.get(symbols, ()):
            if extreme or self._all_pairs(layer, layer.operands[output], word):
                return layer.found(output)
        return None

    def _all_pairs(self, layer: ElementLayer, operands: tuple[Value, ...], word: Word) -> bool:
        x, y = operands
        assert isinstance(x, Symbol)
        assert isinstance(y, Symbol)

        def line(leaf: LinearSum) -> tuple[int, ...]:
            return leaf.terms().get(x, 0), leaf.terms().get(y, 0), leaf.constant

        name = (layer, x.low, x.high, y.low, y.high, shape_of(word, line, {}))
        if name not in self._verdicts:
            if x.bits > 8:
                self._verdicts[name] = is_joined(layer, (x, y), word)
                return self._verdicts[name]
            a = np.arange(x.low, x.high + 1, dtype=np.int64)[:, None]
            b = np.arange(y.low, y.high + 1, dtype=np.int64)
            layer.evaluations += a.size * b.size

            def value(leaf: LinearSum) -> Any:
                k, n, constant = line(leaf)
                return k * a + n * b + constant

            wanted = layer.value(a, b)
            got = np.broadcast_to(layer.type.of(evaluate(word, value, {})), wanted.shape)
            wrong = np.argwhere(got != wanted)
            self._verdicts[name] = not wrong.size
            if wrong.size:
                u, v = int(wrong[0][0]) + x.low, int(wrong[0][1]) + y.low
                text = f"{u} and {v}: {got[tuple(wrong[0])]}, the network says {wanted[tuple(wrong[0])]}"
                layer.because(text, [({x: 1}, u), ({y: 1}, v)])
        return self._verdicts[name]

    # ---- the greatest of a set

    def _of_set(self, layer: MaxPool, word: Word) -> Value | None:
        kind, seen, todo = layer.type, set[int](), list[Any]((word,))
        of, worst = (least_of, kind.high) if layer.takes_least else (greatest_of, kind.low)
        while todo:
            node = todo.pop()
            members = None if isinstance(node, int) else of(node, worst)
            symbols, end = members or (frozenset[Symbol](), worst)
            counts = layer.takes_least or end > layer.limits[0]  # nothing is below the limit
            output = layer.by_set.get((symbols, end if counts else worst))
            if output is not None:
                return layer.found(output) if self._is_limited(layer, word, node, end) else None
            if not isinstance(node, int) and id(node) not in seen:
                seen.add(id(node))
                todo += parts_of(node)
        return None

    def _is_limited(self, layer: MaxPool, word: Word, node: Node, end: int) -> bool:
        # True if the word is the node's value within the layer's limits, from ``end`` on, or up to it.
        if node is word and layer.limits == layer.type[1:]:
            return True
        name = (layer, end, shape_of(word, _no_leaf, {id(node): "extreme"}))
        if name not in self._verdicts:
            low, high = (layer.type.low, end) if layer.takes_least else (end, layer.type.high)
            values = np.arange(low, high + 1, dtype=np.int64)
            got = layer.type.of(evaluate(word, _no_leaf, {id(node): values}))
            self._verdicts[name] = bool((got == np.clip(values, *layer.limits)).all())
        return self._verdicts[name]

    def _of_real(self, layer: RealInput, word: Word, found: list[LinearSum]) -> Value | None:
        # A function of one number of float32, which is compared in spans of numbers.
        flag = asked_flag(word)
        if flag is not None:
            return self._of_flagged(layer, word, flag)
        symbol = next(iter(found[0].terms()))
        if symbol not in layer.of or any(leaf is not symbol.word for leaf in found):
            return None
        return layer.found(layer.of[symbol]) if self._all_reals(layer, symbol, word, layer.places) else None

    def _of_flagged(self, layer: RealInput, word: Word, flag: WordOp) -> Value | None:
        # One way if a conversion was invalid, another if none was. If the output's own number is infinite,
        # its conversion was: so the other way has to be right for finite numbers only.
        is_set = int(flag.name == "ne")
        invalid, valid = (fixed(word, {}, {id(flag): taken}) for taken in (is_set, 1 - is_set))
        symbols = {s for leaf in leaves(invalid) + leaves(valid) for s in leaf.terms()}
        if len(symbols) != 1 or not symbols <= layer.of.keys():
            return None
        (symbol,) = symbols
        least, most = layer.places
        both = layer.ordered(np.array(layer.places)).tolist()
        own = [c for c in conversions_of(flag) if {s for leaf in leaves(c) for s in leaf.terms()} == symbols]
        certain = all(any(is_invalid(c, symbol, bits) for c in own) for bits in both)
        right = certain and self._all_reals(layer, symbol, valid, (least + 1, most - 1))
        return (
            layer.found(layer.of[symbol])
            if right and self._all_reals(layer, symbol, invalid, layer.places)
            else None
        )

    def _all_reals(self, layer: RealInput, symbol: Symbol, word: Word, places: tuple[int, int]) -> bool:
        # True if the word is the network's function of the number, from one place in their order to another.
        if any(leaf is not symbol.word for leaf in leaves(word)):
            return False
        name = (layer, places, shape_of(word, lambda _: "number", {}))
        if name not in self._verdicts:
            function = partial(layer.function, 0)
            wrong = where_wrong(word, places, layer.ordered, function)
            zero = np.array([-(1 << 31)])  # the one that has a sign
            got = layer.type.of(np.broadcast_to(evaluate(word, lambda _: zero, {}), 1))
            self._verdicts[name] = wrong is None and bool((got == function(zero)).all())
            if wrong is not None:
                bits = layer.ordered(np.array([wrong[0]]))
                text = f"{number_of(bits)[0]} gives {wrong[1]}, the network says {function(bits)[0]}"
                layer.because(text, [({symbol: 1}, int(bits[0]))])
        return self._verdicts[name]

    def _of_softmax(self, layer: SoftmaxLayer, word: Word) -> Value | None:
        output = softmax_output(layer, word, self._verdicts)
        return None if output is None else layer.found(output)


# Operations by which a newest product gets its limits.
_CLAMPS = frozenset(("sel", "ssat", "sxtb", "sxth", "min", "max"))


def _never_wraps(layer: SumLayer, word: Word) -> bool:
    # True if all bits of a word are those of an output that its lowest bits are.
    bits = layer.type.bits
    if isinstance(word, WordOp) and (word.name, word.args[0]) == ("ssat", bits):
        return True
    if isinstance(word, WordOp) and word.name == ("sxtb" if bits == 8 else "sxth"):
        return True
    course = course_of(word, lambda leaf: Course(*leaf.bounds(), 1), {})
    return course is not None and layer.type.low <= course.low and course.high <= layer.type.high


def source_of(word: Word) -> str:
    """Describe the bytes that a word depends on, forgotten bytes first."""
    if has_unknown(word):
        return "memory or a register that nothing wrote"
    symbols = [s for leaf in leaves(word) for s in leaf.terms()]
    own = [s for s in symbols if s.tensor < 0]
    if own:
        return "the return address" if own[0].index else "the stack pointer"
    if not symbols:
        return "nothing"
    return f"tensor {symbols[0].tensor}, element {symbols[0].index}"


def _no_leaf(leaf: LinearSum) -> Any:
    raise Refusal("a greatest element that is used together with others")
