"""Writes the functions that a device offers, and the codes of requests, into the C runtime and its SPEC.md.

usage: python tools/endpoints.py [--check]      --check: change nothing, fail if a file is not up to date
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from crtgen.base.endpoints import EXECUTOR, GLOBALS, Endpoint
from crtgen.base.resources import runtime_dir
from crtgen.device.rpc.messages import Code


def _table(endpoints: Iterable[Endpoint[object]]) -> list[str]:
    return [row for endpoint in endpoints for row in endpoint.rows()]


def _page(endpoints: Iterable[Endpoint[object]]) -> list[str]:
    return ["| Name | Arguments | Result |", "|---|---|---|", *(endpoint.line() for endpoint in endpoints)]


PARTS = (
    ("src/crt_globals.c", "static const struct crt_endpoint crt_global_table[] = {", "};", _table(GLOBALS)),
    (
        "src/crt_executor.c",
        "static const struct crt_endpoint crt_executor_table[] = {",
        "};",
        _table(EXECUTOR),
    ),
    ("src/crt_internal.h", "enum crt_rpc_code {", "};", [f"    CRT_RPC_{c.name} = {c.value}," for c in Code]),
    ("SPEC.md", "<!-- global functions: tools/endpoints.py -->", "<!-- end -->", _page(GLOBALS)),
    ("SPEC.md", "<!-- functions of an executor: tools/endpoints.py -->", "<!-- end -->", _page(EXECUTOR)),
)
"""A file, the line before the part that is written, the line behind it, and the part."""


def updated(text: str, first: str, last: str, part: list[str]) -> str:
    """A file's text with the lines between two lines replaced."""
    lines = text.split("\n")
    start = lines.index(first) + 1
    end = lines.index(last, start)
    return "\n".join([*lines[:start], *part, *lines[end:]])


def main() -> str | None:
    stale = []
    for name, first, last, part in PARTS:
        path: Path = runtime_dir() / name
        text = path.read_text()
        wanted = updated(text, first, last, part)
        if wanted != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(wanted)
    if stale and "--check" in sys.argv:
        return f"not up to date: {', '.join(stale)}; run python tools/endpoints.py"
    return None


if __name__ == "__main__":
    sys.exit(main())
