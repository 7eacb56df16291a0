"""Worst-case stack: the frames of functions, added up over the call graph of the image.

Frame sizes come from the compiler (``-fstack-usage`` writes a ``.su`` file per translation unit), for
assembly from the absolute symbol ``crt_stack_of_<function>`` that it defines, and for libraries from their
code. The call graph is read from the code; targets of calls through pointers come from a table.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from crtgen.base.errors import UsageError
from crtgen.firmware.builder.thumb import ImageCode, ThumbFunction, read_code

__all__ = ["FunctionStack", "StackReport", "analyse_stack", "read_frames"]

DECLARED = "crt_stack_of_"


@dataclass(frozen=True, slots=True)
class FunctionStack:
    """Stack of a function: ``own`` bytes of its frame, ``total`` including the deepest call.

    ``kind`` is ``static``, ``bounded``, ``dynamic`` (alloca or an array of variable length: ``own`` is only
    the fixed part), ``declared``, ``code`` (an upper bound) or ``unknown`` (counted as 0).
    """

    name: str
    own: int
    total: int
    kind: str


@dataclass(frozen=True, slots=True)
class StackReport:
    """The deepest stack in bytes, along the calls of ``path``, plus the worst interrupt.

    ``frames`` are all reachable functions, the deepest first. ``worst`` is a bound only if ``proven``: no
    recursion (each is a cycle of names), no frame that is unknown or dynamic, and nothing ``unresolved``,
    which are the functions with calls through pointers that no table explains.
    """

    worst: int
    interrupt: int
    path: tuple[FunctionStack, ...]
    frames: tuple[FunctionStack, ...]
    recursion: tuple[tuple[str, ...], ...]
    unresolved: tuple[str, ...]

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.frames if f.kind in ("unknown", "dynamic"))

    @property
    def proven(self) -> bool:
        return not (self.recursion or self.unresolved or self.unknown)

    def to_dict(self) -> dict[str, Any]:
        return {
            "worst": self.worst,
            "proven": self.proven,
            "interrupt": self.interrupt,
            "path": [asdict(frame) for frame in self.path],
            "frames": [asdict(frame) for frame in self.frames],
            "recursion": [list(cycle) for cycle in self.recursion],
            "unknown": list(self.unknown),
            "unresolved": list(self.unresolved),
        }


def read_frames(directory: Path) -> dict[str, tuple[int, str]]:
    """Return bytes and kind of each function's frame, from all ``.su`` files below ``directory``.

    The ELF file cannot tell static functions of the same name apart, so the largest frame is used.
    """
    frames: dict[str, tuple[int, str]] = {}
    for path in sorted(directory.rglob("*.su")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            place, size, kind = line.rsplit("\t", 2)
            name = place.rpartition(":")[2]
            kind = "bounded" if kind == "dynamic,bounded" else kind
            frames[name] = max(frames.get(name, (0, "static")), (int(size), kind))
    return frames


def analyse_stack(
    elf: Path,
    build: Path,
    *,
    root: str,
    faults: Iterable[str] = (),
    exception_frame: int = 0,
    indirect: Mapping[str, Iterable[str]] | None = None,
) -> StackReport | None:
    """Return the worst case from ``root``, plus the worst interrupt with its ``exception_frame``.

    ``build`` is the directory with the ``.su`` files. Interrupts are all functions in the vector table except
    ``root`` and ``faults``, which reset the stack; they do not nest. ``indirect`` maps a caller to the
    functions that its calls through pointers can reach; both may be patterns (``serve_*``). None if the image
    is not for Arm.
    """
    code = read_code(elf)
    if not code.functions:
        return None
    if root not in code.functions:
        raise UsageError(
            f"the image has no function {root}",
            where=str(elf),
            hint="build it without link-time optimisation, and keep its symbols",
        )
    handlers = [name for name in code.vectors if name not in (root, *faults)]
    walk = _Walk(code, read_frames(build), indirect or {})
    deepest = walk.visit(root)
    interrupt = max((exception_frame + walk.visit(name).total for name in handlers), default=0)
    return StackReport(
        worst=deepest.total + interrupt,
        interrupt=interrupt,
        path=walk.path(root),
        frames=tuple(sorted(walk.done.values(), key=lambda f: (-f.total, f.name))),
        recursion=tuple(sorted(walk.cycles)),
        unresolved=tuple(sorted(walk.unresolved)),
    )


class _Walk:
    # Visits each function of the call graph once, depth first.

    def __init__(
        self,
        code: ImageCode,
        frames: Mapping[str, tuple[int, str]],
        indirect: Mapping[str, Iterable[str]],
    ) -> None:
        self.code = code
        self.frames = frames
        self.indirect = indirect
        self.done: dict[str, FunctionStack] = {}
        self.below: dict[str, tuple[FunctionStack, ...]] = {}
        self.open: list[str] = []
        self.cycles: set[tuple[str, ...]] = set()
        self.unresolved: set[str] = set()

    def visit(self, name: str) -> FunctionStack:
        if name in self.done:
            return self.done[name]
        own, kind = self.frame(name)
        self.open.append(name)
        below = 0
        for callee in self.callees(name):
            if callee in self.open:
                cycle = self.open[self.open.index(callee) :]
                first = cycle.index(min(cycle))
                self.cycles.add((*cycle[first:], *cycle[:first]))
                continue
            path = self.path(self.visit(callee).name)
            total = sum(frame.own for frame in path)
            if total > below:
                below, self.below[name] = total, path
        self.open.pop()
        self.done[name] = FunctionStack(name, own, own + below, kind)
        return self.done[name]

    def frame(self, name: str) -> tuple[int, str]:
        # Clones that the compiler made (``f.isra.0``) have the frame of their original. The compiler knows of
        # no frame where assembly makes one (naked functions): there, the code tells.
        if DECLARED + name in self.code.declared:
            return self.code.declared[DECLARED + name], "declared"
        function = self.code.functions.get(name)
        for known in (name, name.partition(".")[0]):
            if known in self.frames and (self.frames[known][0] or function is None or not function.frame):
                return self.frames[known]
        return (function.frame, "code") if function is not None else (0, "unknown")

    def callees(self, name: str) -> list[str]:
        function = self.code.functions.get(name, ThumbFunction(name, 0, False, frozenset()))
        if not function.indirect:
            return sorted(function.calls)
        reached: set[str] = set()
        keys = [key for key in self.indirect if fnmatchcase(name, key)]
        for key in keys:
            reached |= {f for f in self.code.functions for p in self.indirect[key] if fnmatchcase(f, p)}
        if not reached:
            self.unresolved.add(name)
        return sorted(function.calls.union(reached))

    def path(self, name: str) -> tuple[FunctionStack, ...]:
        # A visited function and the deepest of what it calls, down to the end.
        return (self.done[name], *self.below.get(name, ()))
