"""Instructions that move, add, shift, extend and pack words, and logic."""

from collections.abc import Callable

from crtproof.core import CONDITIONS, PC, SHIFTS, SIZES, Core, Step
from crtproof.decoder import Instruction
from crtproof.values import (
    MASK,
    Halves,
    Op,
    Refused,
    Word,
)
from crtproof.words import (
    add,
    byte_of,
    chosen,
    greatest,
    half_of,
    is_pair,
    joined_fields,
    linear,
    masked,
    operation,
    packed,
    same,
    shifted,
    signed_byte,
    subtract,
    together,
    unsigned_byte,
    word_of_bytes,
)

__all__ = ["Arithmetic"]

# AND, BIC, ORR, ORN, EOR, ADD, ADC, SBC, SUB and RSB, by their numbers in 32-bit encodings.
_OPERATIONS = (0, 1, 2, 3, 4, 8, 10, 11, 13, 14)

# The second operand of a conditional select, if the condition does not hold.
_OTHERWISE: tuple[Callable[[Word], Word], ...] = (
    lambda w: w,
    lambda w: add(w, 1),
    lambda w: w ^ MASK if isinstance(w, int) else operation("mvn", w),
    lambda w: subtract(0, w),
)


class Arithmetic(Core):
    """Each method makes the function of an instruction with the method's name in ``decoder``."""

    def _arithmetic(self, o: int, a: Word, b: Word, s: int) -> Word:
        # The sum or difference of operation ``o``, with its flags.
        if o == 14:
            a, b, o = b, a, 13
        c: Word = {8: 0, 13: 1}.get(o, 0) if o in (8, 13) else self.carry()
        if o in (8, 10):
            kind, result = "add", add(a, b)
            if c != 0:
                result = _long_sum(a, b, c) or add(result, c)
        else:
            kind, result = "sub", self.difference(subtract(a, b))
            if o == 11:
                result = subtract(add(result, c), 1)
        if s:
            self.flags = kind, a, b, c
        return result

    def difference(self, w: Word) -> Word:
        """Give a difference its name, if it has one."""
        return w

    def _logical(self, o: int, a: Word, b: Word) -> Word:
        if o == 1 or o == 3:
            b = b ^ MASK if isinstance(b, int) else operation("mvn", b)
        if o in (0, 1):
            return (
                masked(a, b)
                if isinstance(b, int)
                else masked(b, a)
                if isinstance(a, int)
                else Op("and", (a, b))
            )
        return together(a, b) if o in (2, 3) else operation("eor", a, b)

    def _computed(self, f: dict[str, int], o: int, second: Callable[[], tuple[Word, Word]]) -> Step:
        r, s = self.r, f["s"]
        d = f["d"]
        n = f.get("n", d)
        if o not in _OPERATIONS:
            raise Refused("an encoding that is not defined")
        compares = d == PC and s == 1 and o in (0, 4, 8, 13)
        moves = n == PC and o in (2, 3)
        if (d == PC and not compares) or (n == PC and not moves):
            raise Refused("the program counter as an operand")

        def step() -> None:
            b, carry = second()
            a: Word = 0 if moves else r[n]
            if o in (8, 10, 11, 13, 14):
                result = self._arithmetic(o, a, b, s)
            else:
                result = b if moves and o == 2 else self._logical(o, a, b)
                if s:
                    self.flags = "result", result, 0, carry
            if not compares:
                self._set(d, result)

        return step

    def _data(self, i: Instruction, f: dict[str, int]) -> Step:
        r, m, unchanged = self.r, f["m"], self._old_carry
        return self._computed(f, f["o"], lambda: (r[m], unchanged()))

    def _old_carry(self) -> Word:
        try:
            return self.carry()
        except Refused:
            return 2  # not known

    def _data_i(self, i: Instruction, f: dict[str, int]) -> Step:
        number = f["i"] * f.get("q", 1)
        if f.get("n") == PC and f["o"] in (8, 13):
            address = (i.address + 4 & ~3) + (number if f["o"] == 8 else -number)
            return lambda: self._set(f["d"], address & MASK)
        return self._computed(f, f["o"], lambda: (number, self._old_carry()))

    def _data_m(self, i: Instruction, f: dict[str, int]) -> Step:
        number, f = _modified(f["i"]), {**f, "s": f["S"]}
        return self._computed(
            f, f["o"], lambda: (number, self._old_carry() if f["i"] < 1024 else number >> 31)
        )

    def _data_s(self, i: Instruction, f: dict[str, int]) -> Step:
        r, m, kind, n = self.r, f["m"], SHIFTS[f["t"]], f["i"]
        f = {**f, "s": f["S"]}
        if kind == "ror" and n == 0:
            raise Refused("an encoding that is not followed")
        if n == 0 and kind in ("lsr", "asr"):
            n = 32
        return self._computed(f, f["o"], lambda: _shift(kind, r[m], n, self._old_carry))

    def _move(self, i: Instruction, f: dict[str, int]) -> Step:
        r, d, m, s = self.r, f["d"], f["m"], f["s"]
        if m == PC:
            raise Refused("the program counter as an operand")
        if d == PC:
            return lambda: self._to(r[m])

        def step() -> None:
            self._set(d, r[m])
            if s:
                self.flags = "result", r[m], 0, self._old_carry()

        return step

    def _select(self, i: Instruction, f: dict[str, int]) -> Step:
        # CSEL, CSINC, CSINV and CSNEG, of which CSET, CINC and others are forms.
        r, n, m, name = self.r, f["n"], f["m"], CONDITIONS[f["c"]]
        otherwise = _OTHERWISE[f["o"]]

        def step() -> None:
            holds = self.holds(name)
            a, b = (0 if k == PC else r[k] for k in (n, m))
            b = otherwise(b)
            self._set(f["d"], (a if holds else b) if isinstance(holds, bool) else chosen(holds, a, b))

        return step

    def _move_w(self, i: Instruction, f: dict[str, int]) -> Step:
        return lambda: self._set(f["d"], f["j"] << 12 | f["i"])

    def _move_t(self, i: Instruction, f: dict[str, int]) -> Step:
        top = (f["j"] << 12 | f["i"]) << 16
        return lambda: self._set(f["d"], together(masked(self.r[f["d"]], 0xFFFF), top))

    def _address(self, i: Instruction, f: dict[str, int]) -> Step:
        return lambda: self._set(f["d"], (i.address + 4 & ~3) + 4 * f["i"])

    def _shift_i(self, i: Instruction, f: dict[str, int]) -> Step:
        r, kind, n, s = self.r, SHIFTS[f["t"]], f["i"] or 32, f["s"]

        def step() -> None:
            result, carry = _shift(kind, r[f["m"]], n, self._old_carry)
            self._set(f["d"], result)
            if s:
                self.flags = "result", result, 0, carry

        return step

    def _shift_r(self, i: Instruction, f: dict[str, int]) -> Step:
        r, kind, d, s = self.r, SHIFTS[f["t"]], f["d"], f["s"]
        n = f.get("n", d)

        def step() -> None:
            by = r[f["m"]]
            result: Word
            if isinstance(by, int):
                result, carry = _shift(kind, r[n], by & 255, self._old_carry)
            elif kind == "ror":
                raise Refused("a rotation by what depends on an input")
            else:
                result, carry = Op(f"{kind}r", (r[n], by)), 2
            self._set(d, result)
            if s:
                self.flags = "result", result, 0, carry

        return step

    def _extend(self, i: Instruction, f: dict[str, int]) -> Step:
        r, turn, bits, z = self.r, 8 * f["r"], SIZES[f["k"]], f["z"]
        return lambda: self._set(f["d"], _extended(shifted("ror", r[f["m"]], turn), bits, z))

    def _extend_add(self, i: Instruction, f: dict[str, int]) -> Step:
        r, turn, bits, z = self.r, 8 * f["r"], SIZES[f["k"]], f["z"]
        return lambda: self._set(f["d"], add(r[f["n"]], _extended(shifted("ror", r[f["m"]], turn), bits, z)))

    def _extended16(self, w: Word, turn: int, z: int) -> tuple[Word, Word]:
        form = signed_byte if z else unsigned_byte
        first = turn // 8
        return form(byte_of(w, first)), form(byte_of(w, first + 2 & 3))

    def _extend16(self, i: Instruction, f: dict[str, int]) -> Step:
        r, d, m, turn, z = self.r, f["d"], f["m"], 8 * f["r"], f["z"]

        def step() -> None:
            r[d] = packed(*self._extended16(r[m], turn, z))

        return step

    def _extend16_add(self, i: Instruction, f: dict[str, int]) -> Step:
        r, turn, z = self.r, 8 * f["r"], f["z"]

        def step() -> None:
            low, high = self._extended16(r[f["m"]], turn, z)
            w = r[f["n"]]
            self._set(f["d"], packed(add(half_of(w, 0), low), add(half_of(w, 1), high)))

        return step

    def _parallel(self, i: Instruction, f: dict[str, int]) -> Step:
        r, of = self.r, add if f["o"] == 8 else subtract

        def step() -> None:
            a, b = r[f["n"]], r[f["m"]]
            self.greater = None  # the flags that SEL reads are of this now
            self._set(f["d"], packed(of(half_of(a, 0), half_of(b, 0)), of(half_of(a, 1), half_of(b, 1))))

        return step

    def _difference8(self, i: Instruction, f: dict[str, int]) -> Step:
        r = self.r

        def step() -> None:
            a, b = r[f["n"]], r[f["m"]]
            self.greater = a, b
            parts = (subtract(signed_byte(byte_of(a, k)), signed_byte(byte_of(b, k))) for k in range(4))
            self._set(f["d"], word_of_bytes(tuple(byte_of(p, 0) for p in parts)))

        return step

    def _select8(self, i: Instruction, f: dict[str, int]) -> Step:
        r = self.r

        def step() -> None:
            a, b = r[f["n"]], r[f["m"]]
            if self.greater is None or not same(a, self.greater[0]) or not same(b, self.greater[1]):
                raise Refused("a choice of bytes that is no maximum")
            parts = (greatest(signed_byte(byte_of(a, k)), signed_byte(byte_of(b, k))) for k in range(4))
            self._set(f["d"], word_of_bytes(tuple(byte_of(p, 0) for p in parts)))

        return step

    def _pack(self, i: Instruction, f: dict[str, int]) -> Step:
        r, b, n = self.r, f["b"], f["i"]

        def step() -> None:
            moved, whole = r[f["m"]], r[f["n"]]
            if b:
                low = shifted("asr", moved, n) if n else operation("asr", moved, numbers=(31,))
                self._set(f["d"], packed(low, half_of(whole, 1)))
            else:
                self._set(f["d"], packed(whole, half_of(shifted("lsl", moved, n), 1)))

        return step

    def _field(self, i: Instruction, f: dict[str, int]) -> Step:
        r, low, width = self.r, f["i"], f["w"] + 1
        up = 32 - low - width
        if up < 0:
            raise Refused("a field that ends behind the word")
        kind = "asr" if f["z"] else "lsr"
        return lambda: self._set(f["d"], _field_of(r[f["n"]], low, width, kind, up))

    def _insert(self, i: Instruction, f: dict[str, int]) -> Step:
        r, low, width = self.r, f["i"], f["w"] - f["i"] + 1
        if width < 1:
            raise Refused("a field without bits")
        mask = (1 << width) - 1
        source = f["n"]

        def step() -> None:
            if source != PC and (joined := joined_fields(r[f["d"]], r[source], low, width)) is not None:
                self._set(f["d"], joined)
                return
            part: Word = 0 if source == PC else shifted("lsl", masked(r[source], mask), low)
            self._set(f["d"], together(masked(r[f["d"]], MASK ^ mask << low), part))

        return step

    def _saturate(self, i: Instruction, f: dict[str, int]) -> Step:
        r, z, n = self.r, f["z"], f["i"]
        name, bits, kind = ("ssat", f["w"] + 1, "asr") if z else ("usat", f["w"], "asr")
        if f["T"] and n == 0:
            raise Refused("a saturation of halfwords")
        kind = "asr" if f["T"] else "lsl"
        return lambda: self._set(f["d"], operation(name, shifted(kind, r[f["n"]], n), numbers=(bits,)))

    def _count_zeros(self, i: Instruction, f: dict[str, int]) -> Step:
        return lambda: self._set(f["d"], operation("clz", self.r[f["m"]]))


def _modified(i: int) -> int:
    # ThumbExpandImm.
    if i < 1024:
        byte = i & 255
        if not byte and i:
            raise Refused("a constant of 0 whose encoding is unpredictable")
        return (byte, byte << 16 | byte, byte << 24 | byte << 8, byte * 0x01010101)[i >> 8]
    byte, turn = 0x80 | i & 0x7F, i >> 7
    return (byte >> turn | byte << (32 - turn)) & MASK


def _shift(kind: str, w: Word, n: int, old: Callable[[], Word]) -> tuple[Word, Word]:
    # A word shifted by 0 to 255, and the carry; 2 for one that is not known.
    if n == 0:
        return w, old()
    if isinstance(w, int):
        carry = w >> n - 1 & 1 if kind != "lsl" else w >> 32 - n & 1 if n <= 32 else 0
        if kind == "asr" and n > 32:
            carry = w >> 31
        if kind == "ror":
            return shifted(kind, w, n & 31), w >> (n - 1 & 31) & 1
        if n > 31:
            return (MASK if kind == "asr" and w >> 31 else 0), carry
        return shifted(kind, w, n), carry
    if n > 31:
        if kind == "ror":
            raise Refused("a rotation by 32 or more")
        return (operation("asr", w, numbers=(31,)) if kind == "asr" else 0), 2
    return shifted(kind, w, n), operation("lsr", w, numbers=(31,)) if (kind, n) == ("lsl", 1) else 2


def _extended(w: Word, bits: int, z: int) -> Word:
    if bits == 8:
        return signed_byte(byte_of(w, 0)) if z else unsigned_byte(byte_of(w, 0))
    if z:
        return half_of(w, 0)
    x = linear(w) if not isinstance(w, Halves) else None
    if x is not None and x.low >= 0 and x.high <= 0xFFFF:
        return w
    return operation("uxth", w)


def _field_of(w: Word, low: int, width: int, kind: str, up: int) -> Word:
    if kind == "lsr":
        return masked(shifted("lsr", w, low), (1 << width) - 1)
    return shifted(kind, shifted("lsl", w, up), low + up)


def _long_sum(a: Word, b: Word, c: Word) -> Word | None:
    # The upper word of a long sum, and a word, and a carry of the lower one: that of a number that is added
    # to it, or its highest bit, which is the carry of half a unit.
    if isinstance(c, Op) and c.name == "lsr" and c.numbers == (31,):
        low, number = c.args[0], 1 << 31
    elif isinstance(c, Op) and c.name == "carry":
        low, other = c.args if isinstance(c.args[1], int) else reversed(c.args)
        if not isinstance(other, int):
            return None
        number = other
    else:
        return None
    for high, more in ((a, b), (b, a)):
        if isinstance(high, Op) and is_pair(low, high):
            return add(Op("long", high.args, (high.numbers[0] + number, 32)), more)
    return None
