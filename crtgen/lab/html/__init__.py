"""A report as an HTML page: everything known about a model on boards, as drawings and tables."""

from crtgen.lab.html.charts import require_charts
from crtgen.lab.html.evidence import Claim, check_folder, collect, write_evidence
from crtgen.lab.html.met import Met
from crtgen.lab.html.page import render_page, render_plan
from crtgen.lab.html.study import Study, read_baseline, study
from crtgen.lab.html.sweep import render_sweep

__all__ = [
    "Claim",
    "Met",
    "Study",
    "check_folder",
    "collect",
    "read_baseline",
    "render_page",
    "render_plan",
    "render_sweep",
    "require_charts",
    "study",
    "write_evidence",
]
