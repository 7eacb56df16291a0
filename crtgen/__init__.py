"""crtgen: static C runtimes for Cortex-M from trained networks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from crtgen.version import __version__

if TYPE_CHECKING:
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
    from crtgen.measure.verification import Verdict, verify

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


def __getattr__(name: str) -> Any:
    """The rest is loaded when it is used first: the program starts, and can be interrupted, at once."""
    if name not in __all__:
        raise AttributeError(f"module 'crtgen' has no attribute {name!r}")
    module = "crtgen.measure.verification" if name in ("Verdict", "verify") else "crtgen.api"
    return getattr(import_module(module), name)
