"""Layers as TensorFlow Lite Micro's reference kernels compute them in int8, on symbols.

Each output is a function of one sum of symbols (``Form``), or of two symbols (``Addition``). The
functions are those of TFLite: MultiplyByQuantizedMultiplier rounds twice, once to the upper 32 bits of a
product (halves up) and once by a shift (halves away from zero).
"""

import math
import struct
from collections.abc import Callable, Iterator
from operator import mul

from crtproof.model import INT8, INT32, Model, Operator, Tensor
from crtproof.powers import exponential, halved, product, reciprocal
from crtproof.values import P, Refused, Symbol

__all__ = ["Addition", "Form", "Greatest", "Layer", "Network", "Softmax", "Value"]

Value = int | Symbol
_ACTIVATIONS = {19: 1, 20: 2, 21: 3}
_ADD, _AVERAGE, _CONV, _DEPTHWISE, _DENSE, _GREATEST, _RESHAPE, _SOFTMAX = 0, 1, 3, 4, 9, 17, 22, 25
_NAMES = {
    0: "ADD", 1: "AVERAGE_POOL_2D", 3: "CONV_2D", 4: "DEPTHWISE_CONV_2D", 9: "FULLY_CONNECTED",
    14: "LOGISTIC", 17: "MAX_POOL_2D", 19: "RELU", 20: "RELU_N1_TO_1", 21: "RELU6", 22: "RESHAPE",
    25: "SOFTMAX", 34: "PAD", 40: "MEAN", 114: "QUANTIZE",
}  # fmt: skip
_RELU, _RELU_N1_TO_1, _RELU6 = 1, 2, 3


class Form:
    """An output: ``function`` of ``base`` + the sum with ``mark``, which is from ``low`` to ``high``."""

    __slots__ = ("base", "function", "high", "low", "mark")

    def __init__(self, base: int, mark: int, low: int, high: int, function: "Requantised | Mean") -> None:
        self.base, self.mark, self.low, self.high, self.function = base, mark, low, high, function


class Requantised:
    """The function of a sum that multiplies by a factor, adds a zero point, and cuts off at limits."""

    def __init__(self, factor: tuple[int, int], zero: int, limits: tuple[int, int]) -> None:
        self.key = factor, zero, limits
        self.factor, self.zero, self.limits = factor, zero, limits

    def __call__(self, acc: int) -> int:
        return max(self.limits[0], min(self.limits[1], requantise(acc, *self.factor) + self.zero))


class Mean:
    """The mean of a number of elements, to the nearest, halves away from zero."""

    def __init__(self, count: int, limits: tuple[int, int]) -> None:
        self.key = count, limits
        self.count, self.limits = count, limits

    def __call__(self, acc: int) -> int:
        n = self.count
        mean = (acc + n // 2) // n if acc > 0 else -((-acc + n // 2) // n)
        return max(self.limits[0], min(self.limits[1], mean))


def multiplier(m: float) -> tuple[int, int]:
    """Return 31 bits and the exponent of a positive factor (QuantizeMultiplier)."""
    if m == 0:
        return 0, 0
    if not 0 < m < 1e30:
        raise Refused("a scale that is not a positive number")
    q, exponent = math.frexp(m)
    bits = math.floor(q * (1 << 31) + 0.5)
    if bits == 1 << 31:
        bits, exponent = bits // 2, exponent + 1
    return (0, 0) if exponent < -31 else (bits, exponent)


def requantise(acc: int, bits: int, exponent: int) -> int:
    """acc * bits * 2^(exponent - 31) (MultiplyByQuantizedMultiplier)."""
    return halved(product(acc << max(exponent, 0), bits), max(-exponent, 0))


def _float32(v: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", v))[0])


class Layer:
    """An operator. ``values`` are its outputs; ``accepted`` those that were found in memory."""

    def __init__(self, network: "Network", operator: Operator) -> None:
        self.network, self.operator = network, operator
        self.accepted: set[int] = set()
        self.forms: dict[int, Form] = {}
        self.values: list[Value] = []

    @property
    def is_left(self) -> bool:
        """True if what it computes is not followed."""
        return type(self) is Layer and self.operator.code != _RESHAPE

    @property
    def name(self) -> str:
        return _NAMES.get(self.operator.code, f"operator {self.operator.code}")

    @property
    def output(self) -> Tensor:
        return self.network.model.tensors[self.operator.outputs[0]]

    def limits(self, activation: int) -> tuple[int, int]:
        scale, zero = self.output.scales[0], self.output.zero
        low, high = -128, 127
        if activation in (_RELU, _RELU6):
            low = max(low, zero)
        if activation == _RELU6:
            high = min(high, zero + _rounded(6.0, scale))
        if activation == _RELU_N1_TO_1:
            low, high = max(low, zero + _rounded(-1.0, scale)), min(high, zero + _rounded(1.0, scale))
        if activation > _RELU6:
            raise Refused(f"the activation {activation} is not followed")
        return low, high

    def enter(self, forms: Iterator[Form]) -> None:
        """Give each output its symbol: the same one for the same function of the same sum."""
        known: dict[object, Value] = {}
        for i, form in enumerate(forms):
            function, depends = form.function, form.mark % P != 0
            key = form.base, form.mark % P, function.key
            if key not in known:
                ends = (form.low, form.high) if depends else (form.base, form.base)
                low, high = map(function, ends)
                known[key] = low if low == high else self.symbol(i, low, high)
                self.forms[i] = form
            self.values.append(known[key])

    def symbol(self, i: int, low: int, high: int) -> Symbol:
        return Symbol(self.operator.outputs[0], i, low, high)


def _rounded(v: float, scale: float) -> int:
    # Half away from zero, as TFLite rounds in float32.
    q = _float32(v / scale)
    return math.floor(q + 0.5) if q >= 0 else math.ceil(q - 0.5)


class Addition(Layer):
    """ADD of two tensors: both are brought to one scale with 20 more bits."""

    def prepare(self) -> None:
        x, y = (self.network.values(t) for t in self.operator.inputs)
        first, second = (self.network.model.tensors[t] for t in self.operator.inputs)
        if len(x) != len(y) or first.shape != second.shape:
            raise Refused("an addition of different shapes")
        top = 2 * max(first.scales[0], second.scales[0])
        scales = first.scales[0] / top, second.scales[0] / top, top / ((1 << 20) * self.output.scales[0])
        self.factors = [multiplier(s) for s in scales]
        self.parts = [
            [requantise((v - zero) << 20, *self.factors[which]) for v in range(-128, 128)]
            for which, zero in enumerate((first.zero, second.zero))
        ]
        self.ends = self.limits(self.operator.option(0))
        self.operands = list(zip(x, y, strict=True))
        self.values = [self.symbol(i, *self.ends) for i in range(len(x))]

    def value(self, x: int, y: int) -> int:
        made = (
            requantise(self.parts[0][x + 128] + self.parts[1][y + 128], *self.factors[2]) + self.output.zero
        )
        return max(self.ends[0], min(self.ends[1], made))


class Weighted(Layer):
    """CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED."""

    def prepare(self) -> None:
        tensors, o = self.network.model.tensors, self.operator
        x, w = tensors[o.inputs[0]], tensors[o.inputs[1]]
        has_bias = len(o.inputs) > 2 and o.inputs[2] >= 0
        bias = tensors[o.inputs[2]].numbers if has_bias else None
        if w.numbers is None or w.type != INT8 or w.zero or (has_bias and bias is None):
            raise Refused(f"{self.name} with weights that are not constant")
        if has_bias and tensors[o.inputs[2]].type != INT32:
            raise Refused("a bias that is not of 32 bits")
        channels = w.shape[3] if o.code == _DEPTHWISE else w.shape[0]
        self.bias = bias or (0,) * channels
        limits = self.limits(o.option({_CONV: 3, _DEPTHWISE: 4, _DENSE: 0}[o.code]))
        self.functions = [
            Requantised(multiplier(self._scale(x, w, c)), self.output.zero, limits) for c in range(channels)
        ]
        self.enter(self._forms(x, w, channels))

    def _scale(self, x: Tensor, w: Tensor, c: int) -> float:
        own = w.scales[c % len(w.scales)]
        if self.operator.code == _DENSE and len(w.scales) == 1:  # a product in float32
            return _float32(x.scales[0] * own) / self.output.scales[0]
        return x.scales[0] * own / self.output.scales[0]

    def _forms(self, x: Tensor, w: Tensor, channels: int) -> Iterator[Form]:
        code, numbers = self.operator.code, w.numbers or ()
        values = self.network.values(self.operator.inputs[0])
        if code == _DENSE:
            depth = w.shape[1]
            windows: list[list[tuple[int, int]]] = [[(row, 0)] for row in range(len(values) // depth)]
            taps, groups = 1, 1
        else:
            kernel = w.shape[1], w.shape[2]
            windows = list(self.network.windows(self.operator, kernel, 4 + (code == _DEPTHWISE)))
            taps, depth, groups = kernel[0] * kernel[1], x.shape[3], 1
            if code == _DEPTHWISE:
                depth, groups = 1, x.shape[3]
                if channels != groups:
                    raise Refused("a depth multiplier")
            elif w.shape[3] != depth:
                raise Refused("a convolution in groups")
        yield from self._sums(values, numbers, windows, taps, depth, groups, channels, x.zero)

    def _sums(
        self, values: list[Value], numbers: tuple[int, ...], windows: list[list[tuple[int, int]]], taps: int,
        depth: int, groups: int, channels: int, zero: int,
    ) -> Iterator[Form]:  # fmt: skip
        all_of = depth * groups
        marks = [v.word.mark if isinstance(v, Symbol) else 0 for v in values]
        fixed = [0 if isinstance(v, Symbol) else v for v in values]
        ends = [(v.low, v.high) if isinstance(v, Symbol) else (v, v) for v in values]
        low = [min(e[0] for e in ends[d::all_of]) - zero for d in range(all_of)]
        high = [max(e[1] for e in ends[d::all_of]) - zero for d in range(all_of)]
        padded = any(len(window) < taps for window in windows)
        rows: list[tuple[int, ...]] = []
        ranges = []
        for c in range(channels):
            row = (
                numbers[c::channels]
                if self.operator.code == _DEPTHWISE
                else numbers[c * taps * depth : (c + 1) * taps * depth]
            )
            rows.append(row)
            first = c * depth if groups > 1 else 0
            least = most = self.bias[c]
            for k, weight in enumerate(row):
                a, b = weight * low[first + k % depth], weight * high[first + k % depth]
                ends_of = (a, b, 0) if padded else (a, b)
                least, most = least + min(ends_of), most + max(ends_of)
            ranges.append((least, most))
        full = list(range(taps))
        for window in windows:
            inside = [t for _, t in window]
            cells = [p * all_of + d for p, _ in window for d in range(all_of)] if groups == 1 else []
            window_marks, window_fixed = [marks[i] for i in cells], [fixed[i] for i in cells]
            for c, row in enumerate(rows):
                if groups > 1:
                    cells = [p * all_of + c for p, _ in window]
                    window_marks, window_fixed = [marks[i] for i in cells], [fixed[i] for i in cells]
                used = row if inside == full else [row[t * depth + d] for t in inside for d in range(depth)]
                base = self.bias[c] + sum(map(mul, used, window_fixed)) - zero * sum(used)
                yield Form(base, sum(map(mul, used, window_marks)), *ranges[c], self.functions[c])


class Rescaled(Layer):
    """QUANTIZE to another scale, and RELU and its kin as layers of their own."""

    def prepare(self) -> None:
        o, x = self.operator, self.network.model.tensors[self.operator.inputs[0]]
        if x.type != INT8:
            raise Refused(f"{self.name} of another type than int8")
        factor = multiplier(x.scales[0] / self.output.scales[0])
        function = Requantised(factor, self.output.zero, self.limits(_ACTIVATIONS.get(o.code, 0)))
        values = self.network.values(o.inputs[0])
        ends = [(v.low, v.high) if isinstance(v, Symbol) else (v, v) for v in values]
        low, high = min(e[0] for e in ends) - x.zero, max(e[1] for e in ends) - x.zero

        def forms() -> Iterator[Form]:
            for v in values:
                base, mark = (-x.zero, v.word.mark) if isinstance(v, Symbol) else (v - x.zero, 0)
                yield Form(base, mark, low, high, function)

        self.enter(forms())


class Average(Layer):
    """AVERAGE_POOL_2D."""

    def prepare(self) -> None:
        o, x = self.operator, self.network.model.tensors[self.operator.inputs[0]]
        if (x.scales, x.zero) != (self.output.scales, self.output.zero):
            raise Refused("a pool that changes the scale")
        kernel, limits = (o.option(4, "i"), o.option(3, "i")), self.limits(o.option(5))
        values, depth = self.network.values(o.inputs[0]), x.shape[3]

        def forms() -> Iterator[Form]:
            for window in self.network.windows(o, kernel, None):
                n = len(window)
                for c in range(depth):
                    cells = [values[p * depth + c] for p, _ in window]
                    base = sum(v for v in cells if isinstance(v, int))
                    mark = sum(v.word.mark for v in cells if isinstance(v, Symbol))
                    yield Form(base, mark, -128 * n, 127 * n, Mean(n, limits))

        self.enter(forms())


class Greatest(Layer):
    """MAX_POOL_2D."""

    def prepare(self) -> None:
        o, x = self.operator, self.network.model.tensors[self.operator.inputs[0]]
        limits = self.limits(o.option(5))
        if (x.scales, x.zero) != (self.output.scales, self.output.zero) or limits != (-128, 127):
            raise Refused("a pool that changes the scale, or has limits")
        values, depth = self.network.values(o.inputs[0]), x.shape[3]
        self.sets: list[frozenset[Value]] = []
        known: dict[frozenset[Value], Value] = {}
        for window in self.network.windows(o, (o.option(4, "i"), o.option(3, "i")), None):
            for c in range(depth):
                cells = frozenset(values[p * depth + c] for p, _ in window)
                if cells not in known:
                    known[cells] = self._of(len(self.sets), cells)
                self.values.append(known[cells])
                self.sets.append(cells)

    def _of(self, i: int, cells: frozenset[Value]) -> Value:
        low = max(v.low if isinstance(v, Symbol) else v for v in cells)
        high = max(v.high if isinstance(v, Symbol) else v for v in cells)
        if len(cells) == 1:
            return next(iter(cells))
        return low if low == high else self.symbol(i, low, high)


class Softmax(Layer):
    """SOFTMAX of rows, in fixed point.

    An output is a function of the element's difference to the greatest of its row, and of the sum of a
    function of all differences of the row, which has 12 integer bits.
    """

    def prepare(self) -> None:
        o, x = self.operator, self.network.model.tensors[self.operator.inputs[0]]
        if x.type != INT8 or self.output.zero != -128 or _float32(1 / 256) != self.output.scales[0]:
            raise Refused("a softmax of other types or scales")
        beta = o.options.number(0, "f") if o.options else 0
        factor = min(beta * x.scales[0] * (1 << 26), float((1 << 31) - 1))
        bits, exponent = multiplier(factor)
        if factor <= 1:
            raise Refused("a scale of softmax that small")
        self.key = bits, exponent
        least = -(31 * (1 << 26) // (1 << exponent))
        self.powers = [exponential(product(d << exponent, bits)) if d >= least else 0 for d in range(-255, 1)]
        """Powers by the difference; 0 for differences that do not count."""
        self.shares = [halved(p, 12) for p in self.powers]
        self.depth = x.shape[-1]
        values = self.network.values(o.inputs[0])
        if not all(isinstance(v, Symbol) for v in values):
            raise Refused("an input of softmax that is a number")
        elements = [v for v in values if isinstance(v, Symbol)]
        self.rows = [elements[i : i + self.depth] for i in range(0, len(elements), self.depth)]
        for number, row in enumerate(self.rows):
            first: dict[Symbol, Symbol] = {}
            for k, v in enumerate(row):
                self.values.append(first.setdefault(v, self.symbol(number * self.depth + k, -128, 127)))

    reciprocal = staticmethod(reciprocal)

    def result(self, d: int, scale: int, shift: int) -> int:
        """Return the output for a difference, and for a sum by ``scale``; it never falls with the scale."""
        power = self.powers[d + 255]
        return max(-128, min(127, halved(product(power, scale), shift) - 128)) if power else -128


class Network:
    """A model's layers, and the values of its tensors."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.layers = [self._layer(o) for o in model.operators]
        self.by_tensor = {layer.operator.outputs[0]: layer for layer in self.layers if layer.operator.outputs}
        self._values: dict[int, list[Value]] = {}
        for t in model.inputs:
            if model.tensors[t].type != INT8:
                raise Refused("an input that is not int8")
            self._values[t] = [Symbol(t, i, -128, 127) for i in range(model.tensors[t].size)]

    def _layer(self, o: Operator) -> Layer:
        kinds: dict[int, Callable[[Network, Operator], Layer]] = {
            _ADD: Addition, _AVERAGE: Average, _CONV: Weighted, _DEPTHWISE: Weighted, _DENSE: Weighted,
            _GREATEST: Greatest, _SOFTMAX: Softmax,
            19: Rescaled, 20: Rescaled, 21: Rescaled, 114: Rescaled,
        }  # fmt: skip
        return kinds.get(o.code, Layer)(self, o)

    def values(self, tensor: int) -> list[Value]:
        """Return the elements of a tensor. Raises ``Refused`` if its layer is not followed."""
        if tensor not in self._values:
            layer = self.by_tensor.get(tensor)
            if layer is None:
                raise Refused(f"tensor {tensor} is no layer's output")
            if layer.operator.code == _RESHAPE:
                layer.values = self.values(layer.operator.inputs[0])
            elif isinstance(layer, Addition | Weighted | Rescaled | Average | Greatest | Softmax):
                if layer.output.type != INT8:
                    raise Refused(f"an output of {layer.name} that is not int8")
                layer.prepare()
            else:
                raise Refused(f"layer {layer.operator.number}, {layer.name}, is not followed")
            self._values[tensor] = layer.values
        return self._values[tensor]

    def windows(
        self, o: Operator, kernel: tuple[int, int], dilations: int | None
    ) -> Iterator[list[tuple[int, int]]]:
        """Yield the cells of each window that are in the input: index in the image, index in the kernel."""
        _, height, width, _ = self.model.tensors[o.inputs[0]].shape
        _, rows, columns, _ = self.model.tensors[o.outputs[0]].shape
        same, across, down = o.option(0) == 0, o.option(1, "i"), o.option(2, "i")
        apart = (1, 1)
        if dilations is not None:
            apart = o.option(dilations + 1, "i", 1), o.option(dilations, "i", 1)
        top = _before(height, rows, kernel[0], down, apart[0]) if same else 0
        left = _before(width, columns, kernel[1], across, apart[1]) if same else 0
        for row in range(rows):
            for column in range(columns):
                window = []
                for a in range(kernel[0]):
                    for b in range(kernel[1]):
                        y, x = row * down - top + a * apart[0], column * across - left + b * apart[1]
                        if 0 <= y < height and 0 <= x < width:
                            window.append((y * width + x, a * kernel[1] + b))
                yield window


def _before(size: int, count: int, kernel: int, stride: int, apart: int) -> int:
    # Rows or columns of padding before the image.
    return max((count - 1) * stride + (kernel - 1) * apart + 1 - size, 0) // 2
