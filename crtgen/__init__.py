"""crtgen: static C runtimes for Cortex-M from trained networks."""

from crtgen.api import (
    Compiled,
    Extracted,
    Generated,
    Image,
    Imported,
    Model,
    Verdict,
    compile,
    load,
    open_project,
    verify,
)
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
