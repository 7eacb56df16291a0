"""A core with an image: loads, stores and branches, beside all that ``core`` and what is above it have."""

from collections.abc import Callable

from crtproof.core import CONDITIONS, LR, PC, SIZES, SP, Step
from crtproof.decoder import Instruction
from crtproof.values import (
    MASK,
    Op,
    Refused,
    Word,
    place_of,
    signed,
)
from crtproof.ways import Ways
from crtproof.words import (
    add,
    byte_of,
    operation,
    shifted,
)

__all__ = ["Machine"]


class Machine(Ways):
    """A core with an image. ``count`` is how many instructions it has run."""

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
        bits, z, t = SIZES[f["k"]], f["z"], f["t"]
        if t == PC and bits != 32:
            raise Refused("a hint to a cache")
        if f["n"] == SP and "x" in f and f["w"] and t == SP:
            raise Refused("the stack pointer from the stack")
        place = self._place(f)
        return lambda: self._load_to(t, self._loaded(place(), bits, z))

    def _load_r(self, i: Instruction, f: dict[str, int]) -> Step:
        r, bits, z = self.r, SIZES[f["k"]], f["z"]
        return lambda: self._load_to(
            f["t"], self._loaded(add(r[f["n"]], shifted("lsl", r[f["m"]], f["i"])), bits, z)
        )

    def _load_pc(self, i: Instruction, f: dict[str, int]) -> Step:
        number = f["i"] * f["q"]
        a = (i.address + 4 & ~3) + (number if f["u"] else -number)
        return lambda: self._load_to(f["t"], self._loaded(a, SIZES[f["k"]], f["z"]))

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
        bits, r, t = SIZES[f["k"]], self.r, f["t"]
        place = self._place(f)

        def step() -> None:
            w = r[t]
            self._store_to(place(), bits, w)

        return step

    def _store_r(self, i: Instruction, f: dict[str, int]) -> Step:
        r, bits = self.r, SIZES[f["k"]]
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
            self.entered()
            return to

        return step

    def _branch_if(self, condition: int, to: int, following: int) -> Step:
        if condition >= 14:
            raise Refused("a call of the system, or an undefined instruction")
        name = CONDITIONS[condition]

        def step() -> int | None:
            holds = self.holds(name)
            if not isinstance(holds, bool):
                return self.fork(holds, to, following)
            return to if holds else None

        return step

    def _branch_c(self, i: Instruction, f: dict[str, int]) -> Step:
        return self._branch_if(f["c"], i.address + 4 + signed(f["i"] << 1, 9), i.following)

    def _branch_cw(self, i: Instruction, f: dict[str, int]) -> Step:
        offset = f["s"] << 20 | f["b"] << 19 | f["a"] << 18 | f["j"] << 12 | f["i"] << 1
        return self._branch_if(f["c"], i.address + 4 + signed(offset, 21), i.following)

    def _compare_branch(self, i: Instruction, f: dict[str, int]) -> Step:
        to, branches_if_zero = i.address + 4 + 2 * f["i"], not f["x"]

        def step() -> int | None:
            w = operation("eq", self.r[f["n"]], 0)
            if isinstance(w, Op):
                return self.fork(w, *((to, i.following) if branches_if_zero else (i.following, to)))
            return to if (w == 1) == branches_if_zero else None

        return step

    def _it(self, i: Instruction, f: dict[str, int]) -> Step:
        first, mask = f["c"], f["p"]
        length = 4 - (mask & -mask).bit_length() + 1
        sense = [first & 1] + [mask >> (3 - k) & 1 for k in range(length - 1)]
        if first >= 14 and any(first & 14 | bit > 14 for bit in sense):
            raise Refused("a block of no condition")
        names = [CONDITIONS[first & 14 | bit] for bit in sense]

        def step() -> None:
            self.block = list(names)

        return step

    def _hint(self, i: Instruction, f: dict[str, int]) -> Step:
        if f["c"] != 0:
            raise Refused("a hint that waits")
        return lambda: None


def _far(i: Instruction, f: dict[str, int]) -> int:
    s = f["s"]
    offset = s << 24 | (1 - (f["a"] ^ s)) << 23 | (1 - (f["b"] ^ s)) << 22 | f["i"] << 1
    return i.address + 4 + signed(offset, 25)
