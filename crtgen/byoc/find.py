"""The external generators that are installed."""

from collections.abc import Mapping
from importlib.metadata import entry_points

from crtgen.byoc.generator import Generator
from crtgen.errors import UsageError

__all__ = ["GROUP", "find_generator", "generator_names"]

GROUP = "crtgen.codegen"
"""The group of entry points; each names a subclass of ``Generator``."""


def generator_names() -> tuple[str, ...]:
    """The names of the installed generators."""
    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)}))


def find_generator(name: str, options: Mapping[str, str] | None = None) -> Generator:
    """The generator of that name; ``UsageError`` if none is installed, or if it cannot be loaded."""
    found = entry_points(group=GROUP, name=name)
    if not found:
        known = ", ".join(generator_names()) or "none"
        raise UsageError(f"unknown code generator {name}", hint=f"installed: {known}")
    if len({entry.value for entry in found}) > 1:
        packages = ", ".join(sorted(entry.dist.name if entry.dist else "?" for entry in found))
        raise UsageError(f"several packages bring a code generator {name}", hint=packages)
    try:
        kind = next(iter(found)).load()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"the code generator {name} cannot be loaded: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, Generator)):
        raise UsageError(f"the code generator {name} is no subclass of crtgen.byoc.Generator")
    return kind.create(options or {})
