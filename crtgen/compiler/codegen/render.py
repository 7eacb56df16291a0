"""Template rendering: the only way from a template to text."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined

from crtgen.base.resources import templates_dir

__all__ = ["render", "render_pieces"]

_PIECES = 1000  # of a template, which become one of the text


def _compiled() -> FileSystemBytecodeCache | None:
    # Cache of compiled templates, below the system's temporary directory, for this user alone. Compiling them
    # takes longer than compiling a model. None if no such directory can be made.
    try:
        return FileSystemBytecodeCache()
    except (OSError, RuntimeError):
        return None


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(templates_dir()),
        bytecode_cache=_compiled(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        auto_reload=False,
    )


def render(template: str, **context: Any) -> str:
    """Return ``templates/<template>`` rendered with ``context``, usually one frozen view dataclass.

    All decisions are made in the view: templates only have loops and ifs on its fields, no arithmetic. A name
    that is not in the context raises ``jinja2.UndefinedError``.
    """
    return _environment().get_template(template).render(**context)


def render_pieces(template: str, **context: Any) -> Iterator[str]:
    pieces = _environment().get_template(template).stream(**context)
    pieces.enable_buffering(_PIECES)
    yield from pieces
