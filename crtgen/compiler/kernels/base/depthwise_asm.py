"""Assembly of depthwise convolutions without the DSP extension: two adjacent outputs at a time.

An input that both outputs need is loaded once. The weights of a channel stay in registers, or on the stack on
a core with few registers.
"""

from dataclasses import dataclass

from crtgen.compiler.kernels.asm import HIGH, LISTED, LOW, Function, Routine, Writer
from crtgen.compiler.kernels.base.epilogue import Limbs, LongProducts
from crtgen.compiler.kernels.shared.ring import RingRow

__all__ = ["DepthwiseRow", "row_of_outputs"]

_END = 3  # the parameter that is kept


@dataclass(frozen=True, slots=True)
class DepthwiseRow(RingRow):
    epilogue: LongProducts | Limbs

    @property
    def narrow(self) -> bool:
        return isinstance(self.epilogue, Limbs)

    @property
    def taps(self) -> int:
        return self.taps_y * self.taps_x

    @property
    def tap_bytes(self) -> int:
        return -(-self.taps // 4) * 4

    @property
    def stream_words(self) -> int:
        return self.tap_bytes // 4 + 1 + self.epilogue.constants

    @property
    def turn(self) -> int:
        """Bytes from the end of a channel's last output to the first output of the next channel."""
        return self.width * self.channels - 1


def row_of_outputs(k: DepthwiseRow) -> Routine:
    """Write ``row(rows, y, weights, end)``, which computes a row of outputs.

    ``rows`` are the addresses of the input rows of its windows.
    """
    return (_NarrowDepthwise if k.narrow else _WideDepthwise).routine(k)


class _BaseDepthwiseWriter(Writer):
    # Common part of both: channels, pairs of outputs, and a single one at the end.
    def __init__(self, k: DepthwiseRow, local: int) -> None:
        self.k = k
        self.f = Function(
            "row",
            "const int8_t *const *rows",
            "int8_t *y",
            "const uint32_t *weights",
            "const uint32_t *end",
            purpose=f"A row of {k.width} outputs of {k.channels} channels.",
            keep=(_END,),
            local=local,
            narrow=k.narrow,
        )
        self.rows, self.y, self.weights, end = self.f.arguments
        self.f.free(end)

    def write(self) -> None:
        f, k = self.f, self.k
        self._begin()
        done = f.label("done")
        with f.loop("channels", k.channels) as again:
            self._channel()
            pairs = k.width // 2
            if pairs > 1:
                end = f.label("pairs end")
                with f.loop("pairs", pairs) as more:
                    self._outputs(2)
                    self._compare_place()
                    f("beq", end)
                    f("b", more)
                f.place(end)
            elif pairs:
                self._outputs(2)
            if k.width % 2:
                self._outputs(1)
            self._next_channel()
            f("beq", done)
            f("b", again)
        f.place(done)

    def _begin(self) -> None:
        raise NotImplementedError

    def _channel(self) -> None:
        raise NotImplementedError

    def _outputs(self, count: int) -> None:
        raise NotImplementedError

    def _compare_place(self) -> None:
        raise NotImplementedError

    def _next_channel(self) -> None:
        raise NotImplementedError


class _NarrowDepthwise(_BaseDepthwiseWriter):
    # For narrow instructions: weights are words on the stack, from [sp] on.
    def __init__(self, k: DepthwiseRow) -> None:
        super().__init__(k, k.taps)
        f = self.f
        self.place, self.row, self.input, self.factor = f.cores("place, row, input, weight", 4, LOW)
        self.second = f.core("second sum", LOW)
        self.pixel, self.end, self.to, self.channel = f.cores(
            "bytes of a pixel, where pairs end, y, channel", 4, HIGH
        )
        self.limits = f.cores("limits", 2, ("r12", "lr"))

    def _begin(self) -> None:
        f, k = self.f, self.k
        assert isinstance(k.epilogue, Limbs)
        f("mov", self.to, self.y)
        numbers = (k.epilogue.low, k.epilogue.high, k.channels, 0, k.width // 2 * 2 * k.stride * k.channels)
        for register, number in zip((*self.limits, self.pixel, self.channel, self.end), numbers, strict=True):
            f.number(self.row, number)
            f("mov", register, self.row)

    def _channel(self) -> None:
        f, k = self.f, self.k
        for tap in range(k.taps):
            f("ldrb", self.factor, f"[{self.weights}, #{tap}]")
            f("sxtb", self.factor, self.factor)
            f("str", self.factor, f"[sp, #{4 * tap}]")
        f("mov", self.place, self.channel)

    def _outputs(self, count: int) -> None:
        f, k = self.f, self.k
        sums = (self.y, self.second)[:count]
        f("ldr", sums[0], f"[{self.weights}, #{k.tap_bytes}]")
        for other in sums[1:]:
            f("mov", other, sums[0])
        for tap_row in range(k.taps_y):
            f("ldr", self.row, f"[{self.rows}, #{4 * tap_row}]")
            at = 0
            for column, met in k.columns(count, range(k.taps_x)).items():
                for _ in range(column - at):
                    f("add", self.row, self.pixel)
                at = column
                f("ldrsb", self.input, f"[{self.row}, {self.place}]")
                for output, tap in met:
                    f("ldr", self.factor, f"[sp, #{4 * (tap_row * k.taps_x + tap)}]")
                    f("muls", self.factor, self.input, self.factor)
                    f("adds", sums[output], sums[output], self.factor)
        assert isinstance(k.epilogue, Limbs)
        f("mov", self.factor, self.to)
        for total in sums:
            made = k.epilogue.append(f, total, (self.weights, k.tap_bytes + 4), (self.input, self.row))
            f("strb", made, f"[{self.factor}, #0]")
            f("add", self.factor, self.pixel)
        f("mov", self.to, self.factor)
        for _ in range(count * k.stride):
            f("add", self.place, self.pixel)

    def _compare_place(self) -> None:
        self.f("cmp", self.place, self.end)

    def _next_channel(self) -> None:
        f, k = self.f, self.k
        f.number(self.factor, k.turn)
        f("mov", self.row, self.to)
        f("subs", self.row, self.row, self.factor)
        f("mov", self.to, self.row)
        f("movs", self.factor, "#1")
        f("add", self.channel, self.factor)
        f("add", self.end, self.factor)
        f("adds", self.weights, self.weights, f"#{4 * k.stream_words}")
        f("ldr", self.factor, f.kept[_END])
        f("cmp", self.weights, self.factor)


class _WideDepthwise(_BaseDepthwiseWriter):
    # For MLA and SMULL: weights are in registers; all else but sums and one address is on the stack.
    def __init__(self, k: DepthwiseRow) -> None:
        assert isinstance(k.epilogue, LongProducts)
        names = ("y", "weights", "end", "start", *("multiplier", "constant", "shift")[: k.epilogue.constants])
        super().__init__(k, len(names) + k.taps_y)
        self.at = {name: f"[sp, #{4 * n}]" for n, name in enumerate(names)}
        self.at |= {f"row {n}": f"[sp, #{4 * (len(names) + n)}]" for n in range(k.taps_y)}
        f = self.f
        self.place, self.row, self.input = f.cores("place, row, input, then requantisation", 3, LISTED)

    def _begin(self) -> None:
        f, k = self.f, self.k
        f("str", self.y, self.at["y"])
        f("str", self.weights, self.at["weights"])
        for row in range(k.taps_y):
            f("ldr", self.row, f"[{self.rows}, #{4 * row}]")
            f("str", self.row, self.at[f"row {row}"])
        f.number(self.place, k.width // 2 * 2 * k.stride * k.channels)
        f("str", self.place, self.at["end"])
        f.free(self.rows, self.y, self.weights)
        self.sums = f.cores("sums", 2)
        self.taps = f.cores("weights", k.taps)
        f("mov", self.place, "#0")

    def _channel(self) -> None:
        f, k = self.f, self.k
        assert isinstance(k.epilogue, LongProducts)
        f("ldr", self.row, self.at["weights"])
        for tap, register in enumerate(self.taps):
            last = k.tap_bytes - k.taps + 1 if tap == k.taps - 1 else 1
            f("ldrsb", register, f"[{self.row}], #{last}")
        for name in ("start", "multiplier", "constant", "shift")[: 1 + k.epilogue.constants]:
            f("ldr", self.input, f"[{self.row}], #4")
            f("str", self.input, self.at[name])
        f("str", self.row, self.at["weights"])

    def _outputs(self, count: int) -> None:
        f, k = self.f, self.k
        assert isinstance(k.epilogue, LongProducts)
        sums = self.sums[:count]
        f("ldr", sums[0], self.at["start"])
        for other in sums[1:]:
            f("mov", other, sums[0])
        for tap_row in range(k.taps_y):
            f("ldr", self.row, self.at[f"row {tap_row}"])
            f("add", self.row, self.row, self.place)
            for column, met in k.columns(count, range(k.taps_x)).items():
                f("ldrsb", self.input, f"[{self.row}, #{column * k.channels}]")
                for output, tap in met:
                    weight = self.taps[tap_row * k.taps_x + tap]
                    f("mla", sums[output], self.input, weight, sums[output])
        for total in sums:
            k.epilogue.append_from(f, total, self.at, (self.row, self.input))
        f("ldr", self.row, self.at["y"])
        for number, total in enumerate(sums):
            f("strb", total, f"[{self.row}, #{number * k.channels}]")
        f("add", self.row, self.row, f"#{count * k.channels}")
        f("str", self.row, self.at["y"])
        f("add", self.place, self.place, f"#{count * k.stride * k.channels}")

    def _compare_place(self) -> None:
        f = self.f
        f("ldr", self.row, self.at["end"])
        f("cmp", self.place, self.row)

    def _next_channel(self) -> None:
        f, k = self.f, self.k
        f.advance(self.place, 1 - k.width * k.stride * k.channels, spare=self.row)
        for name, by in (("y", -k.turn), ("end", 1)):
            f("ldr", self.row, self.at[name])
            f.advance(self.row, by, spare=self.input)
            f("str", self.row, self.at[name])
        f("ldr", self.row, self.at["weights"])
        f("ldr", self.input, f.kept[_END])
        f("cmp", self.row, self.input)
