"""The external generators that are installed."""

import re
from collections.abc import Mapping
from importlib.metadata import entry_points

from crtgen.base.errors import UsageError
from crtgen.compiler.byoc.generator import Generator
from crtgen.compiler.kernels.engine.sources import DeviceContext

__all__ = ["GROUP", "find_generator", "generator_names", "read_generator"]

GROUP = "crtgen.codegen"
"""The group of entry points; each names a subclass of ``Generator``."""
_DEVICE = re.compile(r"([A-Za-z]\w*)(?::(\d{1,9}))?", re.ASCII)


def generator_names() -> tuple[str, ...]:
    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)}))


def find_generator(name: str, options: Mapping[str, str] | None = None) -> Generator:
    """Return the generator of that name; ``UsageError`` if it is not installed, or cannot be loaded.

    Of the options, ``as`` and ``device`` exist for every generator: the name and the device (``npu:1``) of
    this instance. The others are passed to its ``create``.
    """
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
        raise UsageError(
            f"the code generator {name} cannot be loaded: {error}",
            hint="install its package again, and what it imports",
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, Generator)):
        raise UsageError(
            f"the code generator {name} is not a subclass of crtgen.compiler.byoc.Generator",
            hint="its entry point in crtgen.codegen names another object",
        )
    own = dict(options or {})
    instance, device = own.pop("as", ""), own.pop("device", "")
    generator = kind.create(own)
    generator.name = instance or generator.name
    generator.context = _device(device) if device else generator.context
    return generator


def _device(text: str) -> DeviceContext:
    match = _DEVICE.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a device", hint="for example npu, or npu:1")
    return DeviceContext(match[1], int(match[2] or 0))


def read_generator(text: str, settings: Mapping[str, Mapping[str, str]] | None = None) -> Generator:
    """Return the generator that the text ``NAME`` or ``NAME:OPTION=VALUE,...`` requests.

    ``settings`` are options by name; options in the text override them.
    """
    name, _, rest = text.partition(":")
    options: dict[str, str] = {}
    for pair in rest.split(",") if rest else ():
        key, equals, value = pair.partition("=")
        if not key or not equals or key in options:
            raise UsageError(
                f"{pair!r} is not an option, or occurs twice",
                where=text,
                hint="options are NAME=VALUE, separated by commas",
            )
        options[key] = value
    return find_generator(name, {**(settings or {}).get(name, {}), **options})
