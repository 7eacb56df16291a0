"""A core that runs code on words, some of which depend on inputs.

Registers and memory hold words (``values``); the program counter is always a number. Branches that depend on
inputs are in ``ways``. Addresses must not depend on inputs, except those of loads from constant tables. A
conditional instruction whose condition depends on inputs chooses between the old and the new register.

Each instruction is compiled to a Python function when it is first reached. A function returns the address of
the next instruction, or None for the one that follows.
"""

from collections.abc import Callable

from crtproof.decoder import decode
from crtproof.elf import Image
from crtproof.memory import Memory
from crtproof.values import (
    MASK,
    RETURN_ADDRESS,
    STACK_TOP,
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
    chosen,
    operation,
)

__all__ = ["CONDITIONS", "LR", "PC", "RETURNED", "SHIFTS", "SIZES", "SP", "Core", "Step"]

Step = Callable[[], int | None]

SP, LR, PC = 13, 14, 15
RETURNED = -1
"""Program counter once the function has returned."""

SHIFTS = ("lsl", "lsr", "asr", "ror")
CONDITIONS = ("eq", "ne", "cs", "cc", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le", "al")
SIZES = (8, 16, 32)
# Instructions that not every core of Armv7-M has.
_EXTENSIONS = {"select": "Armv8.1-M"} | dict.fromkeys(
    ("pack", "extend16", "extend_add", "extend16_add", "parallel", "difference8", "select8", "multiply_16",
     "multiply_2", "multiply_w", "multiply_hi"), "DSP")  # fmt: skip
# Instructions that may have the stack pointer as their result, or none.
_WITH_STACK = ("data", "data_i", "data_m", "data_s", "move")


class Core:
    """Registers, flags, and the order of instructions. ``count`` is how many instructions it has run."""

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
        """Registers that the instruction has to leave as at the call, if it returned from one."""
        self.entered: Callable[[], None] = lambda: None
        """Called at each call of a function."""
        self.count = 0
        self.lowest = 0
        self._steps: dict[tuple[int, bool], tuple[Step, int]] = {}

    def call(self, entry: int, room: int, most: int) -> None:
        """Run the function at ``entry`` to its return.

        It may use ``room`` bytes of stack, and run ``most`` instructions.
        """
        self.r[SP], self.r[LR], self.lowest = stack_word(0), RETURN_ADDRESS, STACK_TOP
        self.memory.below = range(STACK_TOP - room, STACK_TOP)
        kept, pc, sp = [*self.r[4:12], self.r[SP]], entry & ~1, self.r[SP]
        while pc != RETURNED:
            if self.count >= most:
                raise Refused("more instructions than expected")
            pc = self.one(pc)
            if self.r[SP] is not sp:
                sp = self.r[SP]
                self.memory.move(self.stack_pointer())
        self._check_return(kept)

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

    def stack_pointer(self) -> int:
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
        needed = _EXTENSIONS.get(i.name)
        if needed and needed not in self.image.extensions:
            raise Refused(f"{i.name} at {pc:#x}, which the core does not have: it is of {needed}")
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

    def _to(self, w: Word) -> int:
        if isinstance(w, Linear) and (w.mark - RETURN_ADDRESS.mark) % P == 0 and w.const == 1:
            return RETURNED
        if not isinstance(w, int) or not w & 1:
            raise Refused("a jump that depends on an input, or to what is no Thumb code")
        if self.calls and self.calls[-1][0] == w & ~1:
            self.returned = self.calls.pop()[2]
        return w & ~1

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
        elif kind in ("sub", "add") and base in ("ge", "gt"):
            decided = operation("sum_ge", a, b, c, numbers=(1 if kind == "add" else -1, int(base == "gt")))
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
            place = self.stack_pointer()
            self.lowest = min(self.lowest, place)
            if place < self.memory.below.stop:
                self.memory.move(place)
        if n == PC:
            raise Refused("a computed jump")
        self.r[n] = w


def _is_unpredictable(name: str, f: dict[str, int]) -> bool:
    # 32-bit encodings with the stack pointer or the program counter where the manual forbids them.
    n, m, o = f.get("n", 0), f.get("m", 0), f.get("o", 0)
    if name == "select":  # the program counter is 0 there
        return SP in (n, m) or f["c"] >= 14
    if name in ("data_i", "data_m", "data_s"):
        moves = o in (2, 3) and n == PC
        if f["d"] == SP and (n != SP or f.get("i", 0) > 3 or f.get("t", 0)) and name != "data_i":
            return not (moves and o == 2 and name == "data_s")
        if (f["d"] == SP and n != SP) or (f["d"] == PC and name == "data_i"):
            return True
        return (n == SP and o not in (8, 13)) or (m in (SP, PC) and not (moves and o == 2 and m == SP))
    if name.startswith(("load", "store")):
        return m in (SP, PC) or _is_wrong_access(name, f)
    if name == "count_zeros" and n != m:  # both are the operand
        return True
    if name == "multiply_l" and f["v"] == f["d"]:  # the halves of the result
        return True
    if name == "multiply_add" and f["f"] < 0 and f["a"] == PC:
        return True
    if name.startswith(("branch", "call", "move", "hint")):
        return False
    others = [m, f.get("v", 0), *([] if f.get("a") == PC else [f.get("a", 0)])]
    return any(r in (SP, PC) for r in others) or n == SP or (n == PC and name != "insert")


def _is_wrong_access(name: str, f: dict[str, int]) -> bool:
    # Loads and stores: a base that is loaded or stored and written back, PC as a base or a target, SP as part
    # of a word, hints, accesses without privilege, and encodings of other instructions.
    n, stores, writes = f.get("n", 0), name.startswith("store"), bool(f.get("w"))
    if name.endswith("_m"):
        bits = f["r"]
        wrong = 1 << SP | (1 << PC if stores else 0) | (1 << n if writes else 0)
        return n == PC or bool(bits & wrong) or bits.bit_count() < 2 or bits >> 14 == 3
    targets = [f["t"], f["v"]] if name.endswith("_d") else [f["t"]]
    if "p" in f:
        without = "x" in f and f["p"] and f["u"] and not writes
        if without or (not f["p"] and not writes) or (writes and (n in targets or n == PC)):
            return True
    if name.endswith("_d"):
        return SP in targets or PC in targets or (not stores and f["t"] == f["v"]) or (stores and n == PC)
    partial = f.get("k", 0) < 2 and (SP in targets or PC in targets)
    if name == "load_pc" and PC in targets and f["i"] & 3:
        return True
    return partial or (stores and (PC in targets or n == PC))
