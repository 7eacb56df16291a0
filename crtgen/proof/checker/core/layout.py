"""Positions of a model in an image: its arena and variables, found by symbol names, and the stack."""

import re
from itertools import pairwise

from crtgen.base.errors import UsageError
from crtgen.proof.checker.algebra.value import STACK_TOP
from crtgen.proof.checker.binary.image import DecodedImage
from crtgen.proof.checker.core.machine import Machine
from crtgen.proof.checker.refusal import Refusal

__all__ = ["STACK_TOP", "allow", "allow_stack", "kept_variables", "only_model", "takes_rows", "variables"]


_STACK_OF_AN_APPLICATION = 1 << 16


def only_model(image: DecodedImage, stem: str = "") -> str:
    """Return the name of an image's model; with several models, the one named like the file. Raises
    ``UsageError`` if there is none.
    """
    calls = [n for n in image.symbols if n.endswith("_compute")] or [
        n
        for n in image.symbols
        if n.endswith(("_step", "_run", "_push")) and f"{n[: n.rindex('_')]}_arena" in image.symbols
    ]
    names = sorted({n[: n.rindex("_")] for n in calls})
    own = [n for n in names if n.lower() == re.sub("[^0-9A-Za-z]+", "_", stem).lower()]
    if len(names) != 1 and not own:
        known = ", ".join(names) or "none"
        hint = "name the file as its model"
        raise UsageError(
            f"several models are in the image, name one: {known}", where=str(image.path), hint=hint
        )
    return names[0] if len(names) == 1 else own[0]


def variables(image: DecodedImage, name: str) -> list[tuple[int, int]]:
    """Return a model's objects in writable memory, except the arena."""
    models = [n.removesuffix("compute") for n in image.symbols if n.endswith("_compute")]
    longer = tuple(n for n in models if n.startswith(f"{name}_") and n != f"{name}_")
    others = (f"{name}_arena", *longer)
    names = (n for n in image.symbols if n.startswith(f"{name}_") and not n.startswith(others))
    own = [n for n in names if image.sizes[n]]
    segments = [(a, a + len(data)) for a, data in image.constant]
    spans = [image.span(n) for n in own]
    return sorted({s for s in spans if not any(low <= s[0] < high for low, high in segments)})


def kept_variables(image: DecodedImage, name: str) -> list[tuple[int, int]]:
    """Return the variables that a run leaves for the next one; the array of a whole image is an input."""
    whole = image.span(f"{name}_image") if f"{name}_image" in image.symbols else (0, 0)
    return [span for span in variables(image, name) if span != whole]


def takes_rows(image: DecodedImage, name: str) -> bool:
    """Return True for an image whose ``<model>_push`` takes rows, not samples as a pipeline's does."""
    symbols = image.symbols
    return f"{name}_push" in symbols and (f"{name}_restart" in symbols or f"{name}_taken" in symbols)


def allow(machine: Machine, name: str) -> None:
    """Let a run write to the network's arena, its variables and the stack; their previous contents are
    unknown.

    An image without symbols for a stack gets one of 64 KB, apart from everything else; nothing is then
    claimed about the way from reset. Raises ``Refusal`` if these ranges overlap, or are not within the
    image's writable memory.
    """
    image, memory = machine.image, machine.memory
    bottom, top = (image.symbols.get(n, 0) for n in ("crt_stack_bottom", "crt_stack_top"))
    own = {"the stack": (bottom, top)} if top else {}
    bottom, top = (bottom, top) if top else (0, _STACK_OF_AN_APPLICATION)
    for part, span in image.arenas(name).items():
        own[f"the part {part} of the arena" if part else "the arena"] = span
    own |= {f"the variable at {first:#x}": (first, end) for first, end in variables(image, name)}
    for what, (first, end) in own.items():
        if not image.is_variable(first, end):
            raise Refusal(f"{what} is not in memory that the image has for variables")
    ordered = sorted((span, what) for what, span in own.items() if span[0] < span[1])
    for ((_, end), one), ((first, _), other) in pairwise(ordered):
        if first < end:
            raise Refusal(f"{one} and {other} overlap")
    for what, span in own.items():
        if what != "the stack":
            memory.allow(*span)
    if (top | bottom) & 7 or not bottom < top:
        raise Refusal("the stack has no size, or does not begin and end at multiples of 8")
    memory.allow_stack(STACK_TOP - (top - bottom), STACK_TOP)


def allow_stack(machine: Machine) -> None:
    """Let a function write to the stack only, which has the size of the image's."""
    bottom, top = (machine.image.symbols.get(n, 0) for n in ("crt_stack_bottom", "crt_stack_top"))
    size = top - bottom if 0 < bottom < top else _STACK_OF_AN_APPLICATION
    machine.memory.allow_stack(STACK_TOP - size, STACK_TOP)
