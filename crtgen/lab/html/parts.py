"""Building blocks of pages: drawings, tables, and their templates."""

from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from crtgen.base.resources import templates_dir

__all__ = ["Drawing", "HtmlTable", "drawn", "environment"]


@dataclass(frozen=True, slots=True)
class Drawing:
    title: str
    says: str
    svg: Markup


@dataclass(frozen=True, slots=True)
class HtmlTable:
    # Cells are texts; the columns from ``numbers`` on hold numbers.

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: int = 1


@cache
def environment() -> Environment:
    loader = FileSystemLoader(templates_dir())
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def drawn(svg: str) -> Markup:
    # SVG that ``charts`` made: Vega escapes every text in it.
    return Markup(svg)
