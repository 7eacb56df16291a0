"""Reports: everything known about a model on a board, in one structure."""

from typing import TYPE_CHECKING

from crtgen.base.lazy import on_demand

if TYPE_CHECKING:
    from crtgen.api.report.arena import arena_map, bound_text
    from crtgen.api.report.collect import reports_of
    from crtgen.api.report.real import real_text
    from crtgen.api.report.report import ArenaPlace, Report, ReportedLayer, ReportedOperator

__all__ = [
    "ArenaPlace",
    "Report",
    "ReportedLayer",
    "ReportedOperator",
    "arena_map",
    "bound_text",
    "real_text",
    "reports_of",
]

__getattr__ = on_demand(__name__, __file__)
