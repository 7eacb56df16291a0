"""Multiplications, of 32 bits to one word and to two."""

from crtgen.proof.checker.algebra.long_sums import as_long, long_words
from crtgen.proof.checker.algebra.meaning import apply
from crtgen.proof.checker.algebra.value import M32, LinearSum, Word, WordOp, signed
from crtgen.proof.checker.algebra.words import add, halves_of, mac, mul, shifted
from crtgen.proof.checker.binary.image import DecodedInstruction
from crtgen.proof.checker.core.instructions.registry import family
from crtgen.proof.checker.core.machine import Machine, Step
from crtgen.proof.checker.core.operands import number, register
from crtgen.proof.checker.refusal import Refusal

__all__ = ["with_product"]


@family("mul", "muls", "mla", "mls")
def multiply(m: Machine, i: DecodedInstruction) -> Step:
    q = (i.operands[0], *i.operands) if len(i.operands) == 2 else i.operands
    d, x, y = register(q[0]), register(q[1]), register(q[2])
    acc, factor, r = register(q[3]) if len(q) > 3 else None, -1 if i.name == "mls" else 1, m.r

    def step() -> None:
        product = _times(m, r[x], r[y])
        r[d] = product if acc is None else add(r[acc], product, factor)
        if i.name == "muls":
            m.set_sign(r[d])

    return step


def _times(m: Machine, u: Word, v: Word) -> Word:
    # A product, of two symbols as a sum where the network has sums of these.
    return _symbols(m, u, v) or mul(u, v)


def _symbols(m: Machine, u: Word, v: Word) -> LinearSum | None:
    return m.products.product(u, v) if m.products is not None else None


@family("smull", "umull")
def long_multiply(m: Machine, i: DecodedInstruction) -> Step:
    low, high, x, y = (register(q) for q in i.operands)
    r, is_signed = m.r, i.name[0] == "s"

    def step() -> None:
        if m.ends_early:
            m.varies("a long product", r[x], r[y])
        made = _symbols(m, r[x], r[y]) if is_signed else None
        words = long_words(made) if made is not None else None
        r[low], r[high] = words or _product(r[x], r[y], is_signed)

    return step


@family("smlal", "umlal")
def long_accumulate(m: Machine, i: DecodedInstruction) -> Step:
    low, high, x, y = (register(q) for q in i.operands)
    r, is_signed = m.r, i.name[0] == "s"

    def step() -> None:
        if m.ends_early:
            m.varies("a long product", r[x], r[y])
        made = _symbols(m, r[x], r[y]) or _product_of_sum(r[x], r[y]) if is_signed else None
        if made is not None:
            together = _accumulated((r[low], r[high]), made)
            if together is not None:
                r[low], r[high] = together
                return
        least, most = _product(r[x], r[y], is_signed)
        carry = apply("carry", r[low], least, 0)
        r[low], r[high] = add(r[low], least), add(add(r[high], most), carry)

    return step


def _product_of_sum(u: Word, v: Word) -> LinearSum | None:
    # The product of a number and another one, or a sum that keeps to 32 bits.
    if isinstance(u, int):
        u, v = v, u
    if not isinstance(v, int):
        return None
    if isinstance(u, int):
        return LinearSum(signed(u) * signed(v), {})
    if not isinstance(u, LinearSum):
        return None
    least, most = u.bounds()
    if least < -(1 << 31) or most >= 1 << 31:
        return None
    return LinearSum(u.constant * signed(v), None, (None, u, signed(v)))


def _accumulated(to: tuple[Word, Word], product: LinearSum) -> tuple[Word, Word] | None:
    before = as_long(*to)
    if before is None:
        return None
    return long_words(LinearSum(before.constant + product.constant, None, (before, product, 1)))


@family("smlald", "smlaldx", "smlalbb", "smlalbt", "smlaltb", "smlaltt")
def long_products_of_halves(m: Machine, i: DecodedInstruction) -> Step:
    low, high, x, y = (register(q) for q in i.operands)
    crossed = i.name.endswith("x")
    which = ((0, crossed), (1, 1 - crossed)) if "d" in i.name else ((i.name[5] == "t", i.name[6] == "t"),)

    def step() -> None:
        u, v = halves_of(m.r[x]), halves_of(m.r[y])
        words = m.r[low], m.r[high]
        for a, b in which:
            words = with_product(m, words, u[a], v[b])
        m.r[low], m.r[high] = words

    return step


def with_product(m: Machine, words: tuple[Word, Word], u: Word, v: Word) -> tuple[Word, Word]:
    """Add the product of two halfwords, each as a word, to a number of 64 bits."""
    before = as_long(*words)
    symbols = _symbols(m, u, v)
    made: Word | None = None
    if before is not None:
        made = mac(before, u, v)
        if symbols is not None:
            made = LinearSum(before.constant + symbols.constant, None, (before, symbols, 1))
    together = long_words(made) if isinstance(made, LinearSum) else None
    if together is not None:
        return together
    product = mul(u & M32 if isinstance(u, int) else u, v & M32 if isinstance(v, int) else v)
    low, high = words
    carry = apply("carry", low, product, 0)
    return add(low, product), add(add(high, shifted("asr", product, 31)), carry)


def _product(u: Word, v: Word, is_signed: bool) -> tuple[Word, Word]:
    # The lower and the upper word.
    if isinstance(u, int) and isinstance(v, int):
        p = signed(u) * signed(v) if is_signed else u * v
        return p & M32, p >> 32 & M32
    return WordOp("mul", u, v), WordOp("smulhi" if is_signed else "umulhi", u, v)


@family("smmla", "smmlar", "smmul", "smmulr", "smmls")
def most_significant(m: Machine, i: DecodedInstruction) -> Step:
    q = i.operands
    d, x, y, acc = register(q[0]), register(q[1]), register(q[2]), register(q[3]) if len(q) > 3 else None
    name = {"smmul": "smmla", "smmulr": "smmlar"}.get(i.name, i.name)

    def step() -> None:
        m.r[d] = apply(name, m.r[x], m.r[y], 0 if acc is None else m.r[acc])

    return step


@family("smlawb", "smlawt", "smulwb", "smulwt")
def word_by_half(m: Machine, i: DecodedInstruction) -> Step:
    q = i.operands
    d, x, y, acc = register(q[0]), register(q[1]), register(q[2]), register(q[3]) if len(q) > 3 else None
    top = i.name[-1] == "t"

    def step() -> None:
        half = halves_of(m.r[y])[top]
        product = apply("mulw", m.r[x], half & M32 if isinstance(half, int) else half)
        m.r[d] = product if acc is None else add(m.r[acc], product)

    return step


@family("ssat", "usat")
def saturate(m: Machine, i: DecodedInstruction) -> Step:
    d, width, x = register(i.operands[0]), number(i.operands[1]), register(i.operands[2])
    kind, _, amount = i.operands[3].partition(" #") if len(i.operands) > 3 else ("lsl", "", "0")
    if kind not in ("lsl", "asr"):
        raise Refusal("a shift that saturation does not have")

    def step() -> None:
        m.r[d] = apply(i.name, width, shifted(kind, m.r[x], int(amount)))

    return step


@family("udiv", "sdiv")
def divide(m: Machine, i: DecodedInstruction) -> Step:
    q = (i.operands[0], *i.operands) if len(i.operands) == 2 else i.operands
    d, x, y = (register(n) for n in q)

    def step() -> None:
        v = m.r[y]
        if not isinstance(v, int) or v == 0:
            raise Refusal("a division by what depends on an input, or by 0")
        m.varies("a division", m.r[x])
        m.r[d] = apply(i.name, m.r[x], v)

    return step
