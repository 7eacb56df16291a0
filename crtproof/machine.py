"""A core that runs code on words, some of which depend on inputs.

Registers and memory hold words (``values``); the program counter is always a number. Control flow must not
depend on inputs, and neither may addresses, except those of loads from constant tables. A conditional
instruction whose condition depends on inputs chooses between the old and the new register.

Each instruction is compiled to a Python function when it is first reached. A function returns the address of
the next instruction, or None for the one that follows.
"""

from collections.abc import Callable

from crtproof.decoder import Instruction, decode
from crtproof.elf import Image
from crtproof.memory import Memory
from crtproof.values import (
    MASK,
    RETURN_ADDRESS,
    STACK_TOP,
    Halves,
    Linear,
    Op,
    P,
    Refused,
    Word,
    place_of,
    signed,
    stack_word,
    unknown,
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
    multiply,
    multiply_add,
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

__all__ = ["Machine"]

Step = Callable[[], int | None]

SP, LR, PC = 13, 14, 15
_RETURNED = -1
"""Program counter once the function has returned."""

_SHIFTS = ("lsl", "lsr", "asr", "ror")
_CONDITIONS = ("eq", "ne", "cs", "cc", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le", "al")
_SIZES = (8, 16, 32)
# AND, BIC, ORR, ORN, EOR, ADD, ADC, SBC, SUB and RSB, by their numbers in 32-bit encodings.
_OPERATIONS = (0, 1, 2, 3, 4, 8, 10, 11, 13, 14)
# Instructions that may have the stack pointer as their result, or none.
_WITH_STACK = ("data", "data_i", "data_m", "data_s", "move")


class Machine:
    """A core with an image. ``count`` is how many instructions it has run."""

    def __init__(self, image: Image, memory: Memory, seen: Callable[[int, int], None]) -> None:
        self.image, self.memory, self.seen = image, memory, seen
        self.r: list[Word] = [unknown() for _ in range(16)]
        self.flags: tuple[str, Word, Word, Word] = ("none", 0, 0, 0)
        """Origin of the flags: ``sub`` a - b - 1 + c, ``add`` a + b + c, or ``result`` a with the carry c."""
        self.block: list[str] = []
        """Conditions of the instructions of an IT block that are to come."""
        self.greater: tuple[Word, Word] | None = None
        """Operands of SSUB8, which SEL chooses by."""
        self.calls: list[tuple[int, int, list[Word]]] = []
        """Open calls: return address, number of the instruction that called, r4 to r11 and SP."""
        self.returned: list[Word] | None = None
        """What registers have to be after the instruction, if it returned from a call."""
        self.count = 0
        self.lowest = 0
        self._steps: dict[tuple[int, bool], tuple[Step, int]] = {}

    def call(self, entry: int, room: int, most: int) -> None:
        """Run the function at ``entry`` to its return.

        It may use ``room`` bytes of stack, and run ``most`` instructions.
        """
        self.r[SP], self.r[LR], self.lowest = stack_word(0), RETURN_ADDRESS, STACK_TOP
        self.memory.below = range(STACK_TOP - room, STACK_TOP)
        kept, pc, sp = self.r[4:12], entry & ~1, self.r[SP]
        while pc != _RETURNED:
            if self.count >= most:
                raise Refused("more instructions than expected")
            pc = self.one(pc)
            if self.r[SP] is not sp:
                sp = self.r[SP]
                self.memory.move(self._stack_pointer())
        if place_of(self.r[SP]) != STACK_TOP or any(
            a is not b for a, b in zip(kept, self.r[4:12], strict=True)
        ):
            raise Refused("the function changes a register that it has to keep")

    def one(self, pc: int) -> int:
        """Run an instruction, and return the address of the next one."""
        key = pc, bool(self.block)
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = self.compiled(pc)
        self.count += 1
        try:
            to = self._conditional(*step) if self.block else step[0]()
        except Refused as refused:
            raise Refused(f"at {pc:#x}: {refused}") from None
        if self.returned is not None:
            self._check_return(self.returned)
        return step[1] if to is None else to

    def _check_return(self, kept: list[Word]) -> None:
        # Each function keeps r4 to r11, and gives the stack back (Procedure Call Standard, 6.1.1).
        self.returned = None
        same_stack = place_of(self.r[SP]) == place_of(kept[-1])
        if not same_stack or any(a is not b for a, b in zip(kept[:-1], self.r[4:12], strict=True)):
            raise Refused("a function changes a register that it has to keep")

    def _stack_pointer(self) -> int:
        sp = place_of(self.r[SP])
        if sp is None or sp & 3:
            raise Refused("a stack pointer that depends on an input, or is not aligned")
        return sp

    def compiled(self, pc: int) -> tuple[Step, int]:
        """Return the function that runs an instruction, and the address of the following one."""
        first, second = self.image.constant(pc, 2), self.image.constant(pc + 2, 2)
        if first is None:
            raise Refused(f"there is no code at {pc:#x}")
        i = decode(pc, first, second)
        f = dict(i.fields)
        if f.get("s") == 1 and i.following - pc == 2:
            f["s"] = 0 if self.block and not f.get("c") else 1
        make = getattr(self, f"_{i.name}", None)
        if make is None:
            raise Refused(f"{i.name} at {pc:#x} is not followed")
        if f.get("d") in (SP, PC) and i.name not in _WITH_STACK:
            raise Refused(f"{i.name} of the stack pointer or the program counter at {pc:#x}")
        if i.following - pc == 4 and _is_unpredictable(i.name, f):
            raise Refused(f"an unpredictable {i.name} at {pc:#x}")
        step: Step = make(i, f)
        return step, i.following

    def _conditional(self, step: Step, following: int) -> int | None:
        condition = self.holds(self.block.pop(0))
        if condition is True:
            return step()
        if condition is False:
            return following
        before, flags, stores = list(self.r), (self.flags, self.greater), self.memory.stores
        to = step()
        if (
            to is not None
            or self.flags is not flags[0]
            or self.greater is not flags[1]
            or self.memory.stores != stores
        ):
            raise Refused("a condition that depends on an input, of more than registers")
        assert isinstance(condition, Op)
        for n, old in enumerate(before):
            if self.r[n] is not old:
                self.r[n] = chosen(condition, self.r[n], old)
        return None

    # ---- flags and conditions

    def holds(self, name: str) -> bool | Op:
        """Return True or False for a condition, or the word that decides it."""
        if name == "al":
            return True
        positive = name in ("eq", "cs", "mi", "vs", "hi", "ge", "gt")
        base = name if positive else {"ne": "eq", "cc": "cs", "pl": "mi", "vc": "vs", "ls": "hi", "lt": "ge",
                                      "le": "gt"}[name]  # fmt: skip
        kind, a, b, c = self.flags
        places = place_of(a), place_of(b)
        if kind == "sub" and c == 1 and base in ("eq", "cs", "hi") and min(p or 0 for p in places) > MASK:
            a, b = (p or 0 for p in places)  # two places in the stack, which does not wrap
            return {"eq": a == b, "cs": a >= b, "hi": a > b}[base] == positive
        if isinstance(a, int) and isinstance(b, int) and isinstance(c, int) and kind != "none":
            return self._known(base, kind, a, b, c) == positive
        if kind == "sub" and c == 1 and base in ("eq", "cs", "hi", "ge", "gt"):
            decided = operation(base, a, b)
        elif kind in ("sub", "result") and base == "eq" and (kind == "result" or c == 1):
            decided = operation("eq", a, b)
        elif kind in ("sub", "result") and base == "mi" and (b == 0 or kind == "result"):
            decided = operation("gt", 0, a)
        else:
            raise Refused(f"the condition {name} depends on an input in a way that is not followed")
        if not positive:
            negated = isinstance(decided, Op) and decided.name in ("ge", "gt")
            decided = (
                operation("gt" if decided.name == "ge" else "ge", *reversed(decided.args))
                if negated and isinstance(decided, Op)
                else operation("eq", decided, 0)
            )
        return bool(decided) if isinstance(decided, int) else decided if isinstance(decided, Op) else False

    @staticmethod
    def _known(base: str, kind: str, a: int, b: int, c: int) -> bool:
        if kind == "result":
            n, z, carry, v = a >> 31, a == 0, c, 0
            if base not in ("eq", "mi", "cs") or (base == "cs" and c > 1):
                raise Refused("an overflow flag of a logical operation")
        else:
            other = b if kind == "add" else ~b & MASK
            total, exact = a + other + c, signed(a) + signed(other) + c
            result = total & MASK
            n, z, carry, v = result >> 31, result == 0, total >> 32, int(signed(result) != exact)
        values = {"eq": z, "cs": carry == 1, "mi": n == 1, "vs": v == 1, "hi": carry == 1 and not z,
                  "ge": n == v, "gt": n == v and not z}  # fmt: skip
        return bool(values[base])

    def carry(self) -> Word:
        kind, a, b, c = self.flags
        if kind == "result" and c != 2:
            return c
        if kind == "none" or kind == "result":
            raise Refused("a carry that is not followed")
        if isinstance(a, int) and isinstance(b, int) and isinstance(c, int):
            return a + (b if kind == "add" else ~b & MASK) + c >> 32
        if kind == "sub" and c == 1:
            return operation("cs", a, b)
        if kind == "add" and c == 0:
            return Op("carry", (a, b))
        raise Refused("a carry that is not followed")

    def _set(self, n: int, w: Word) -> None:
        if n == SP:
            self.r[n] = w
            place = self._stack_pointer()
            self.lowest = min(self.lowest, place)
            if place < self.memory.below.stop:
                self.memory.move(place)
        if n == PC:
            raise Refused("a computed jump")
        self.r[n] = w

    # ---- moves, arithmetic, logic

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
            kind, result = "sub", subtract(a, b)
            if o == 11:
                result = subtract(add(result, c), 1)
        if s:
            self.flags = kind, a, b, c
        return result

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
        r, m, kind, n = self.r, f["m"], _SHIFTS[f["t"]], f["i"]
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

    def _move_w(self, i: Instruction, f: dict[str, int]) -> Step:
        return lambda: self._set(f["d"], f["j"] << 12 | f["i"])

    def _move_t(self, i: Instruction, f: dict[str, int]) -> Step:
        top = (f["j"] << 12 | f["i"]) << 16
        return lambda: self._set(f["d"], together(masked(self.r[f["d"]], 0xFFFF), top))

    def _address(self, i: Instruction, f: dict[str, int]) -> Step:
        return lambda: self._set(f["d"], (i.address + 4 & ~3) + 4 * f["i"])

    def _shift_i(self, i: Instruction, f: dict[str, int]) -> Step:
        r, kind, n, s = self.r, _SHIFTS[f["t"]], f["i"] or 32, f["s"]

        def step() -> None:
            result, carry = _shift(kind, r[f["m"]], n, self._old_carry)
            self._set(f["d"], result)
            if s:
                self.flags = "result", result, 0, carry

        return step

    def _shift_r(self, i: Instruction, f: dict[str, int]) -> Step:
        r, kind, d, s = self.r, _SHIFTS[f["t"]], f["d"], f["s"]
        n = f.get("n", d)

        def step() -> None:
            by = r[f["m"]]
            if not isinstance(by, int):
                raise Refused("a shift by what depends on an input")
            result, carry = _shift(kind, r[n], by & 255, self._old_carry)
            self._set(d, result)
            if s:
                self.flags = "result", result, 0, carry

        return step

    def _extend(self, i: Instruction, f: dict[str, int]) -> Step:
        r, turn, bits, z = self.r, 8 * f["r"], _SIZES[f["k"]], f["z"]
        return lambda: self._set(f["d"], _extended(shifted("ror", r[f["m"]], turn), bits, z))

    def _extend_add(self, i: Instruction, f: dict[str, int]) -> Step:
        r, turn, bits, z = self.r, 8 * f["r"], _SIZES[f["k"]], f["z"]
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

    # ---- products

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
                number, args = _unsigned_product(x, y)
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

    # ---- loads and stores

    def _place(self, f: dict[str, int]) -> Callable[[], Word]:
        # The address of an access, and the base register as it is afterwards.
        r, n, offset = self.r, f["n"], f["i"] * f.get("q", 1)
        if "x" not in f:
            return lambda: add(r[n], offset)
        before, back = f["p"], f["w"]
        offset = offset if f["u"] else -offset
        if not before and not back:
            raise Refused("an unprivileged access")

        def place() -> Word:
            moved = add(r[n], offset & MASK)
            at = moved if before else r[n]
            if back:
                self._set(n, moved)
            return at

        return place

    def _loaded(self, a: Word, bits: int, z: int) -> Word:
        place = place_of(a)
        if place is not None:
            return self.memory.load(place) if bits == 32 else self.memory.narrow(place, bits, bool(z))
        return Op("table", (a,), (bits, z))

    def _load_to(self, t: int, w: Word) -> int | None:
        if t == PC:
            return self._to(w)
        self._set(t, w)
        return None

    def _load(self, i: Instruction, f: dict[str, int]) -> Step:
        bits, z, t = _SIZES[f["k"]], f["z"], f["t"]
        if t == PC and bits != 32:
            raise Refused("a hint to a cache")
        if f["n"] == SP and "x" in f and f["w"] and t == SP:
            raise Refused("the stack pointer from the stack")
        place = self._place(f)
        return lambda: self._load_to(t, self._loaded(place(), bits, z))

    def _load_r(self, i: Instruction, f: dict[str, int]) -> Step:
        r, bits, z = self.r, _SIZES[f["k"]], f["z"]
        return lambda: self._load_to(
            f["t"], self._loaded(add(r[f["n"]], shifted("lsl", r[f["m"]], f["i"])), bits, z)
        )

    def _load_pc(self, i: Instruction, f: dict[str, int]) -> Step:
        number = f["i"] * f["q"]
        a = (i.address + 4 & ~3) + (number if f["u"] else -number)
        return lambda: self._load_to(f["t"], self._loaded(a, _SIZES[f["k"]], f["z"]))

    def _store_to(self, a: Word, bits: int, w: Word) -> None:
        place = place_of(a)
        if place is None:
            raise Refused("a store to an address that depends on an input")
        if bits == 32:
            self.memory.store(place, w)
        elif bits == 16:
            self.memory.store_half(place, w)
        else:
            self.memory.store_byte(place, byte_of(w, 0))
        self.seen(place, bits // 8)

    def _store(self, i: Instruction, f: dict[str, int]) -> Step:
        bits, r, t = _SIZES[f["k"]], self.r, f["t"]
        place = self._place(f)

        def step() -> None:
            w = r[t]
            self._store_to(place(), bits, w)

        return step

    def _store_r(self, i: Instruction, f: dict[str, int]) -> Step:
        r, bits = self.r, _SIZES[f["k"]]
        return lambda: self._store_to(add(r[f["n"]], shifted("lsl", r[f["m"]], f["i"])), bits, r[f["t"]])

    def _several(self, n: int, registers: int, loads: bool, up: bool, back: bool) -> Step:
        r, which = self.r, [k for k in range(16) if registers >> k & 1]
        if not which or SP in which or (PC in which and not loads):
            raise Refused("a list of registers that is not followed")

        def step() -> int | None:
            base = place_of(r[n])
            if base is None or base & 3:
                raise Refused("an address that depends on an input, or is not aligned")
            first = base if up else base - 4 * len(which)
            end = add(r[n], 4 * len(which) if up else -4 * len(which) & MASK)
            if back and n == SP and not loads:
                self._set(n, end)
            to = None
            for k, register in enumerate(which):
                if loads:
                    to = self._load_to(register, self.memory.load(first + 4 * k))
                else:
                    self.memory.store(first + 4 * k, r[register])
            if back and n not in (which if loads else ()):
                self._set(n, end)
            if not loads:
                self.seen(first, 4 * len(which))
            return to

        return step

    def _load_m(self, i: Instruction, f: dict[str, int]) -> Step:
        back = f["w"] == 1 if f["w"] < 2 else not f["r"] >> f["n"] & 1
        return self._several(f["n"], f["r"], True, bool(f["u"]), back)

    def _store_m(self, i: Instruction, f: dict[str, int]) -> Step:
        if f["w"] and f["r"] >> f["n"] & 1:
            raise Refused("a base register that is stored while it changes")
        return self._several(f["n"], f["r"], False, bool(f["u"]), bool(f["w"]))

    def _push(self, i: Instruction, f: dict[str, int]) -> Step:
        return self._several(SP, f["r"] | f["l"] << LR, False, False, True)

    def _pop(self, i: Instruction, f: dict[str, int]) -> Step:
        return self._several(SP, f["r"] | f["l"] << PC, True, True, True)

    def _pair(self, f: dict[str, int]) -> Callable[[], int]:
        if not f["p"] and not f["w"]:
            raise Refused("an exclusive access or a table branch")
        r, n, offset = self.r, f["n"], 4 * f["i"] if f["u"] else -4 * f["i"]

        def place() -> int:
            base: Word = r[n]
            if n == PC:
                raise Refused("two words beside the code")
            moved = add(base, offset & MASK)
            at = moved if f["p"] else base
            if f["w"]:
                self._set(n, moved)
            found = place_of(at)
            if found is None or found & 3:
                raise Refused("an address that depends on an input, or is not aligned")
            return found

        return place

    def _load_d(self, i: Instruction, f: dict[str, int]) -> Step:
        place = self._pair(f)

        def step() -> None:
            a = place()
            self._set(f["t"], self.memory.load(a))
            self._set(f["v"], self.memory.load(a + 4))

        return step

    def _store_d(self, i: Instruction, f: dict[str, int]) -> Step:
        place = self._pair(f)

        def step() -> None:
            first, second = self.r[f["t"]], self.r[f["v"]]
            a = place()
            self.memory.store(a, first)
            self.memory.store(a + 4, second)
            self.seen(a, 8)

        return step

    # ---- branches

    def _to(self, w: Word) -> int:
        if isinstance(w, Linear) and (w.mark - RETURN_ADDRESS.mark) % P == 0 and w.const == 1:
            return _RETURNED
        if not isinstance(w, int) or not w & 1:
            raise Refused("a jump that depends on an input, or to what is no Thumb code")
        if self.calls and self.calls[-1][0] == w & ~1:
            self.returned = self.calls.pop()[2]
        return w & ~1

    def _bx(self, i: Instruction, f: dict[str, int]) -> Step:
        return lambda: self._to(self.r[f["m"]])

    def _branch(self, i: Instruction, f: dict[str, int]) -> Step:
        to = i.address + 4 + signed(f["i"] << 1, 12)
        return lambda: to

    def _branch_w(self, i: Instruction, f: dict[str, int]) -> Step:
        to = _far(i, f)
        return lambda: to

    def _call(self, i: Instruction, f: dict[str, int]) -> Step:
        to = _far(i, f)

        def step() -> int:
            self.r[LR] = i.following | 1
            self.calls.append((i.following, self.count, [*self.r[4:12], self.r[SP]]))
            return to

        return step

    def _branch_if(self, condition: int, to: int) -> Step:
        if condition >= 14:
            raise Refused("a call of the system, or an undefined instruction")
        name = _CONDITIONS[condition]

        def step() -> int | None:
            holds = self.holds(name)
            if not isinstance(holds, bool):
                raise Refused("a branch that depends on an input")
            return to if holds else None

        return step

    def _branch_c(self, i: Instruction, f: dict[str, int]) -> Step:
        return self._branch_if(f["c"], i.address + 4 + signed(f["i"] << 1, 9))

    def _branch_cw(self, i: Instruction, f: dict[str, int]) -> Step:
        offset = f["s"] << 20 | f["b"] << 19 | f["a"] << 18 | f["j"] << 12 | f["i"] << 1
        return self._branch_if(f["c"], i.address + 4 + signed(offset, 21))

    def _compare_branch(self, i: Instruction, f: dict[str, int]) -> Step:
        to, branches_if_zero = i.address + 4 + 2 * f["i"], not f["x"]

        def step() -> int | None:
            w = self.r[f["n"]]
            if not isinstance(w, int):
                raise Refused("a branch that depends on an input")
            return to if (w == 0) == branches_if_zero else None

        return step

    def _it(self, i: Instruction, f: dict[str, int]) -> Step:
        first, mask = f["c"], f["p"]
        length = 4 - (mask & -mask).bit_length() + 1
        sense = [first & 1] + [mask >> (3 - k) & 1 for k in range(length - 1)]
        if first >= 14 and any(first & 14 | bit > 14 for bit in sense):
            raise Refused("a block of no condition")
        names = [_CONDITIONS[first & 14 | bit] for bit in sense]

        def step() -> None:
            self.block = list(names)

        return step

    def _hint(self, i: Instruction, f: dict[str, int]) -> Step:
        if f["c"] != 0:
            raise Refused("a hint that waits")
        return lambda: None


def _is_unpredictable(name: str, f: dict[str, int]) -> bool:
    # 32-bit encodings with the stack pointer or the program counter where the manual forbids them.
    n, m, o = f.get("n", 0), f.get("m", 0), f.get("o", 0)
    if name in ("data_i", "data_m", "data_s"):
        moves = o in (2, 3) and n == PC
        return (n == SP and o not in (8, 13)) or (m in (SP, PC) and not (moves and o == 2 and m == SP))
    if name.startswith(("load", "store")):
        return m in (SP, PC) or f.get("v", 0) in (SP, PC) or (f.get("t", 0) == SP and f.get("k", 0) < 2)
    if name.startswith(("branch", "call", "move", "hint")):
        return False
    others = [m, f.get("v", 0), *([] if f.get("a") == PC else [f.get("a", 0)])]
    return any(r in (SP, PC) for r in others) or n == SP or (n == PC and name != "insert")


def _far(i: Instruction, f: dict[str, int]) -> int:
    s = f["s"]
    offset = s << 24 | (1 - (f["a"] ^ s)) << 23 | (1 - (f["b"] ^ s)) << 22 | f["i"] << 1
    return i.address + 4 + signed(offset, 25)


def _modified(i: int) -> int:
    # ThumbExpandImm.
    if i < 1024:
        byte = i & 255
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


def _unsigned_product(x: Word, y: Word) -> tuple[int, tuple[Word, ...]]:
    # The number and the factors of a product of two unsigned words.
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
    raise Refused("an unsigned product of what may be negative")


def _is_sign(high: Word, low: Word) -> bool:
    return isinstance(high, Op) and high.name == "asr" and high.numbers == (31,) and high.args[0] is low


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
