"""Layers of a quantised network that are computed in float32."""

from collections.abc import Sequence

from crtgen.api.report.report import Report, ReportedLayer

__all__ = ["real_text"]

_NAMED = 4


def real_text(report: Report) -> str:
    """Say which share of the instructions is float32, and which layers have most of it.

    Empty if no layer, or every weighted layer, is float32, and if there is no plan.
    """
    share = report.float32_share
    if not share:
        return ""
    costs = {layer.name: cost for layer, cost in zip(report.layers, report.costs, strict=True)}
    total = sum(costs.values())
    real = sorted((a for a in report.layers if a.is_float32 and costs[a.name]), key=lambda a: -costs[a.name])
    named = [f"{_title(a)} {_percent(costs[a.name] / total)}" for a in real[:_NAMED]]
    rest = len(real) - len(named)
    places = ", ".join([*named, *([f"{rest} more"] if rest else [])])
    about = "" if _are_measured(report.layers) else "about "
    return f"{about}{_percent(share)} of the instructions are float32: {places}"


def _title(layer: ReportedLayer) -> str:
    # Its name, with its operator if that does not say it.
    return layer.name if layer.operator in layer.name else f"{layer.name} ({layer.operator})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "below 1 %"


def _are_measured(layers: Sequence[ReportedLayer]) -> bool:
    return all(layer.instructions is not None for layer in layers)
