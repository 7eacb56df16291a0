"""Which output of which layer is a byte that is stored? A proof for every input, or nothing."""

import math
from typing import Any

import numpy as np

from crtgen.prove.expression import evaluate, leaves, shape_of
from crtgen.prove.greatest import greatest_of
from crtgen.prove.monotone import Course, course_of
from crtgen.prove.network.elementwise import ElementLayer
from crtgen.prove.network.layer import Layer, Value
from crtgen.prove.network.network import Network
from crtgen.prove.network.others import MaxPool, Softmax
from crtgen.prove.network.sums import Form, SumLayer, fingerprint
from crtgen.prove.refusal import Refusal
from crtgen.prove.softmax import softmax_output
from crtgen.prove.value import Byte, Part, Sum, Symbol, Word, unknown

__all__ = ["Recogniser"]

_CHUNK = 1 << 18
_MOST_SUMS = 1 << 25
"""Sums of a channel that are tried one by one, where the expression is not known to be monotone."""


class Recogniser:
    """Looks at bytes as they are stored.

    A byte that is no output of any layer is forgotten: what depends on it is not proven. ``forgotten`` counts
    them, up to ``limit``.
    """

    def __init__(self, network: Network, limit: int) -> None:
        self.network, self.limit = network, limit
        self.forgotten = 0
        self.first_reason = ""
        self._verdicts: dict[Any, bool] = {}

    def byte(self, word: Word, part: Part) -> Byte:
        """The symbol of an output, or a number, that the lowest byte of ``word`` is proven to be."""
        found = leaves(word)
        if not found:
            return part
        try:
            value = self._of_layers(word, found)
        except Refusal as refusal:
            self._because(str(refusal))
            value = None
        if value is not None:
            return value & 255 if isinstance(value, int) else value
        self.forgotten += 1
        if self.forgotten > self.limit:
            raise Refusal(f"too many bytes are no output of any layer; the first: {self.first_reason}")
        return Part(unknown(), 0)

    def _because(self, reason: str) -> None:
        self.first_reason = self.first_reason or reason

    def _of_layers(self, word: Word, found: list[Sum]) -> Value | None:
        first = next(iter(found[0].terms()))
        for layer in self.network.readers.get(first.tensor, ()):
            self.network.values(layer.operator.output)
            value = None
            if isinstance(layer, SumLayer):
                value = self._of_sum(layer, word, found)
            elif isinstance(layer, ElementLayer):
                value = self._of_elements(layer, word, found)
            elif isinstance(layer, MaxPool):
                value = self._of_set(layer, word)
            elif isinstance(layer, Softmax):
                value = self._of_softmax(layer, word)
            if value is not None:
                return value
        self._because(f"a byte that depends on tensor {first.tensor}, element {first.index}")
        return None

    def _found(self, layer: Layer, output: int) -> Value:
        layer.proven.add(output)
        assert layer.values is not None  # it was prepared to be asked
        return layer.values[output]

    # ---- functions of one sum

    def _of_sum(self, layer: SumLayer, word: Word, found: list[Sum]) -> Value | None:
        """All leaves have to be multiples of one sum of the layer, up to constants."""
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
            if any(k % form.factor for k in scales.values()):
                continue
            if self._all_sums(layer, form, word, scales) or self._own_sums(
                layer, form, word, scales, found[0]
            ):
                return self._found(layer, form.output)
        return None

    def _all_sums(self, layer: SumLayer, form: Form, word: Word, scales: dict[int, int]) -> bool:
        """Whether it is the network's function of every sum that the channel can have."""

        def line(leaf: Sum) -> tuple[int, int]:
            k = scales[id(leaf)] // form.factor
            return k, leaf.constant - k * form.base

        name = (layer.number, form.channel, shape_of(word, line, {}))
        if name not in self._verdicts:
            low, high = layer.ranges[form.channel]

            def course(leaf: Sum) -> Course:
                k, c = line(leaf)
                a, b = k * low + c, k * high + c
                return Course(min(a, b), max(a, b), (k > 0) - (k < 0))

            self._verdicts[name] = self._compared(
                layer, form.channel, word, line, course_of(word, course, {})
            )
        return self._verdicts[name]

    def _compared(self, layer: SumLayer, c: int, word: Word, line: Any, course: Course | None) -> bool:
        low, high = layer.ranges[c]
        if course is not None and course.way >= 0 and course.low >= -128 and course.high <= 127:
            return self._equal(layer, c, word, line, layer.steps(c))
        if high - low > _MOST_SUMS:
            layer.because(f"channel {c}: its expression may turn, and has too many sums to try all")
            return False
        return all(
            self._equal(layer, c, word, line, np.arange(a, min(high + 1, a + _CHUNK), dtype=np.int64))
            for a in range(low, high + 1, _CHUNK)
        )

    def _equal(self, layer: SumLayer, c: int, word: Word, line: Any, acc: Any) -> bool:
        """Whether the lowest byte is the network's output for each of these sums."""

        def value(leaf: Sum) -> Any:
            k, constant = line(leaf)
            return k * acc + constant

        layer.evaluations += acc.size
        got = np.broadcast_to(_signed_byte(evaluate(word, value, {})), acc.shape)
        wanted = layer.function(c, acc)
        wrong = np.nonzero(got != wanted)[0]
        if wrong.size:
            i, leaf = wrong[0], leaves(word)[0]
            ends = ([(leaf.terms(), int(value(leaf)[k]) - leaf.constant)] for k in (i, wrong[-1]))
            text = f"channel {c}: the sum {acc[i]} gives {got[i]}, the network says {wanted[i]}"
            layer.because(text, *ends)
        return not wrong.size

    def _own_sums(self, layer: SumLayer, form: Form, word: Word, scales: dict[int, int], leaf: Sum) -> bool:
        """The sums that this output can have, where not all of the channel's are right: at borders."""
        k = scales[id(leaf)]
        a, b = ((v - leaf.constant) // k for v in leaf.bounds())
        low, high = min(a, b), max(a, b)
        if high - low > _MOST_SUMS:
            return False

        def line(x: Sum) -> tuple[int, int]:
            return scales[id(x)], x.constant

        name = (layer.number, form.channel, form.base, form.factor, low, high, shape_of(word, line, {}))
        if name not in self._verdicts:
            before = list(layer.reasons)
            normal = np.arange(low, high + 1, dtype=np.int64)
            layer.evaluations += normal.size
            memo: dict[int, Any] = {}
            got = _signed_byte(evaluate(word, lambda x: line(x)[0] * normal + line(x)[1], memo))
            wanted = layer.function(form.channel, form.base + form.factor * normal)
            self._verdicts[name] = bool((got == wanted).all())
            if self._verdicts[name]:
                layer.reasons[:] = [r for r in before if not r.startswith(f"channel {form.channel}:")]
        return self._verdicts[name]

    # ---- functions of one symbol or two

    def _of_elements(self, layer: ElementLayer, word: Word, found: list[Sum]) -> Value | None:
        symbols = frozenset(s for leaf in found for s in leaf.terms())
        for output in layer.by_symbols.get(symbols, ()):
            if self._all_values(layer, layer.operands[output], word):
                return self._found(layer, output)
        return None

    def _all_values(self, layer: ElementLayer, operands: tuple[Value, ...], word: Word) -> bool:
        order = [v for i, v in enumerate(operands) if isinstance(v, Symbol) and v not in operands[:i]]

        def line(leaf: Sum) -> tuple[int, ...]:
            return (*(leaf.terms().get(s, 0) for s in order), leaf.constant)

        kinds = [(order.index(v), v.low, v.high) if isinstance(v, Symbol) else v for v in operands]
        name = (layer.number, tuple(kinds), shape_of(word, line, {}))
        if name not in self._verdicts:
            ranges = np.ix_(*(np.arange(s.low, s.high + 1, dtype=np.int64) for s in order))
            values = dict(zip(order, ranges, strict=True))
            shape = np.broadcast_shapes(*(r.shape for r in ranges))
            layer.evaluations += math.prod(shape)

            def value(leaf: Sum) -> Any:
                return leaf.constant + sum(k * values[s] for s, k in leaf.terms().items())

            got = np.broadcast_to(_signed_byte(evaluate(word, value, {})), shape)
            wanted = layer.function(*(values[v] if isinstance(v, Symbol) else np.array(v) for v in operands))
            wrong = np.argwhere(got != wanted)
            self._verdicts[name] = not wrong.size
            if wrong.size:
                at = tuple(wrong[0])
                said = " and ".join(str(s.low + i) for s, i in zip(order, at, strict=True))
                where = [({s: 1}, s.low + int(i)) for s, i in zip(order, at, strict=True)]
                layer.because(f"{said}: {got[at]}, the network says {wanted[at]}", where)
        return self._verdicts[name]

    # ---- the greatest of a set

    def _of_set(self, layer: MaxPool, word: Word) -> Value | None:
        members = greatest_of(word)
        if members is None:
            return None
        output = layer.by_set.get(members)
        return None if output is None else self._found(layer, output)

    def _of_softmax(self, layer: Softmax, word: Word) -> Value | None:
        output = softmax_output(layer, word, self._verdicts)
        return None if output is None else self._found(layer, output)


def _signed_byte(v: Any) -> Any:
    return ((v + 128) & 255) - 128
