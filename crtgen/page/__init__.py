"""A report as a page: everything that is known of a model on boards, drawn."""

from crtgen.page.charts import require_charts
from crtgen.page.evidence import Claim, check_folder, collect, write_evidence
from crtgen.page.met import Met
from crtgen.page.page import render_page
from crtgen.page.study import Study, read_baseline, study
from crtgen.page.sweep import render_sweep

__all__ = [
    "Claim",
    "Met",
    "Study",
    "check_folder",
    "collect",
    "read_baseline",
    "render_page",
    "render_sweep",
    "require_charts",
    "study",
    "write_evidence",
]
