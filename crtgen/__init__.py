"""crtgen: static C runtimes for Cortex-M from trained networks."""

from crtgen.api import (
    Compiled,
    Extracted,
    Generated,
    Image,
    Imported,
    Model,
    compile,
    load,
    open_project,
)
from crtgen.verification import Verdict, verify
from crtgen.version import __version__

__all__ = [
    "Compiled",
    "Extracted",
    "Generated",
    "Image",
    "Imported",
    "Model",
    "Verdict",
    "__version__",
    "compile",
    "load",
    "open_project",
    "verify",
]
