"""Maximum and minimum of int8 elements with the DSP extension, four at a time."""

from dataclasses import dataclass

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import operands
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.compare import Maximum, Minimum

__all__ = ["ExtremeView", "extreme"]


@dataclass(frozen=True, slots=True)
class ExtremeView:
    """Elements as ``words`` of four and ``rest`` single ones; ``select`` is the function for words.

    ``single`` is the index of the operand that is a single element, if there is one.
    """

    names: tuple[str, str]
    single: int | None
    words: int
    rest: int
    select: str
    sign: str


@design(Maximum, Minimum, types=(DType.INT8,), needs="dsp", weights=None)
def extreme(op: Maximum | Minimum, sig: Signature, target: Target) -> Kernel | None:
    sizes = [value.elements for value in sig.inputs]
    whole = [i for i, n in enumerate(sizes) if n == sig.y.elements]
    if len(whole) + sizes.count(1) < 2 or not whole:
        return None
    names, consts = operands(sig)
    single = next((i for i in range(2) if i not in whole), None)
    words, rest = divmod(sig.y.elements, 4)
    view = ExtremeView((names[0], names[1]), single, words, rest, f"crt_{op.name}4", op.sign)
    overlays = tuple(InPlace(input=i) for i in whole if not sig.inputs[i].is_constant)
    work = Work().block("word" if single is None else "word, single", words, words > 0)
    work.block("rest", rest, rest > 0)
    return Kernel(f"dsp {op.name}", "dsp/extreme.c.j2", view, consts, inplace=overlays, work=work)
