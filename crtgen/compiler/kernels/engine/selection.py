"""Chooses among candidate kernels for all layers at once, since layers can share code."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from crtgen.compiler.kernels.engine.kernel import Kernel
from crtgen.compiler.level import Level

__all__ = ["choose"]

_ROUNDS = 4
_NOTHING = 1e-12  # a change that is none


def choose(
    candidates: Mapping[str, Sequence[Kernel]], level: Level, need: Callable[[str, Kernel], int]
) -> dict[str, Kernel]:
    """Choose a kernel for each name; ``need`` returns the arena bytes of a layer with a kernel.

    Start with the fastest kernels. Then, function by function, move all layers that could share a function to
    it if that lowers the objective, and repeat until nothing improves.
    """
    functions = _numbered(kernel for found in candidates.values() for kernel in found)
    fastest = {name: min(found, key=lambda k: k.cost.time) for name, found in candidates.items()}
    choice = _Choice(fastest, level, need, functions)
    takers = defaultdict[int, list[tuple[str, Kernel]]](list)
    for name, found in candidates.items():
        for kernel in found if len(found) > 1 else ():
            takers[functions[kernel]].append((name, kernel))
    for _ in range(_ROUNDS):
        if not any([choice.improve(together) for together in takers.values()]):
            break
    return choice.kernels


def _numbered(kernels: Iterable[Kernel]) -> dict[Kernel, int]:
    # Numbers of functions: comparing them is much faster than comparing kernels.
    numbers: dict[tuple[object, ...], int] = {}
    return {kernel: numbers.setdefault(kernel.function, len(numbers)) for kernel in kernels}


class _Choice:
    """The current choice by layer name, and the number of layers that use each function."""

    def __init__(
        self,
        kernels: dict[str, Kernel],
        level: Level,
        need: Callable[[str, Kernel], int],
        functions: Mapping[Kernel, int],
    ) -> None:
        self.kernels = kernels
        self.need = need
        self.functions = functions
        self.needs = {name: need(name, kernel) for name, kernel in kernels.items()}
        self.memory = max(self.needs.values(), default=0) or 1
        self.greatest = self._by_need()
        self.level = level
        self.uses = Counter(functions[kernel] for kernel in kernels.values())
        self.time = sum(kernel.cost.time for kernel in kernels.values()) or 1.0
        code = {functions[kernel]: kernel.cost.code for kernel in kernels.values()}
        self.flash = sum(kernel.cost.constants for kernel in kernels.values()) + sum(code.values()) or 1.0

    def improve(self, together: Sequence[tuple[str, Kernel]]) -> bool:
        # Try to move layers to kernels of one function: those that gain alone, or else all. Return whether it
        # helped.
        others = [(n, k) for n, k in together if self.functions[self.kernels[n]] != self.functions[k]]
        for moved in ([(name, k) for name, k in others if self._gains(name, k)], others):
            if moved and self._change(moved) < -_NOTHING:
                self._move(moved)
                return True
        return False

    def _move(self, moved: Sequence[tuple[str, Kernel]]) -> None:
        for name, kernel in moved:
            self.uses[self.functions[self.kernels[name]]] -= 1
            self.uses[self.functions[kernel]] += 1
            self.kernels[name] = kernel
            self.needs[name] = self.need(name, kernel)
        self.greatest = self._by_need()

    def _by_need(self) -> list[str]:
        # Layers with the largest memory need first.
        return sorted(self.needs, key=lambda name: -self.needs[name])

    def _gains(self, name: str, kernel: Kernel) -> bool:
        # True if the layer gains by a function that exists already; it gives up its share of the old one.
        now = self.kernels[name]
        own = now.cost.code / self.uses[self.functions[now]]
        return self._moved([(name, kernel)]) < self._worth(0, own)

    def _change(self, moved: Sequence[tuple[str, Kernel]]) -> float:
        # Change of the objective.
        left = Counter(self.functions[self.kernels[name]] for name, _ in moved)
        code = {self.functions[self.kernels[name]]: self.kernels[name].cost.code for name, _ in moved}
        freed = sum(code[function] for function, n in left.items() if self.uses[function] == n)
        new = moved[0][1]
        added = 0.0 if self.uses[self.functions[new]] else new.cost.code
        return self._worth(0, added - freed) + self._moved(moved)

    def _moved(self, moved: Sequence[tuple[str, Kernel]]) -> float:
        # Change of the objective without code size.
        before, after = ([self.kernels[name].cost for name, _ in moved], [k.cost for _, k in moved])
        time = sum(a.time - b.time for a, b in zip(after, before, strict=True))
        constants = sum(a.constants - b.constants for a, b in zip(after, before, strict=True))
        return self._worth(time, constants, self._more_memory(moved))

    def _more_memory(self, moved: Sequence[tuple[str, Kernel]]) -> int:
        # Change of the largest memory need of any layer.
        new = {name: self.need(name, kernel) for name, kernel in moved}
        if all(new[name] == self.needs[name] for name in new):
            return 0
        others = next((self.needs[name] for name in self.greatest if name not in new), 0)
        return max(others, *new.values()) - max(others, *(self.needs[name] for name in new))

    def _worth(self, time: float, flash: float, memory: float = 0) -> float:
        shares = time / self.time, flash / self.flash, memory / self.memory
        return self.level.objective(*shares)
