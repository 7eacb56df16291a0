"""Logistic and tanh of int16 with Helium: a table of values and one of differences, read by gather loads."""

from crtgen.compiler.kernels.asm import Function
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.mve.elements import ElementSteps, Operands, StoreForm, elementwise, spread, walk
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import INT16, Logistic, Tanh
from crtgen.network.ops.sigmoid16 import Sigmoid16Params, sigmoid_places

__all__ = ["SigmoidOf", "sigmoid"]


@design(Logistic, Tanh, types=(DType.INT16,), needs="mve")
def sigmoid(op: Logistic | Tanh, sig: Signature, target: Target) -> Kernel | None:
    p, logistic = op.parameters(sig), isinstance(op, Logistic)
    assert isinstance(p, Sigmoid16Params)
    places, slopes = sigmoid_places(logistic)
    consts = (
        Const.of("places", places, 2, "65536 / (1 + exp(-i / 24)), at the end what saturates"),
        Const.of("slopes", slopes, 2, "from each place to the next"),
    )

    def steps(o: Operands) -> ElementSteps:
        x = o.f.vector("arguments")
        apply = SigmoidOf(o.f, p, logistic, (o.tables[0], o.tables[1]))

        def vector() -> str:
            o.f("vldrh.s32", x, f"[{o.inputs[0]}], #8")
            apply(x)
            return x

        return ElementSteps(vector)

    form = StoreForm(INT16.limits, store="vstrh.32", step=8, bits=16)
    return elementwise(f"mve {op.name}", sig, target, walk(sig), steps, form, consts)


class SigmoidOf:
    """Computes results of four arguments, in words; the tables of values and slopes are in these registers.

    With a sign ``s`` of 0 or -1 the result is ``((y ^ s) - s + middle) >> shift``, rounded as in TFLite.
    """

    def __init__(self, f: Function, p: Sigmoid16Params, logistic: bool, tables: tuple[str, str]) -> None:
        self.f, self.p, self.logistic, self.tables = f, p, logistic, tables
        self.bits, self.shift = (9, 10) if logistic else (8, 8)
        self.spare = f.vectors("sign, place, value", 3)
        self.limit, self.between, self.other = f.vectors("last place; part; other", 3)
        spread(f, self.limit, 255)
        spread(f, self.between, (1 << self.bits) - 1)
        # what negative arguments of logistic have beside; half of the range of tanh
        spread(f, self.other, (1 << 25) - 1 if logistic else 1 << 23)
        self.factor = f.constant("multiplier", p.multiplier)
        self.middle = f.constant("middle", 512 if logistic else 128)

    def __call__(self, x: str) -> None:
        f, (places, slopes), (sign, place, value) = self.f, self.tables, self.spare
        f("vmul.i32", x, x, self.factor)
        if self.p.shift:
            f("vrshr.s32", x, x, f"#{self.p.shift}")
        f("vshr.s32", sign, x, "#31")
        f("vabs.s32", x, x)
        f("vshr.u32", place, x, f"#{self.bits}")
        f("vmin.u32", place, place, self.limit)
        f("vldrh.u32", value, f"[{slopes}, {place}, uxtw #1]")
        f("vand", x, x, self.between)
        f("vmul.i32", x, x, value)
        f("vldrh.u32", value, f"[{places}, {place}, uxtw #1]")
        f("vshl.i32", value, value, f"#{self.bits}")
        f("vadd.i32", x, x, value)
        if not self.logistic:
            f("vsub.i32", x, x, self.other)
        f("veor", x, x, sign)
        f("vsub.i32", x, x, sign)
        if self.logistic:
            f("vand", sign, sign, self.other)
        f("vadd.i32", x, x, sign)
        f("vadd.i32", x, x, self.middle)
        f("vshr.s32", x, x, f"#{self.shift}")

    def free(self) -> None:
        self.f.free(*self.spare, self.limit, self.between, self.other, self.factor, self.middle)
