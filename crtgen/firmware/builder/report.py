"""Sizes and stack of an image in one report."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crtgen.base.errors import DoesNotFitError
from crtgen.boards import find_board
from crtgen.firmware.builder.calls import FAULTS, ROOT, ROOTS, indirect_calls
from crtgen.firmware.builder.image import MODELS_IMAGE, BuiltImage
from crtgen.firmware.builder.layers import LayerSize, layer_sizes
from crtgen.firmware.builder.size import SizedSymbol, Sizes, read_sizes
from crtgen.firmware.builder.stack import StackReport, analyse_stack

__all__ = ["SizeReport", "check_stack", "measure"]

# Bytes that the core stores for an interrupt, by FPU, with the word that aligns the stack to 8.
_EXCEPTION_FRAME = {"none": 36, "sp": 108, "dp": 108}


@dataclass(frozen=True, slots=True, eq=False)
class SizeReport:
    """Sizes of an image, its worst-case stack, and the layers of each model by the model's name.

    ``stack`` is known for bare metal: of an image from reset on, of a library the stack of its models.
    """

    sizes: Sizes
    stack: StackReport | None
    layers: Mapping[str, tuple[LayerSize, ...]]

    def rows(self) -> tuple[tuple[str, int], ...]:
        sizes = self.sizes
        rows = [("flash", sizes.flash)]
        rows += [(f"  {name}", group.flash) for name, group in sizes.groups.items() if group.flash]
        rows += [("RAM", sizes.ram), ("  arena", sizes.arena), ("  other", sizes.ram - sizes.arena)]
        if sizes.stack:
            rows.append(("stack, reserved", sizes.stack))
        if self.stack is not None:
            rows.append(
                (f"stack, worst case{'' if self.stack.proven else ' (not proven)'}", self.stack.worst)
            )
        return tuple(rows)

    def largest(self, count: int) -> tuple[SizedSymbol, ...]:
        return self.sizes.symbols[:count]

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.sizes.to_dict(),
            "stack": self.stack.to_dict() if self.stack else None,
        }


def measure(image: BuiltImage) -> SizeReport:
    sizes = read_sizes(image.path, map_file=_map_file(image))
    if image.path.suffix == ".a":
        stack = _stack_of_library(image)
        return SizeReport(sizes, stack, _layers(image, sizes, stack))
    if image.platform != "baremetal":
        return SizeReport(sizes, None, _layers(image, sizes, None))
    frame = _EXCEPTION_FRAME[find_board(image.board).core.fpu]
    stack = analyse_stack(
        image.path,
        image.build,
        root=ROOTS.get(image.manifest.type, ROOT),
        faults=FAULTS,
        exception_frame=frame,
        indirect=indirect_calls(image.manifest.functions),
    )
    return SizeReport(sizes, stack, _layers(image, sizes, stack))


def _stack_of_library(image: BuiltImage) -> StackReport | None:
    # Return the deepest of ``<model>_run`` of a library's models, without interrupts; None if unknown.
    linked = image.build / MODELS_IMAGE
    if not linked.is_file():
        return None
    known = indirect_calls(image.manifest.functions)
    roots = (f"{model.name}_run" for model in image.manifest.models)
    found = (analyse_stack(linked, image.build, root=root, indirect=known) for root in roots)
    return max((stack for stack in found if stack is not None), key=lambda stack: stack.worst, default=None)


def check_stack(report: SizeReport, board: str) -> None:
    """Raise ``DoesNotFitError`` if less stack is reserved than the image may need."""
    stack, reserved = report.stack, report.sizes.stack
    if stack is None or not reserved or stack.worst <= reserved:
        return
    needed = -(-stack.worst // 8) * 8
    raise DoesNotFitError(
        f"the stack may need {stack.worst:,} bytes{'' if stack.proven else ' or more'}, and {reserved:,} are "
        f"reserved: {' -> '.join(frame.name for frame in stack.path)}",
        where=board,
        hint=f"generate it again with --stack {needed}, in Python generate(stack={needed})",
    )


def _layers(image: BuiltImage, sizes: Sizes, stack: StackReport | None) -> dict[str, tuple[LayerSize, ...]]:
    frames = {frame.name: frame.total for frame in stack.frames} if stack else {}
    return {model.name: layer_sizes(model.layers, sizes.symbols, frames) for model in image.manifest.models}


def _map_file(image: BuiltImage) -> Path:
    # The linker's map: Zephyr's is beside its ELF.
    return image.path.with_suffix(".map") if image.platform == "zephyr" else image.build / "firmware.map"
