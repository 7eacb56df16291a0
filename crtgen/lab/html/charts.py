"""The drawings of a page, as SVG by Vega-Lite, with labels for screen readers.

Each is drawn twice, once for wide screens and paper and once for phones, because the text of a scaled-down
drawing is unreadable. The page's style sheet shows one of them, and has colours for light and dark mode.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from crtgen.api.report import Report, ReportedLayer
from crtgen.base.errors import UsageError
from crtgen.network.ir import Graph

__all__ = [
    "SKIPS",
    "arena",
    "choices",
    "costs",
    "flash",
    "network",
    "pareto",
    "ranges",
    "require_charts",
    "shares",
]

_INK, _FAINT, _ONE, _TWO, _THREE, _FOUR = (f"#fe00{n:02x}" for n in range(6))
_VARIABLES = {
    _INK: "var(--ink)",
    _FAINT: "var(--faint)",
    _ONE: "var(--one)",
    _TWO: "var(--two)",
    _THREE: "var(--three)",
    _FOUR: "var(--four)",
}
# Pixels of a drawing with its labels, on a desk and on a phone.
_BROAD, _NARROW = 900, 356
# Pixels of an axis and its labels, and of a letter in a box.
_AXIS, _LETTER = 90, 7

_ROW = 22

SKIPS = "Values that skip layers are arcs."
"""Caption of ``network``."""

Rows = Sequence[Mapping[str, Any]]


def costs(report: Report, metric: str, title: str) -> str:
    """Return a bar chart of the layers; ``metric`` is a field of ``ReportedLayer``."""
    rows = [
        {"layer": f"{i}. {layer.name}", "value": getattr(layer, metric), "kernel": layer.kernel}
        for i, layer in enumerate(report.layers, 1)
    ]
    bars = {
        "mark": {"type": "bar", "color": _ONE},
        "encoding": {
            "y": {"field": "layer", "type": "nominal", "sort": None, "title": None},
            "x": {"field": "value", "type": "quantitative", "title": title},
        },
    }
    return _svg(f"{title} of each layer", rows, bars, height=_ROW * len(rows))


def arena(report: Report) -> str:
    # Return the arena as a picture: steps to the right, offsets upwards, a box for each value.
    rows: list[dict[str, Any]] = [
        {
            "name": place.name,
            "from": place.first - 0.45,
            "to": place.last + 0.45,
            "low": place.offset,
            "high": place.offset + place.nbytes,
            "kind": "scratch" if place.is_scratch else "value",
            "says": f"{place.name}: {place.nbytes:,} bytes at {place.offset:,},"
            f" steps {place.first} to {place.last}",
        }
        for place in report.arena or ()
        if not place.alias_of and not place.part
    ]
    for row in rows:
        row["middle"], row["centre"] = (row["from"] + row["to"]) / 2, (row["low"] + row["high"]) / 2
    boxes = {
        "mark": {"type": "rect", "stroke": _INK, "strokeWidth": 0.7, "opacity": 0.85},
        "encoding": {
            "x": {
                "field": "from",
                "type": "quantitative",
                "title": "step",
                "axis": {"tickMinStep": 1, "format": "d"},
                "scale": {"zero": False, "nice": False},
            },
            "x2": {"field": "to"},
            "y": {"field": "low", "type": "quantitative", "title": "offset in bytes"},
            "y2": {"field": "high"},
            "color": {
                "field": "kind",
                "scale": {"domain": ["value", "scratch"], "range": [_ONE, _TWO]},
                "legend": {"title": None, "orient": "top"},
            },
            "description": {"field": "says"},
        },
    }
    least = report.arena_bytes / 20  # what is lower has no room for letters
    names = {
        "mark": {"type": "text", "color": _INK, "fontSize": 11, "aria": False},
        "transform": [{"filter": f"datum.high - datum.low > {least}"}],
        "encoding": {
            "x": {"field": "middle", "type": "quantitative"},
            "y": {"field": "centre", "type": "quantitative"},
            "text": {"field": "label"},
        },
    }
    title = f"The arena of {report.arena_bytes:,} bytes over the steps of a run"
    steps = max((place.last for place in report.arena or ()), default=0) + 1
    return "".join(
        _drawn(title, _labelled(rows, (width - _AXIS) / steps), {"layer": [boxes, names]}, 320, width)
        for width in (_BROAD, _NARROW)
    )


def _labelled(rows: Rows, step: float) -> Rows:
    # Shorten names so that they fit into their boxes; one step is ``step`` pixels wide.
    return [
        {**row, "label": _shortened(row["name"], int((row["to"] - row["from"]) * step / _LETTER))}
        for row in rows
    ]


def _shortened(name: str, letters: int) -> str:
    # Shortens a name; empty if too little of it would be left to recognise it.
    if len(name) <= letters:
        return name
    return f"{name[: letters - 1]}…" if letters > 4 else ""


def shares(rows: Rows) -> str:
    # Bars of ``share`` beside each other for each ``bin``, one for each name in ``of``.
    colours = {"domain": ["counted", "usual"], "range": [_ONE, _FOUR]}
    bars = {
        "mark": {"type": "bar"},
        "encoding": {
            "x": {"field": "bin", "type": "ordinal", "title": None, "axis": {"labelAngle": 0}},
            "xOffset": {"field": "of"},
            "y": {"field": "share", "type": "quantitative", "title": "share"},
            "color": {"field": "of", "scale": colours, "title": None},
        },
    }
    return _svg("shares of each bin", rows, bars, height=_ROW * 8)


def flash(report: Report) -> str:
    groups = report.image.sizes.groups if report.image else {}
    rows = [{"part": name, "bytes": group.flash} for name, group in groups.items() if group.flash]
    bar = {
        "mark": {"type": "bar", "color": _THREE},
        "encoding": {
            "y": {"field": "part", "type": "nominal", "sort": "-x", "title": None},
            "x": {"field": "bytes", "type": "quantitative", "title": "bytes of flash"},
        },
    }
    return _svg("Flash by what it holds", rows, bar, height=_ROW * max(len(rows), 1))


def pareto(levels: Sequence[Report]) -> str:
    rows = [{"level": r.optimize, "flash": r.flash_bytes, "instructions": r.instructions} for r in levels]
    place = {
        "x": {"field": "flash", "type": "quantitative", "title": "bytes of flash", "scale": {"zero": False}},
        "y": {"field": "instructions", "type": "quantitative", "scale": {"zero": False}},
    }
    marks = {
        "layer": [
            {"mark": {"type": "point", "filled": True, "size": 90, "color": _ONE}, "encoding": place},
            {
                "mark": {"type": "text", "dx": 8, "dy": -10, "align": "left", "color": _INK},
                "encoding": {**place, "text": {"field": "level"}},
            },
        ]
    }
    return _svg("Instructions over flash at each level", rows, marks, height=220)


def choices(model: str, points: Sequence[tuple[str, int, int, bool]]) -> str:
    """Plot instructions over flash: a point has its name, bytes, instructions, and whether it is on the
    Pareto front.
    """
    keys = ("name", "flash", "instructions", "good")
    rows = [dict(zip(keys, point, strict=True)) for point in points]
    place = {
        "x": {"field": "flash", "type": "quantitative", "title": "bytes of flash", "scale": {"zero": False}},
        "y": {"field": "instructions", "type": "quantitative", "scale": {"zero": False}},
    }
    colour = {"condition": {"test": "datum.good", "value": _ONE}, "value": _FAINT}
    marks = {
        "mark": {"type": "point", "filled": True, "size": 70},
        "encoding": {**place, "color": colour, "description": {"field": "name"}},
    }
    return _svg(f"{model}: instructions over flash with each choice of options", rows, marks, height=220)


def ranges(graph: Graph) -> str:
    # Draw a line for each quantised value, from the least that it can hold to the greatest.
    rows = []
    for value in graph.values.values():
        quant = value.quant
        if value.is_constant or quant is None or quant.axis is not None:
            continue
        limits = np.iinfo(value.dtype.value)
        rows.append(
            {
                "value": value.name,
                "low": (limits.min - quant.zero_point) * quant.scale,
                "high": (limits.max - quant.zero_point) * quant.scale,
            }
        )
    lines = {
        "mark": {"type": "rule", "strokeWidth": 6, "color": _FOUR},
        "encoding": {
            "y": {"field": "value", "type": "nominal", "sort": None, "title": None},
            "x": {"field": "low", "type": "quantitative", "title": "value"},
            "x2": {"field": "high"},
        },
    }
    return _svg("Ranges of quantised values", rows, lines, height=_ROW * max(len(rows), 1)) if rows else ""


def network(report: Report) -> str:
    # Return the layers from top to bottom; values that skip layers are arcs beside them.
    layers = report.layers
    boxes = [{"row": i, "name": _label(layer)} for i, layer in enumerate(layers)]
    arcs = [
        {"arc": f"{first}-{last}", "row": row, "x": x, "order": order}
        for first, last in _skips(layers)
        for order, (row, x) in enumerate(_arc(first, last, len(layers)))
    ]
    scale = {"domain": [-0.5, len(layers) - 0.5], "reverse": True}
    y = {"field": "row", "type": "quantitative", "axis": None, "scale": scale}
    x = {"type": "quantitative", "axis": None, "scale": {"domain": [-3 if arcs else 0, 10]}}
    links = [
        {"row": i + 0.3, "end": i + 0.7} for i in range(len(layers) - 1) if _follows(layers[i], layers[i + 1])
    ]
    marks = {
        "layer": [
            {
                "data": {"values": arcs},
                "mark": {"type": "line", "interpolate": "basis", "color": _TWO, "strokeWidth": 1.5},
                "encoding": {
                    "x": {"field": "x", **x},
                    "y": y,
                    "detail": {"field": "arc"},
                    "order": {"field": "order"},
                },
            },
            {
                "data": {"values": links},
                "mark": {"type": "rule", "color": _FAINT, "strokeWidth": 1.5},
                "encoding": {"x": {"datum": 5, **x}, "y": y, "y2": {"field": "end"}},
            },
            {
                "mark": {"type": "rect", "color": _ONE, "opacity": 0.18, "height": 15, "cornerRadius": 3},
                "encoding": {"x": {"datum": 0, **x}, "x2": {"datum": 10}, "y": y},
            },
            {
                "mark": {"type": "text", "color": _INK, "limit": 300},
                "encoding": {"x": {"datum": 5, **x}, "y": y, "text": {"field": "name"}},
            },
        ]
    }
    return _svg(f"The network: {len(layers)} layers", boxes, marks, height=26 * len(layers))


def _label(layer: ReportedLayer) -> str:
    shape = "" if layer.shape is None else f"  {'x'.join(map(str, layer.shape))}"
    return f"{layer.name} ({layer.operator}){shape}"


def _follows(before: ReportedLayer, after: ReportedLayer) -> bool:
    return bool(set(before.outputs or ()) & set(after.inputs or ()))


def _skips(layers: Sequence[ReportedLayer]) -> Iterable[tuple[int, int]]:
    # Pairs of layers of which the second, not the next one, reads what the first computes.
    made = {name: i for i, layer in enumerate(layers) for name in layer.outputs or ()}
    for last, layer in enumerate(layers):
        for name in layer.inputs or ():
            if name in made and last - made[name] > 1:
                yield made[name], last


def _arc(first: int, last: int, count: int) -> list[tuple[float, float]]:
    # From the left side of one box to that of the other; the longer, the farther out.
    out = -0.6 - 2.2 * (last - first) / count
    return [(first, 0.0), (first + 0.1, out), ((first + last) / 2, out), (last - 0.1, out), (last, 0.0)]


def require_charts() -> Any:
    """Return the drawing package. Raises ``UsageError`` if it is not installed."""
    try:
        import vl_convert
    except ImportError as error:
        raise UsageError("a page needs vl-convert-python", hint="pip install 'crtgen[report]'") from error
    return vl_convert


def _svg(title: str, rows: Rows, marks: Mapping[str, Any], height: int) -> str:
    return "".join(_drawn(title, rows, marks, height, width) for width in (_BROAD, _NARROW))


def _drawn(title: str, rows: Rows, marks: Mapping[str, Any], height: int, width: int) -> str:
    vl_convert = require_charts()
    is_narrow = width == _NARROW
    axis = {
        "labelColor": _INK,
        "titleColor": _INK,
        "gridColor": _FAINT,
        "domainColor": _FAINT,
        "tickColor": _FAINT,
    }
    chart = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "description": title,
        "background": None,
        "padding": {"left": 0 if is_narrow else 16, "right": 16, "top": 8, "bottom": 8},
        "autosize": {"type": "fit-x", "contains": "padding"},
        "width": width,
        "height": height,
        "data": {"values": list(rows)},
        "config": {
            "axis": {
                **axis,
                "labelFontSize": 11,
                "labelSeparation": 8,
                "labelLimit": 110 if is_narrow else 220,
                "gridOpacity": 0.4,
                "titlePadding": 4 if is_narrow else 14,
            },
            **({"axisQuantitative": {"tickCount": 5}} if is_narrow else {}),
            "legend": {"labelFontSize": 11, "labelColor": _INK, "titleColor": _INK},
            "view": {"stroke": None},
            "font": "DejaVu Sans, Verdana, sans-serif",
        },
        **marks,
    }
    svg: str = vl_convert.vegalite_to_svg(chart, vl_version="5.20")
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    kind = "narrow" if is_narrow else "broad"
    svg = svg.replace('class="marks"', f'class="marks {kind}"', 1)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)
