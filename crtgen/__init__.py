"""crtgen: static C runtimes for Cortex-M from trained networks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from crtgen.base.version import __version__

if TYPE_CHECKING:
    from crtgen.api import (
        Compiled,
        Extracted,
        GeneratedProject,
        Image,
        Imported,
        Model,
        Pipeline,
        compile,
        load,
        open_project,
    )
    from crtgen.api.report import Report
    from crtgen.device.session import Session
    from crtgen.lab.measure.verification import Verdict, verify
    from crtgen.network.passes import Sliding

__all__ = [
    "Compiled",
    "Extracted",
    "GeneratedProject",
    "Image",
    "Imported",
    "Model",
    "Pipeline",
    "Report",
    "Session",
    "Sliding",
    "Verdict",
    "__version__",
    "compile",
    "load",
    "open_project",
    "verify",
]


_ELSEWHERE = {
    "Report": "crtgen.api.report",
    "Session": "crtgen.device.session",
    "Sliding": "crtgen.network.passes",
    "Verdict": "crtgen.lab.measure.verification",
    "verify": "crtgen.lab.measure.verification",
}


def __getattr__(name: str) -> Any:
    """The rest is loaded when it is used first: the program starts, and can be interrupted, at once."""
    if name not in __all__:
        raise AttributeError(f"module 'crtgen' has no attribute {name!r}")
    return getattr(import_module(_ELSEWHERE.get(name, "crtgen.api")), name)
