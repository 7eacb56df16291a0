"""The assembly of fully connected layers of one row without the DSP extension."""

from dataclasses import dataclass

from crtgen.compiler.kernels.asm import HIGH, LISTED, LOW, Function, Routine, Writer, listed
from crtgen.compiler.kernels.base.epilogue import Limbs, LongProducts

__all__ = ["BaseDense", "Sums", "some_outputs"]

_X, _Y, _END = 0, 2, 3  # parameters that are kept
_INPUTS_END, _TAKEN_OFF, _WEIGHTS = "[sp, #0]", "[sp, #4]", "[sp, #8]"
_ADDED = "[sp, #0]"
_SUMMED = 4  # inputs in a round
_LOW_SUMS = 4


@dataclass(frozen=True, slots=True)
class Sums:
    """Epilogue without requantisation: sums are stored as words."""

    narrow: bool


@dataclass(frozen=True, slots=True)
class BaseDense:
    """A layer of ``depth`` inputs times blocks of ``channels`` outputs; ``unroll`` inputs are unrolled.

    ``uniform``: all outputs share one requantisation, whose constants follow the last block. ``offset`` is
    added to all weights.
    """

    depth: int
    channels: int
    unroll: int
    epilogue: LongProducts | Limbs | Sums
    uniform: bool
    offset: int = 0

    @property
    def narrow(self) -> bool:
        return isinstance(self.epilogue, Limbs) or (isinstance(self.epilogue, Sums) and self.epilogue.narrow)

    @property
    def y_type(self) -> str:
        return "int32_t" if isinstance(self.epilogue, Sums) else "int8_t"

    @property
    def constants(self) -> int:
        return 0 if isinstance(self.epilogue, Sums) else self.epilogue.constants

    @property
    def weight_bytes(self) -> int:
        return -(-self.depth * self.channels // 4) * 4

    @property
    def block_words(self) -> int:
        each = 1 if self.uniform else 1 + self.constants
        return self.channels * each + self.weight_bytes // 4


def some_outputs(k: BaseDense) -> Routine:
    """Write ``outputs(x, weights, y, end)``, which computes the outputs with weights up to ``end``."""
    return (_NarrowDense if k.narrow else _WideDense).routine(k)


class _BaseDenseWriter(Writer):
    # Common part of both: blocks of outputs, rounds of inputs. ``input`` is a register.
    input: str

    def __init__(self, k: BaseDense, local: int) -> None:
        self.k = k
        self.f = Function(
            "outputs",
            "const int8_t *x",
            "const uint32_t *weights",
            f"{k.y_type} *y",
            "const uint32_t *end",
            purpose=f"Blocks of {k.channels} outputs, from `weights` to `end`.",
            keep=(_X, _Y, _END),
            local=local,
            narrow=k.narrow,
        )
        self.x, self.weights, y, end = self.f.arguments
        self.f.free(y, end)

    def write(self) -> None:
        f = self.f
        self._begin()
        done = f.label("done")
        with f.loop("blocks", "blocks") as again:
            self._start()
            self._products()
            if isinstance(self.k.epilogue, Sums):
                self._sums()
            else:
                self._outputs()
            f("ldr", self.input, f.kept[_END])
            f("cmp", self.weights, self.input)
            f("beq", done)
            f("b", again)
        f.place(done)

    def _begin(self) -> None:
        raise NotImplementedError

    def _start(self) -> None:
        raise NotImplementedError

    def _products(self) -> None:
        raise NotImplementedError

    def _outputs(self) -> None:
        # Requantise the sums, and store outputs.
        raise NotImplementedError

    def _sums(self) -> None:
        # Store the sums as they are.
        raise NotImplementedError


class _NarrowDense(_BaseDenseWriter):
    # For narrow instructions. LDRB has an offset and LDRSB has none, so weights are stored as ``w + 128``,
    # and 128 times the sum of all inputs is subtracted from the start values; less for an offset of weights.
    def __init__(self, k: BaseDense) -> None:
        super().__init__(k, 3)
        f = self.f
        self.input, self.factor = f.cores("input, weight, then requantisation", 2, LOW)
        low = f.cores("sums", min(k.channels, _LOW_SUMS), LOW)
        self.sums = (*low, *f.cores("sums", k.channels - len(low), HIGH))
        self.limits = f.cores("limits", 2, ("r12", "lr"))

    def _begin(self) -> None:
        f, k = self.f, self.k
        total, end = self.sums[0], self.factor
        if isinstance(k.epilogue, Limbs):
            for limit, number in zip(self.limits, (k.epilogue.low, k.epilogue.high), strict=True):
                f.number(self.input, number)
                f("mov", limit, self.input)
        f.number(end, k.depth // k.unroll * k.unroll)
        f("adds", end, end, self.x)
        f("str", end, _INPUTS_END)
        f("movs", total, "#0")
        rounds, left = divmod(k.depth, _SUMMED)
        if rounds:
            f.number(end, rounds * _SUMMED)
            f("adds", end, end, self.x)
            with f.loop("sum of inputs", rounds) as again:
                self._sum(total, _SUMMED)
                f("cmp", self.x, end)
                f("bne", again)
        self._sum(total, left)
        if k.offset:
            f.number(self.input, 128 - k.offset)
            f("muls", total, self.input, total)
        else:
            f("lsls", total, total, "#7")
        f("str", total, _TAKEN_OFF)

    def _sum(self, total: str, count: int) -> None:
        f = self.f
        for number in range(count):
            f("ldrb", self.input, f"[{self.x}, #{number}]")
            f("sxtb", self.input, self.input)
            f("adds", total, total, self.input)
        if count:
            f("adds", self.x, self.x, f"#{count}")

    def _start(self) -> None:
        f, k = self.f, self.k
        f("ldr", self.x, f.kept[_X])
        f("ldr", self.factor, _TAKEN_OFF)
        for number, total in enumerate(self.sums):
            f("ldr", self.input, f"[{self.weights}, #{4 * number}]")
            f("subs", self.input, self.input, self.factor)
            f("mov", total, self.input)
        f("adds", self.weights, self.weights, f"#{4 * k.channels}")

    def _products(self) -> None:
        f, k = self.f, self.k
        rounds, left = divmod(k.depth, k.unroll)
        if rounds > 1:
            with f.loop("inputs", rounds) as again:
                self._inputs(k.unroll)
                f("ldr", self.input, _INPUTS_END)
                f("cmp", self.x, self.input)
                f("bne", again)
        elif rounds:
            self._inputs(k.unroll)
        self._inputs(left)
        rest = k.weight_bytes - k.depth * k.channels
        if rest:
            f("adds", self.weights, self.weights, f"#{rest}")

    def _inputs(self, count: int) -> None:
        f, sums = self.f, self.sums
        for number in range(count):
            f("ldrb", self.input, f"[{self.x}, #{number}]")
            f("sxtb", self.input, self.input)
            for channel, total in enumerate(sums):
                f("ldrb", self.factor, f"[{self.weights}, #{number * len(sums) + channel}]")
                f("muls", self.factor, self.input, self.factor)
                if total in LOW:
                    f("adds", total, total, self.factor)
                else:
                    f("add", total, self.factor)
        if count:
            f("adds", self.x, self.x, f"#{count}")
            f("adds", self.weights, self.weights, f"#{count * len(sums)}")

    def _outputs(self) -> None:
        f, k = self.f, self.k
        assert isinstance(k.epilogue, Limbs)
        if k.uniform:
            f("str", self.weights, _WEIGHTS)
            f("ldr", self.weights, f.kept[_END])
        for number, total in enumerate(self.sums):
            f("mov", self.input, total)
            made = k.epilogue.append(f, self.input, (self.weights, 0), (self.factor, self.x))
            if not k.uniform:
                f("adds", self.weights, self.weights, f"#{4 * k.epilogue.constants}")
            f("ldr", self.x, f.kept[_Y])
            f("strb", made, f"[{self.x}, #{number}]")
        f("adds", self.x, self.x, f"#{k.channels}")
        f("str", self.x, f.kept[_Y])
        if k.uniform:
            f("ldr", self.weights, _WEIGHTS)

    def _sums(self) -> None:
        f = self.f
        f("ldr", self.x, f.kept[_Y])
        for number, total in enumerate(self.sums):
            if total not in LOW:
                f("mov", self.input, total)
            f("str", total if total in LOW else self.input, f"[{self.x}, #{4 * number}]")
        f("adds", self.x, self.x, f"#{4 * self.k.channels}")
        f("str", self.x, f.kept[_Y])


class _WideDense(_BaseDenseWriter):
    # For MLA and SMULL. With an offset of weights, the start values take in that times the sum of all inputs.
    def __init__(self, k: BaseDense) -> None:
        super().__init__(k, 1 if k.offset else 0)
        f = self.f
        self.input, self.factor = f.cores("input, weight, then requantisation", 2)
        self.sums = f.cores("sums", k.channels, LISTED)
        self.count = f.core("rounds left, then requantisation")

    def _begin(self) -> None:
        f, k = self.f, self.k
        if not k.offset:
            return
        total = self.sums[0]
        f("mov", total, "#0")
        rounds, left = divmod(k.depth, _SUMMED)
        if rounds:
            with f.counted_loop("sum of inputs", self.count, rounds):
                self._sum(total, _SUMMED)
        self._sum(total, left)
        f.number(self.input, k.offset)
        f("mul", total, total, self.input)
        f("str", total, _ADDED)

    def _sum(self, total: str, count: int) -> None:
        for _ in range(count):
            self.f("ldrsb", self.input, f"[{self.x}], #1")
            self.f("add", total, total, self.input)

    def _start(self) -> None:
        f = self.f
        f("ldr", self.x, f.kept[_X])
        f("ldm", f"{self.weights}!", listed(self.sums))
        if self.k.offset:
            f("ldr", self.input, _ADDED)
            for total in self.sums:
                f("add", total, total, self.input)

    def _products(self) -> None:
        f, k = self.f, self.k
        rounds, left = divmod(k.depth, k.unroll)
        if rounds > 1:
            with f.counted_loop("inputs", self.count, rounds):
                self._inputs(k.unroll)
        elif rounds:
            self._inputs(k.unroll)
        self._inputs(left)
        f.advance(self.weights, k.weight_bytes - k.depth * k.channels)

    def _inputs(self, count: int) -> None:
        f = self.f
        for _ in range(count):
            f("ldrsb", self.input, f"[{self.x}], #1")
            for total in self.sums:
                f("ldrsb", self.factor, f"[{self.weights}], #1")
                f("mla", total, self.input, self.factor, total)

    def _outputs(self) -> None:
        f, k = self.f, self.k
        assert isinstance(k.epilogue, LongProducts)
        base = self.weights
        if k.uniform:
            base = self.count
            f("ldr", base, f.kept[_END])
        places = {name: f"[{base}, #{4 * n}]" for n, name in enumerate(("multiplier", "constant", "shift"))}
        for total in self.sums:
            k.epilogue.append_from(f, total, places, (self.input, self.factor))
            if not k.uniform:
                f("add", self.weights, self.weights, f"#{4 * k.epilogue.constants}")
        f("ldr", self.x, f.kept[_Y])
        for number, total in enumerate(self.sums):
            f("strb", total, f"[{self.x}, #{number}]")
        f("add", self.x, self.x, f"#{k.channels}")
        f("str", self.x, f.kept[_Y])

    def _sums(self) -> None:
        f = self.f
        f("ldr", self.x, f.kept[_Y])
        f("stm", f"{self.x}!", listed(self.sums))
        f("str", self.x, f.kept[_Y])
