"""Gates and states of an LSTM with the DSP extension, two units at a time.

Scratch has three rows of units: what is kept from gate to gate, and the products of the input and of the
hidden state for a gate.
"""

from collections.abc import Iterator

from crtgen.compiler.kernels.asm import FAR, Function, Routine
from crtgen.compiler.kernels.dsp.sigmoids import SigmoidLines, sigmoids
from crtgen.network.ir import DType
from crtgen.network.ops.lstm import LstmParams
from crtgen.network.ops.sigmoid16 import Sigmoid16Params

__all__ = ["lstm_states"]

_GATE = Sigmoid16Params(3, 0)  # gates have 12 fractional bits
_HALF = 1 << 30
_MOST_SHIFT = 23


def lstm_states(units: int, p: LstmParams, dtype: DType) -> tuple[Routine, ...] | None:
    """Return the functions of the gates cell, input and forget, of tanh of the cell states, and of the gate
    output; None for units or scales for which there are none.
    """
    powers = all(
        multiplier == _HALF and -_MOST_SHIFT <= shift < 0 for multiplier, shift in (p.forget, p.update)
    )
    if not powers or not -_MOST_SHIFT <= p.output[1] < 0 or 4 * units > FAR:
        return None
    tanh = sigmoids(units, p.tanh, logistic=False, block=4)
    return _cell_gates(units), _entering(units, p), _next_cells(units, p), tanh, _shown(units, p, dtype)


class _UnitPairs:
    # Two units at a time: registers for their products and results, and the table of the gate.

    def __init__(self, units: int, name: str, purpose: str, *parameters: str, logistic: bool = True) -> None:
        self.units = units
        declared = ("int16_t *kept", *parameters, "const uint32_t *lines")
        self.f = Function(name, *declared, purpose=f"{purpose} of {units} units.")
        self.kept, *self.others, lines = self.f.arguments
        self.line = SigmoidLines(self.f, _GATE, logistic, lines)
        self.pair, self.first, self.second = self.f.cores("two units", 3)

    def each(self) -> Iterator[int]:
        # The number of units at once, in a loop for pairs.
        rounds, rest = divmod(self.units, 2)
        if rounds:
            with self.f.repeated("units", rounds):
                yield 2
        if rest:
            yield 1

    def of(self, count: int) -> Iterator[tuple[str, str]]:
        # The register of a unit's result, and its half of a pair.
        yield from ((self.first, "b"), (self.second, "t"))[:count]

    def load(self, to: str, pointer: str, count: int, row: int = 0) -> None:
        place = f"[{pointer}, #{2 * self.units * row}]" if row else f"[{pointer}]"
        self.f("ldr" if count == 2 else "ldrsh", to, place)

    def store(self, pointer: str, count: int) -> None:
        # The results, of 16 bits.
        if count == 2:
            self.f("pkhbt", self.first, self.first, self.second, "lsl #16")
        self.store_pair(pointer, count)

    def store_pair(self, pointer: str, count: int) -> None:
        self.f("str" if count == 2 else "strh", self.first, f"[{pointer}], #{2 * count}")

    def gates(self, count: int) -> None:
        f = self.f
        self.load(self.pair, self.kept, count, row=1)
        self.load(self.first, self.kept, count, row=2)
        f("qadd16", self.pair, self.pair, self.first)
        for result, half in self.of(count):
            self.line(result, self.pair, half)
        for result, _ in self.of(count):
            f("asr", result, result, f"#{self.line.shift}")


def _cell_gates(units: int) -> Routine:
    # ``cell_gates(kept, lines)``
    p = _UnitPairs(units, "cell_gates", "The cell gates", logistic=False)
    for count in p.each():
        p.gates(count)
        p.store(p.kept, count)
    return p.f.done()


class _Halved:
    # Gates times halves of a pair, rescaled by a power of two below a half as TFLite does it. Halves are
    # rounded up where the product is halved, and away from zero where it is shifted.

    def __init__(self, pairs: _UnitPairs, shift: int) -> None:
        self.pairs, self.bits = pairs, -shift
        self.one, self.half = (
            pairs.f.constant(name, n) for name, n in (("one", 1), ("half", 1 << -shift - 1))
        )

    def __call__(self, count: int) -> None:
        f, spare = self.pairs.f, self.pairs.line.sign
        for gate, half in self.pairs.of(count):
            f(f"smlab{half}", gate, gate, self.pairs.pair, self.one)
            f("add", spare, self.half, gate, "asr #1")
            f("add", gate, spare, gate, "asr #31")
            f("ssat", gate, "#16", gate, f"asr #{self.bits}")


def _entering(units: int, params: LstmParams) -> Routine:
    # ``entering(kept, lines)``: input gates times cell gates, in the cells' scale.
    p = _UnitPairs(units, "entering", "What enters the cells")
    halved = _Halved(p, params.update[1])
    for count in p.each():
        p.gates(count)
        p.load(p.pair, p.kept, count)
        halved(count)
        p.store(p.kept, count)
    return p.f.done()


def _next_cells(units: int, params: LstmParams) -> Routine:
    # ``next_cells(kept, cell, lines)``
    p = _UnitPairs(units, "next_cells", "The next cell states", "int16_t *cell")
    halved, (cell,), f = _Halved(p, params.forget[1]), p.others, p.f
    for count in p.each():
        p.gates(count)
        p.load(p.pair, cell, count)
        halved(count)
        if count == 2:
            f("pkhbt", p.first, p.first, p.second, "lsl #16")
        f("ldr" if count == 2 else "ldrsh", p.second, f"[{p.kept}], #{2 * count}")
        f("qadd16", p.first, p.first, p.second)
        if params.clip:
            for bound in (params.clip, -params.clip):
                f.number(p.second, (bound & 0xFFFF) * 0x10001)
                f("ssub16", p.pair, *((p.second, p.first) if bound > 0 else (p.first, p.second)))
                f("sel", p.first, p.first, p.second)
        p.store_pair(cell, count)
    return f.done()


def _shown(units: int, params: LstmParams, dtype: DType) -> Routine:
    # ``shown(kept, hidden, lines)``: output gates times tanh of the cells, which is kept, in another scale.
    p = _UnitPairs(units, "shown", "The hidden states", "void *hidden")
    (hidden,), f, bits = p.others, p.f, -params.output[1]
    scale = f.constant("multiplier", params.output[0])
    half = f.constant("half, zero point", (1 << bits - 1) + (params.output_offset << bits))
    spare, width = p.line.sign, 8 * dtype.itemsize
    for count in p.each():
        p.gates(count)
        f("ldr" if count == 2 else "ldrsh", p.pair, f"[{p.kept}], #{2 * count}")
        for gate, which in p.of(count):
            f(f"smulb{which}", gate, gate, p.pair)
            f("lsl", gate, gate, "#1")
            f("smmulr", gate, gate, scale)
            f("add", spare, half, gate)
            f("add", gate, spare, gate, "asr #31")
            f("ssat", gate, f"#{width}", gate, f"asr #{bits}")
        if dtype is DType.INT16:
            p.store(hidden, count)
        else:
            for gate, _ in p.of(count):
                f("strb", gate, f"[{hidden}], #1")
    return f.done()
