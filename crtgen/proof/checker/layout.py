"""Where an image has a model: its arena, tensors and variables, by the names of symbols; and the stack."""

import re

from crtgen.base.errors import UsageError
from crtgen.proof.checker.image import DecodedImage, image_bytes
from crtgen.proof.checker.machine import Machine
from crtgen.proof.checker.refusal import Refusal

__all__ = ["STACK_TOP", "allow", "only_model", "places", "variables"]

STACK_TOP = 0xF0000000
"""Where the stack is while a proof runs: far from all else, so that what is beyond its frames is seen."""


def only_model(image: DecodedImage, stem: str = "") -> str:
    """The name of an image's model; of several, that of a file. Raises ``UsageError`` if there is none."""
    names = sorted(n.removesuffix("_compute") for n in image.symbols if n.endswith("_compute"))
    own = [n for n in names if n.lower() == re.sub("[^0-9A-Za-z]+", "_", stem).lower()]
    if len(names) != 1 and not own:
        known = ", ".join(names) or "none"
        hint = "name the file as its model"
        raise UsageError(f"which model of the image is it? here: {known}", where=str(image.path), hint=hint)
    return names[0] if len(names) == 1 else own[0]


def places(image: DecodedImage, name: str, which: str, count: int) -> list[int]:
    """The addresses of tensors' bytes: the only pointers into the arena in the image's description.

    An image that comes by rows lies in an array of its own.
    """
    memories = [image.arena(name)]
    memories += [image.span(f"{name}_image")] if which == "input" and f"{name}_image" in image.symbols else []
    first, end = image.span(f"{name}_{which}_tensors")
    data = image_bytes(image, first, end - first)
    words = [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data) - 3, 4)]
    found = [w for w in words if any(low <= w < high for low, high in memories)]
    if len(found) != count:
        raise Refusal(f"the image does not say where its {which}s are")
    return found


def variables(image: DecodedImage, name: str) -> list[tuple[int, int]]:
    """Objects of a model in memory that is written, but for the arena."""
    models = [n.removesuffix("compute") for n in image.symbols if n.endswith("_compute")]
    longer = tuple(n for n in models if n.startswith(f"{name}_") and n != f"{name}_")
    others = (f"{name}_arena", *longer)
    names = (n for n in image.symbols if n.startswith(f"{name}_") and not n.startswith(others))
    own = [n for n in names if image.sizes[n]]
    segments = [(a, a + len(data)) for a, data in image.constant]
    spans = [image.span(n) for n in own]
    return [s for s in spans if not any(low <= s[0] < high for low, high in segments)]


def allow(machine: Machine, name: str) -> None:
    """Let a run write the network's arena and the stack, which hold nothing known before."""
    symbols, memory = machine.image.symbols, machine.memory
    bottom = STACK_TOP - symbols.get("crt_stack_top", 0) + symbols.get("crt_stack_bottom", 0)
    memory.allow(*machine.image.arena(name))
    memory.allow(bottom, STACK_TOP)
    memory.stack = range(bottom >> 2, STACK_TOP >> 2)
