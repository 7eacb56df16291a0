"""Conversions between an application's floats and a network's integers: ``<model>_quantize_<input>`` and
``<model>_dequantize_<output>``.

The problem. A network that is right is useless if what goes in was rounded in another way than its training
did. The functions have to compute, for each of the 2^32 bit patterns of a float x, and for each integer q,

    quantize     t = x / scale;  t = t + (t < 0 ? -0.5 : 0.5);  t = min(max(t, low - zero), high - zero)
                 q = trunc(t) + zero, and low for NaN
    dequantize   scale * float(q - zero)

in float32, each operation rounded to nearest.

The idea. The function is run on symbols, one for each float, and where it stores an integer, the expression
of that is looked at: it must be one of a single element of the input. Both the formula and float32 arithmetic
never fall as x rises, so spans of x are halved until the expression has one value in each, and the formula
has that value at both ends (``spans``). -infinity, infinity, and both zeros are included. Elements with
expressions of the same shape are compared once. NaN fails every comparison but "not equal" and survives all
arithmetic, so it is evaluated apart. An integer has at most 65,536 values, which are all tried.

Invariant: what is at the place of element i in the end is the formula's value of element i, for each i, and
nothing else was written. The memory that may be written is the result and the stack.

On cores without an FPU the operations are functions of the compiler's library: see ``software_floats``.
"""

import re
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from crtgen.proof.checker.algebra.expression import evaluate, leaves, shape_of
from crtgen.proof.checker.algebra.real import number_of, word_of_real
from crtgen.proof.checker.algebra.spans import value_of_nan, where_wrong
from crtgen.proof.checker.algebra.value import STACK_TOP, LinearSum, Symbol, Word, WordOp
from crtgen.proof.checker.binary.image import DecodedImage
from crtgen.proof.checker.core.layout import allow_stack, takes_rows
from crtgen.proof.checker.core.machine import Machine
from crtgen.proof.checker.core.software_floats import replace_software_floats, tried
from crtgen.proof.checker.network.arithmetic import Ints
from crtgen.proof.checker.network.file import ModelFile
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.surroundings.description import is_name_of
from crtgen.proof.checker.surroundings.places import size_of, tensors_of

__all__ = ["Conversions", "follow_conversions"]

_MOST_INSTRUCTIONS = 50_000_000
_FROM, _TO = 0xC1000000, 0xC2000000
"""Addresses of an application's buffers, which no image uses; they are only as aligned as they must be."""
_ARGUMENT, _RESULT = -4, -5
"""Tensors of the symbols that stand for what is converted, and for results that are right."""
_INFINITE = 0x7F800000


# What is left of the name of a layer's kernel: "quantize_3", "dequantize_by_4".
_KERNEL = re.compile(r"(by_)?\d+")


@dataclass(frozen=True, slots=True)
class Conversions:
    """The functions that were followed; those of the compiler's library that are trusted to compute float32,
    and how many operands they were tried with; the addresses of the code.
    """

    followed: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()
    tries: int = 0
    code: frozenset[int] = field(default=frozenset(), repr=False)


def follow_conversions(image: DecodedImage, network: Network, name: str) -> Conversions:
    """Follow each conversion that an image has. Raises ``Refusal`` for one that computes anything else."""
    runs = list[_Conversion]()
    for symbol in sorted(image.symbols):
        for kind in (_Quantize, _Dequantize):
            before = f"{name}_{kind.verb}_"
            if symbol.startswith(before) and not _KERNEL.fullmatch(symbol.removeprefix(before)):
                tensor = _tensor_of(network.file, symbol.removeprefix(before), kind.which)
                count = _elements(image, network, name, kind.which, tensor)
                runs.append(kind(image, network.file, symbol, tensor, count))
    for run in runs:
        run.follow()
    called = sorted(set[str]().union(*(run.called for run in runs)))
    constants = tuple(sorted({int(word_of_real(run.scale)) for run in runs}))
    count = sum(tried(image, function, constants) for function in called)
    code = frozenset[int]().union(*(run.machine.code for run in runs))
    return Conversions(tuple(run.symbol for run in runs), tuple(called), count, code)


def _tensor_of(file: ModelFile, name: str, which: str) -> int:
    # The tensor that a function is named after.
    tensors = tensors_of(file, which)
    found = [t for t in tensors if len(tensors) == 1 or is_name_of(name, file.name(t), which)]
    number = re.match(rf"{which}(\d+)(_|$)", name)
    if len(found) != 1 and number and int(number[1]) < len(tensors):
        found = [tensors[int(number[1])]]
    if len(found) != 1:
        raise Refusal(f"{name!r}, which floats are converted for, is no {which} of the network")
    return found[0]


def _elements(image: DecodedImage, network: Network, name: str, which: str, tensor: int) -> int:
    # Those of a call: all, what is new of a window, or one row of an input that arrives by rows.
    fed = takes_rows(image, name) and which == "input"
    return size_of(network, which, tensor) // (network.file.shape(tensor)[1] if fed else 1)


class _Conversion:
    # A run of one function on symbols; ``bits`` are those of an argument and of a result.
    verb = which = ""

    def __init__(self, image: DecodedImage, file: ModelFile, symbol: str, tensor: int, count: int) -> None:
        self.symbol, self.machine, self.kind = symbol, Machine(image, _MOST_INSTRUCTIONS), file.kind(tensor)
        self.scale, self.zero = np.float32(file.scale(tensor)), file.zero_point(tensor)
        if not 0 < self.scale < np.inf or self.kind.bits > 16:
            raise Refusal(f"{symbol} converts numbers of {self.kind.bits} bits, which are not followed")
        allow_stack(self.machine)
        self.called = replace_software_floats(self.machine)
        self.bits, self.count = self._sizes(), count
        self.arguments, self.results = (
            [Symbol(side, i, *self._limits(bits), bits) for i in range(count)]
            for side, bits in zip((_ARGUMENT, _RESULT), self.bits, strict=True)
        )
        self._right = set[Hashable]()

    def _sizes(self) -> tuple[int, int]:
        raise NotImplementedError

    def _limits(self, bits: int) -> tuple[int, int]:
        return (-(1 << 31), (1 << 31) - 1) if bits == 32 else (self.kind.low, self.kind.high)

    def follow(self) -> None:
        machine, memory = self.machine, self.machine.memory
        (given, result), size = self.bits, self.bits[1] // 8
        start, to = _FROM + given // 8, _TO + size
        self._put_arguments(start)
        memory.recognise, memory.sizes = self._recognised, frozenset((result,))
        memory.allow(to, to + self.count * size)
        machine.r[:2] = start, to
        machine.run(machine.image.symbols[self.symbol], STACK_TOP)
        for i, wanted in enumerate(self.results):
            if not self._is(to + i * size, wanted):
                raise Refusal(f"{self.symbol}: element {i} of the result is not known")

    def _put_arguments(self, at: int) -> None:
        # In a buffer of the application's, which may only be read.
        memory, bits = self.machine.memory, self.bits[0]
        memory.allow(at, at + self.count * bits // 8)
        for i, symbol in enumerate(self.arguments):
            if bits == 8:
                memory.store_byte(at + i, symbol)
            else:
                (memory.store if bits == 32 else memory.store_half)(at + i * bits // 8, symbol.word)
        memory.writable -= set(range(at >> 2, at + self.count * bits // 8 + 3 >> 2))

    def _is(self, at: int, wanted: Symbol) -> bool:
        memory = self.machine.memory
        if wanted.bits == 8:
            return memory.byte(at) is wanted
        word = memory.load(at) if wanted.bits == 32 else memory.half(at, signed=True)
        return isinstance(word, LinearSum) and word.constant == 0 and word.terms() == {wanted: 1}

    def _recognised(self, word: Word, bits: int) -> Word | None:
        # The result's symbol, if the word is the formula of one element; None if it is of none or several.
        sums = leaves(word)
        found = {symbol for leaf in sums for symbol in leaf.terms()}
        if len(found) != 1 or bits != self.bits[1]:
            return None
        (element,) = found
        if element.tensor != _ARGUMENT:
            return None
        shape = shape_of(word, lambda leaf: (leaf.constant, leaf.terms()[element]), {})
        if shape not in self._right:
            if wrong := self._wrong(word, element):
                raise Refusal(f"{self.symbol}: {wrong[0]} becomes {wrong[1]}, the formula says {wrong[2]}")
            self._right.add(shape)
        return self.results[element.index].word

    def _wrong(self, word: Word, element: Symbol) -> tuple[object, object, object] | None:
        # An argument for which the word is not what it ought to be, the word's value, and the right one.
        raise NotImplementedError


class _Quantize(_Conversion):
    verb, which = "quantize", "input"

    def _sizes(self) -> tuple[int, int]:
        return 32, self.kind.bits

    def _wrong(self, word: Word, element: Symbol) -> tuple[object, object, object] | None:
        if any(leaf.constant or leaf.terms() != {element: 1} for leaf in leaves(word)):
            raise Refusal(f"{self.symbol} computes with the bits of a float")
        stored = self._stored(word)
        of_nan = value_of_nan(stored)
        if of_nan != self.kind.low:
            return "NaN", of_nan, self.kind.low
        found = where_wrong(stored, (-_INFINITE - 1, _INFINITE), _float_at, self._formula)
        if found is None:
            return None
        place = np.array([found[0]])
        return number_of(_float_at(place))[0], found[1], self._formula(_float_at(place))[0]

    def _stored(self, word: Word) -> Word:
        # The integer that the lowest bits of a word are.
        if isinstance(word, WordOp) and word.name in _EXTENSIONS:
            word = word.args[0]
        return WordOp(_EXTENSIONS[(self.kind.bits == 16) * 2 + (self.kind.low == 0)], word)

    def _formula(self, bits: Ints) -> Ints:
        with np.errstate(all="ignore"):
            scaled = number_of(bits) / self.scale
            rounded = scaled + np.where(scaled < 0, np.float32(-0.5), np.float32(0.5))
        least, most = (np.float32(limit - self.zero) for limit in (self.kind.low, self.kind.high))
        found: Ints = np.trunc(np.clip(rounded, least, most)).astype(np.int64) + self.zero
        return found


class _Dequantize(_Conversion):
    verb, which = "dequantize", "output"

    def _sizes(self) -> tuple[int, int]:
        return self.kind.bits, 32

    def _wrong(self, word: Word, element: Symbol) -> tuple[object, object, object] | None:
        values = np.arange(self.kind.low, self.kind.high + 1)
        wanted = word_of_real(self.scale * (values - self.zero).astype(np.float32))
        given = evaluate(word, lambda leaf: leaf.constant + leaf.terms()[element] * values, {})
        for i in np.nonzero(given != wanted)[0][:1]:
            return values[i], number_of(given[i : i + 1])[0], number_of(wanted[i : i + 1])[0]
        return None


_EXTENSIONS = ("sxtb", "uxtb", "sxth", "uxth")


def _float_at(position: Ints) -> Ints:
    # The bits of floats in ascending order; -1 is -0.0, and 0 is 0.0.
    return np.where(position >= 0, position, -(1 << 31) - position - 1)
