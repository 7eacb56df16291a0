"""Reports of models that nobody compiled."""

from dataclasses import replace

from crtgen.api.report import Report, ReportedLayer
from crtgen.firmware.builder import SizeReport
from crtgen.firmware.builder.size import Sizes

__all__ = ["figures"]


def figures(
    optimize: str, instructions: int, flash: int, ram: int = 100, layers: tuple[tuple[str, int], ...] = ()
) -> Report:
    """A report of the model ``net`` with these figures; ``layers`` are names with instructions."""
    sizes = Sizes(text=flash, rodata=0, data=0, bss=ram, stack=0, arena=0, groups={}, symbols=())
    made = tuple(ReportedLayer(name, "conv2d", "gemm", name, 5, instructions=count) for name, count in layers)
    report = Report("net", "board", optimize, (), (), 10, 0, ram, ram, True, made)
    image = SizeReport(sizes, None, {})
    return replace(report, image=image, instructions=instructions, flash_bytes=flash)
