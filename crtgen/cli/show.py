"""Reports as tables and lines."""

from collections.abc import Mapping, Sequence

from rich.console import Console

from crtgen.api.report import Report, ReportedLayer, ReportedOperator, bound_text, real_text
from crtgen.cli.output import Rows, table
from crtgen.network.ir import shape_text

__all__ = [
    "arena_line",
    "days_text",
    "figures_table",
    "interface_lines",
    "layer_table",
    "npu_text",
    "number",
    "print_layers",
    "print_npu",
    "print_real",
]

_NUMBERS: Mapping[str, str] = {
    "MACs": "macs",
    "weights": "weights_bytes",
    "scratch": "scratch_bytes",
    "code": "code_bytes",
    "shared by": "shared_by",
    "constants": "constants_bytes",
    "stack": "stack_bytes",
    "ticks": "ticks",
    "instructions": "instructions",
    "cycles (estimate)": "cycles_estimated",
}


def number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def days_text(days: float | None) -> str:
    return "" if days is None else f"{days:,.1f}" if days < 10 else f"{days:,.0f}"


def interface_lines(report: Report) -> list[str]:
    return [
        f"{kind:6} {i.name} {shape_text(i.shape)} {i.dtype.value}{f', {i.quant}' if i.quant else ''}"
        for kind, interfaces in (("input", report.inputs), ("output", report.outputs))
        for i in interfaces
    ]


def layer_table(report: Report, *numbers: str, output: bool = False) -> Rows:
    """Return a table with a row for each layer; a row loop is followed by a row for each of its operators.

    ``numbers`` names the columns after the kernel; ``output`` adds one with the shape of the output.
    """
    rows = table("layer", "operator", *(["output"] if output else []), "kernel", *numbers, right=numbers)
    for layer in report.layers:
        shape = [shape_text(layer.shape) if layer.shape is not None else ""] if output else []
        what = (
            (layer.kernel, layer.operator, *shape, "")
            if layer.loop
            else (layer.name, layer.operator, *shape, layer.kernel)
        )
        rows.add_row(*what, *_counts(layer, numbers))
        for o in layer.operators if layer.loop else ():
            blank = [""] if output else []
            rows.add_row(f"  {o.name}", o.operator, *blank, o.kernel, *_counts(o, numbers))
    return rows


def _counts(row: ReportedLayer | ReportedOperator, numbers: Sequence[str]) -> list[str]:
    # The figures of a row; nothing for what an operator within a loop does not have for itself.
    return [number(getattr(row, _NUMBERS[name], None)) for name in numbers]


def print_layers(console: Console, report: Report, *numbers: str) -> None:
    console.print(f"\n{report.model} on {report.board}")
    console.print(layer_table(report, *numbers))


def print_real(console: Console, reports: Sequence[Report]) -> None:
    """Print a line for each quantised model that computes some layers in float32."""
    for report in reports:
        text = real_text(report)
        if text:
            console.print(f"{report.model}: {text}")


def npu_text(report: Report) -> str:
    """Return a line about the part of a model that the NPU computes; empty if there is none."""
    npu = report.npu
    if npu is None:
        return ""
    share = f"{npu['macs']:,} of {report.macs:,} MACs ({npu['macs'] / max(report.macs, 1):.0%})"
    calls = f"{npu['calls']} call{'s' if npu['calls'] > 1 else ''}"
    text = f"NPU: {share} in {calls}, {npu['cycles_by_vela']:,} cycles there by Vela's estimate"
    if not npu["slower_calls"]:
        return text
    there, here = npu["slower_cycles_by_vela"], npu["slower_cycles_on_core"]
    what = f"{npu['slower_calls']} of them" if npu["calls"] > 1 else "it"
    return f"{text}; by its model the core takes {here:,} instead of {there:,} for {what}: try crtgen tune"


def print_npu(console: Console, reports: Sequence[Report]) -> None:
    for report in reports:
        text = npu_text(report)
        if text:
            console.print(f"{report.model}, {report.board}, {text}")


def figures_table(reports: Sequence[Report], days: Sequence[float | None] = ()) -> Rows:
    counted = [
        name for name in ("instructions", "cycles") if any(getattr(r, name) is not None for r in reports)
    ]
    sizes = ("flash_bytes", "ram_bytes", "image_flash_bytes", "image_ram_bytes", "stack_bytes")
    headers = ("flash", "RAM", "image flash", "RAM", "stack")
    energy = ["µJ"] if any(r.energy_uj is not None for r in reports) else []
    columns = (*counted, "per MAC", "cycles (estimate)", *energy, *(["days"] if days else []), *headers)
    rows = table("model", "board", "optimize", *columns, right=columns)
    for n, r in enumerate(reports):
        count = r.instructions if r.instructions is not None else r.cycles
        each = f"{count / r.macs:.2f}" if count and r.macs else ""
        counts = (*(number(getattr(r, name)) for name in counted), each, number(r.cycles_estimated))
        counts += (*(number(r.energy_uj) for _ in energy), *([days_text(days[n])] if days else []))
        rows.add_row(r.model, r.board, r.optimize, *counts, *(number(getattr(r, name)) for name in sizes))
    return rows


def arena_line(report: Report) -> str:
    """Return one line with the RAM and flash that the model needs, before anything is built."""
    arena = f"arena {report.arena_bytes:,} bytes ({bound_text(report)})"
    state = f", state {report.state_bytes:,} bytes" if report.state_bytes else ""
    return f"{arena}{state}, weights {report.weights_bytes:,} bytes"
