"""crtgen: static C runtimes for Cortex-M from trained networks."""

__version__ = "0.1.0"

from crtgen.api import (
    Compiled,
    Extracted,
    Generated,
    Image,
    Model,
    Verdict,
    compile,
    load,
    open_project,
    verify,
)

__all__ = [
    "Compiled",
    "Extracted",
    "Generated",
    "Image",
    "Model",
    "Verdict",
    "__version__",
    "compile",
    "load",
    "open_project",
    "verify",
]
