"""Instructions that multiply and divide; sums of 64 bits in two registers."""

from crtproof.arithmetic import Arithmetic
from crtproof.core import PC, Step
from crtproof.decoder import Instruction
from crtproof.values import (
    Linear,
    Op,
    Refused,
    Word,
    signed,
)
from crtproof.words import (
    add,
    half_of,
    is_pair,
    linear,
    multiply,
    multiply_add,
    operation,
)

__all__ = ["Products"]


class Products(Arithmetic):
    """Products of words, of halves, and of both halves at once."""

    def _multiply(self, i: Instruction, f: dict[str, int]) -> Step:
        r, d = self.r, f["d"]
        n, s = f.get("n", d), f["s"]

        def step() -> None:
            self._set(d, multiply(r[n], r[f["m"]]))
            if s:
                self.flags = "result", r[d], 0, self._old_carry()

        return step

    def _multiply_add(self, i: Instruction, f: dict[str, int]) -> Step:
        r, d, n, m, a, sign = self.r, f["d"], f["n"], f["m"], f["a"], f["f"]
        return lambda: self._set(d, multiply_add(r[a], r[n], r[m], sign))

    def _multiply_16(self, i: Instruction, f: dict[str, int]) -> Step:
        r, a = self.r, f["a"]

        def step() -> None:
            x, y = half_of(r[f["n"]], f["N"]), half_of(r[f["m"]], f["M"])
            self._set(f["d"], multiply_add(0 if a == PC else r[a], x, y))

        return step

    def _multiply_2(self, i: Instruction, f: dict[str, int]) -> Step:
        r, d, n, m, a = self.r, f["d"], f["n"], f["m"], f["a"]
        x, sign = f["X"], f["f"]

        def step() -> None:
            u, v = r[n], r[m]
            first = multiply_add(0 if a == PC else r[a], half_of(u, 0), half_of(v, x))
            r[d] = multiply_add(first, half_of(u, 1), half_of(v, 1 - x), sign)

        return step

    def _multiply_w(self, i: Instruction, f: dict[str, int]) -> Step:
        r, a = self.r, f["a"]

        def step() -> None:
            product = Op("long", (r[f["n"]], half_of(r[f["m"]], f["M"])), (0, 16))
            made = operation("long", *product.args, numbers=product.numbers)
            self._set(f["d"], made if a == PC else add(r[a], made))

        return step

    def _multiply_hi(self, i: Instruction, f: dict[str, int]) -> Step:
        r, a, half = self.r, f["a"], f["R"] << 31

        def step() -> None:
            x, y = r[f["n"]], r[f["m"]]
            made = operation("long", x, y, numbers=(half, 32))
            self._set(f["d"], made if a == PC else add(r[a], made))

        return step

    def _multiply_l(self, i: Instruction, f: dict[str, int]) -> Step:
        r, z, adds = self.r, f["z"], f["a"]

        def step() -> None:
            x, y = r[f["n"]], r[f["m"]]
            if z and self._fields(f, x, y):
                return
            number: int = 0
            args: tuple[Word, ...] = (x, y)
            if not z:
                found = _unsigned_product(x, y)
                if found is None:
                    self._unsigned(f, x, y)
                    return
                number, args = found
            if adds:
                low, high = r[f["v"]], r[f["d"]]
                if isinstance(low, int) and isinstance(high, int):
                    number += signed(high) << 32 | low
                elif is_pair(low, high) and isinstance(high, Op):
                    number, args = number + high.numbers[0], (*high.args, *args)
                elif isinstance(low, Linear) and _is_sign(high, low):
                    args = low, 1, *args
                else:
                    raise Refused("a long sum of what is no long sum")
            self._set(f["v"], operation("long", *args, numbers=(number, 0)))
            self._set(f["d"], operation("long", *args, numbers=(number, 32)))

        return step

    def _unsigned(self, f: dict[str, int], x: Word, y: Word) -> None:
        if f["a"]:
            raise Refused("a long sum of an unsigned product of what may be negative")
        self._set(f["v"], operation("ulong", x, y, numbers=(0,)))
        self._set(f["d"], operation("ulong", x, y, numbers=(32,)))

    def _fields(self, f: dict[str, int], x: Word, y: Word) -> bool:
        # A long sum of a sum and a number, which may hold several sums in fields of its bits.
        r = self.r
        if isinstance(x, int):
            x, y = y, x
        factor = linear(x)
        if factor is None or not isinstance(y, int) or factor.low < -(1 << 31) or factor.high >> 31 > 0:
            return False
        total = factor.times(signed(y))
        if f["a"]:
            low, high = r[f["v"]], r[f["d"]]
            if isinstance(low, int) and isinstance(high, int):
                if isinstance(x, int):
                    return False
                total = total.plus(signed(high) << 32 | low)
            elif isinstance(high, Op) and high.name == "field" and high.args[0] is low:
                assert isinstance(low, Linear)
                total = low.added(total)
            else:
                return False
        elif isinstance(x, int):
            return False
        self._set(f["v"], total)
        self._set(f["d"], Op("field", (total,), (32,)))
        return True

    def _divide(self, i: Instruction, f: dict[str, int]) -> Step:
        name = "sdiv" if f["z"] else "udiv"
        return lambda: self._set(f["d"], operation(name, self.r[f["n"]], self.r[f["m"]]))


def _unsigned_product(x: Word, y: Word) -> tuple[int, tuple[Word, ...]] | None:
    # The number and the factors of a product of two unsigned words, if a signed product is the same.
    if isinstance(x, int) and isinstance(y, int):
        return x * y, ()
    for number, w in ((x, y), (y, x)):
        n = linear(w)
        if (
            isinstance(number, int)
            and number >> 31 == 0
            and n is not None
            and n.low >= 0
            and n.high >> 31 == 0
        ):
            return 0, (w, number)
    return None


def _is_sign(high: Word, low: Word) -> bool:
    return isinstance(high, Op) and high.name == "asr" and high.numbers == (31,) and high.args[0] is low
