"""The page: a single HTML file that works offline and can be printed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crtgen.api.report import Report, ReportedLayer, bound_text
from crtgen.base.version import __version__
from crtgen.lab.html import charts
from crtgen.lab.html.met import Met, panel
from crtgen.lab.html.parts import Drawing, HtmlTable, drawn, environment
from crtgen.lab.html.study import OnBoard, Study
from crtgen.lab.measure.evaluation import Classified, sweep_cells
from crtgen.lab.measure.fit import Fit
from crtgen.lab.measure.targets import TargetOutcome
from crtgen.network.ir import shape_text

__all__ = ["render_page", "render_plan", "stand_in_text"]

Baseline = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _BoardView:
    name: str
    summary: str
    facts: tuple[tuple[str, str], ...]
    parts: tuple[Drawing | HtmlTable, ...]


def render_page(
    study: Study,
    baseline: Baseline | None = None,
    days: Mapping[str, float | None] | None = None,
    met: Met | None = None,
) -> str:
    """Return the page of a study, compared with ``baseline``, the reports of an earlier study by board.

    ``met`` are the counts from a device.
    """
    boards = [
        _board(on, (baseline or {}).get(on.report.board), (days or {}).get(on.report.board))
        for on in study.boards
    ]
    first = study.boards[0]
    shared: list[Drawing | HtmlTable] = [_network(first.report)]
    shared += _quality(study)
    shared += panel(met) if met is not None else []
    if ranges := charts.ranges(first.plan.graph):
        says = "The range that each quantised value can hold."
        shared.append(Drawing("Quantisation", says, drawn(ranges)))
    if study.rewrites:
        rows = tuple((hit.rule, hit.node, hit.text) for hit in study.rewrites)
        shared.append(HtmlTable("How the network was rewritten", ("rule", "layer", "what it did"), rows, 3))
    return (
        environment()
        .get_template("report/page.html.j2")
        .render(
            model=study.model,
            version=__version__,
            digest=study.digest,
            date=f"{study.time:%Y-%m-%d %H:%M} UTC",
            verdict=_verdict(study),
            interfaces=_interfaces(first.report),
            macs=f"{first.report.macs:,}",
            folded=_folded(study),
            boards=boards,
            shared=shared,
            fits=_fits(study),
        )
    )


def render_plan(reports: Sequence[Report]) -> str:
    """Return the page of planned models; nothing was built for it.

    Code of an archive has no plan, so only the known facts about its layers are shown.
    """
    boards = []
    for report in reports:
        parts: list[Drawing | HtmlTable] = [*_spent(report, measured=False), _layers(report)]
        if report.arena is not None:
            parts += [_memory(report), _network(report)]
        name = f"{report.model} on {report.board}"
        figures = _figures(report, report.flash_bytes, report.ram_bytes)
        boards.append(_BoardView(name, report.optimize, figures, tuple(parts)))
    template = environment().get_template("report/plan.html.j2")
    return template.render(title=", ".join(r.model for r in reports), boards=boards)


def _quality(study: Study) -> list[HtmlTable]:
    # Quality on labelled data.
    if study.quality is None:
        return []
    made = []
    if isinstance(study.quality.result, Classified):
        result = study.quality.result
        rows = tuple((n, *map(str, row)) for n, row in zip(result.names, result.confusion, strict=True))
        made.append(
            HtmlTable(f"How good it is: {study.quality.text}", ("is, taken for", *result.names), rows)
        )
    if study.quality.thresholds:
        columns, lines = sweep_cells(study.quality.thresholds)
        made.append(HtmlTable("Other thresholds", columns, tuple(lines), 0))
    return made or [HtmlTable("How good it is", ("",), ((study.quality.text,),))]


def _interfaces(report: Report) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (kind, i.name, shape_text(i.shape), i.dtype.value, str(i.quant or ""))
        for kind, listed in (("input", report.inputs), ("output", report.outputs))
        for i in listed
    )


def _folded(study: Study) -> str:
    # Sum of the certificates of removed channels.
    if not study.folded:
        return ""
    before = sum(layer.macs_before for layer in study.folded)
    after = sum(layer.macs_after for layer in study.folded)
    return (
        f"{len(study.folded)} layers have channels that cannot vary, whatever the input: proven constant and"
        f" removed, {before - after:,} of {before:,} multiplications."
    )


def _board(on: OnBoard, before: Mapping[str, Any] | None, days: float | None) -> _BoardView:
    report = on.report
    parts: list[Drawing | HtmlTable] = []
    if before is not None:
        parts.append(_compared(report, before))
    parts += [*_spent(report, measured=bool(on.levels)), _layers(report), _memory(report)]
    if report.image is not None:
        parts.append(Drawing("Flash", "", drawn(charts.flash(report))))
    if on.levels:
        parts.append(Drawing("Levels of optimisation", "", drawn(charts.pareto(on.levels))))
    return _BoardView(report.board, report.optimize, _facts(on, days), tuple(parts))


def _spent(report: Report, measured: bool) -> list[Drawing]:
    # Instructions or modelled cycles by layer, if they are known.
    metric, title = ("instructions",) * 2 if measured else ("cycles_estimated", "estimated cycles")
    if any(getattr(layer, metric) is None for layer in report.layers):
        return []
    return [Drawing(f"Where the {title} go", "", drawn(charts.costs(report, metric, title)))]


def _memory(report: Report) -> Drawing:
    says = f"{report.arena_bytes:,} bytes, {bound_text(report)}."
    return Drawing("Memory over time", says, drawn(charts.arena(report)))


def _network(report: Report) -> Drawing:
    return Drawing("Layers in order", charts.SKIPS, drawn(charts.network(report)))


def _verdict(study: Study) -> str:
    # The answer in one sentence, for who reads no further.
    answers = []
    for on in study.boards:
        time = f" in {_milliseconds(on.fit)} ms" if _milliseconds(on.fit) else ""
        ran, more = on.verified, ""
        if ran.skipped:
            answer = "fits" if on.fit is None or on.fit.fits else "does not fit"
        elif ran.error is not None or ran.failed:
            answer = "FAILED its verification"
        else:
            answer, more = "computes what is expected", f" ({len(ran.verdicts)} cases{stand_in_text(ran)})"
        answers.append(f"{answer} on {on.report.board}{time}{more}")
    return "It " + "; ".join(answers) + "."


def _milliseconds(fit: Fit | None) -> str:
    # Modelled; empty where there is no model, or the board is no product.
    if fit is None or fit.seconds is None or not fit.board.is_real:
        return ""
    return f"{'~ ' * fit.is_assumed}{fit.seconds * 1e3:,.2f}"


def _asleep(on: OnBoard) -> str:
    energy = on.fit.board.energy if on.fit is not None else None
    return f", {energy.asleep}" if energy is not None else ""


def _facts(on: OnBoard, days: float | None) -> tuple[tuple[str, str], ...]:
    report = on.report
    flash, ram = report.flash_bytes, report.ram_bytes
    if on.fit is not None and flash is None:
        flash, ram = on.fit.library.flash, on.fit.library.ram
    lasts = () if days is None else ((f"days on a cell{_asleep(on)}", f"{round(days):,}"),)
    time = _milliseconds(on.fit)
    timed = (("ms, modelled", time),) if time else ()
    return (("verified", _verified(on)), *timed, *_figures(report, flash, ram), *lasts)


def _figures(report: Report, flash: int | None, ram: int | None) -> tuple[tuple[str, str], ...]:
    # Figures, of which those that are not known are left out.
    npu = report.npu or {}
    figures = (
        ("instructions", report.instructions),
        ("cycles, estimated", report.cycles_estimated),
        ("MACs on the NPU", npu.get("macs")),
        ("cycles of the NPU, by Vela", npu.get("cycles_by_vela")),
        ("energy, µJ", report.energy_uj),
        ("flash, bytes", flash),
        ("RAM, bytes", ram),
        ("flash of the image, bytes", report.image_flash_bytes),
        ("RAM of the image, bytes", report.image_ram_bytes),
        ("stack, bytes", report.stack_bytes),
        ("arena, bytes", report.arena_bytes),
        ("state, bytes", report.state_bytes),
        ("weights, bytes", report.weights_bytes),
    )
    return tuple((name, f"{n:,}") for name, n in figures if n is not None)


def _verified(on: OnBoard) -> str:
    outcome = on.verified
    if outcome.skipped:
        return f"not run: {outcome.skipped}"
    if outcome.error is not None:
        return f"error: {outcome.error}"
    count = len(outcome.verdicts)
    return f"{count - outcome.failed} of {count} cases as expected{stand_in_text(outcome)}"


def stand_in_text(outcome: TargetOutcome) -> str:
    # Name the emulator that ran the cases, if it is another board; otherwise an empty text.
    return f", run on {outcome.stand_in}, which has the same core" if outcome.stand_in else ""


def _layers(report: Report) -> HtmlTable:
    # Without columns of which nothing is known.
    rows = tuple(
        (
            layer.name,
            layer.operator,
            layer.kernel,
            f"{layer.macs:,}",
            _number(layer.weights_bytes),
            _number(layer.instructions),
            _number(layer.cycles_estimated),
            _energy(report, layer),
            _number(layer.npu_cycles),
            _per_mac(layer),
        )
        for layer in report.layers
    )
    columns = (
        "layer",
        "operator",
        "kernel",
        "MACs",
        "weights",
        "instructions",
        "cycles",
        "µJ",
        "cycles of the NPU, by Vela",
        "instructions per MAC",
    )
    known = [n for n in range(len(columns)) if any(row[n] for row in rows)]
    return HtmlTable(
        "Layers", tuple(columns[n] for n in known), tuple(tuple(r[n] for n in known) for r in rows), 3
    )


def _energy(report: Report, layer: ReportedLayer) -> str:
    # Microjoules of a layer on the core, as the report's energy is computed.
    if report.energy_uj is None or layer.cycles_estimated is None:
        return ""
    return f"{(report.pj_per_cycle or 0) * report.silicon * layer.cycles_estimated / 1e6:,.2f}"


def _per_mac(layer: ReportedLayer) -> str:
    if not layer.macs or layer.instructions is None or layer.npu_cycles is not None:
        return ""
    return f"{layer.instructions / layer.macs:.2f}"


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _fits(study: Study) -> HtmlTable:
    rows = []
    for fit in study.fits:
        sizes = (fit.library.flash, fit.library.ram, fit.server.flash, fit.server.ram + fit.server.stack)
        time = "" if fit.seconds is None else f"{'~ ' * fit.is_assumed}{fit.seconds * 1e3:,.2f}"
        short = ", ".join(f"{name} {size:,} short" for name, size in fit.short.items())
        answer = "yes" if fit.fits else f"no: {short}" + (f"; {fit.advice} fits" if fit.advice else "")
        rows.append((fit.board.name, fit.board.core.name, answer, *(f"{n:,}" for n in sizes), time))
    columns = (
        "board",
        "core",
        "fits",
        "library flash",
        "RAM",
        "server flash",
        "RAM with stack",
        "ms, estimated",
    )
    return HtmlTable("Which boards hold it", columns, tuple(rows), 3)


_COMPARED = ("instructions", "cycles_estimated", "flash_bytes", "ram_bytes", "stack_bytes", "arena_bytes")


def _compared(report: Report, before: Mapping[str, Any]) -> HtmlTable:
    # Changes of figures, then of the instructions of layers.
    pairs: list[tuple[str, Any, int | None]] = [(m, before.get(m), getattr(report, m)) for m in _COMPARED]
    old = {layer["name"]: layer.get("instructions") for layer in before["layers"]}
    pairs += [(layer.name, old.get(layer.name), layer.instructions) for layer in report.layers]
    rows = tuple(
        (name, f"{a:,}", f"{b:,}", f"{(b - a) / max(a, 1):+.1%}")
        for name, a, b in pairs
        if type(a) is int and b is not None and a != b
    )
    return HtmlTable("What changed since the baseline", ("figure or layer", "before", "now", ""), rows)
