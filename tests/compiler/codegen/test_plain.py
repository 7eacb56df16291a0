"""Generated C as people read it: its memory map, names for offsets, and nothing that does nothing."""

import re
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from crtgen.boards.core import CORES, HOST
from crtgen.compiler.codegen import generate_c
from crtgen.compiler.codegen.tidy import tidy
from crtgen.compiler.codegen.views import rows_of
from crtgen.compiler.kernels import Target, select
from crtgen.compiler.plan import lifetimes, make_plan
from crtgen.network.ir import Graph
from crtgen.network.ops import all_cases
from tests.compiler.codegen.models import two_layers
from tests.support import few, nightly

_TURNS = re.compile(r"for \((?:int32_t )?(\w+) = (\d+); \1 < (\d+); \1(?:\+\+| \+= (\d+))\)")
_IDLE = re.compile(r"[+-] 0(?![\w.])|[*/] 1(?![\w.])|(?<![\w.])1 \* |(?<![\w.])0 [*/%] | % 1(?![\w.])")


def test_the_header_says_which_buffers_a_run_takes() -> None:
    """It copies with memcpy and checks nothing: a buffer that partly overlaps an arena is undefined."""
    text = re.sub(r"\s+\*?\s*", " ", generate_c(two_layers(), "net").files["net.h"])
    assert "must be one of these places or be outside of every arena" in text


def test_the_map_of_the_arena_is_in_the_source() -> None:
    plan = two_layers()
    module = generate_c(plan, "net")
    head, _, code = module.files["net.c"].partition("*/")
    rows = re.findall(r"^ \* +([\d,]+) +([\d,]+)  (\S+) +(\w+) +[.#]+$", head, re.MULTILINE)
    lives = [life for life in lifetimes(plan) if not life.alias_of]
    constants = dict(re.findall(r"(NET_\w+) = (\d+), /\*", module.files["net_internal.h"]))
    assert len(rows) == len(lives) == 4
    assert all(constants[name] == offset for offset, _, _, name in rows)
    assert sorted(int(nbytes) for _, nbytes, _, _ in rows) == sorted(life.slot.size for life in lives)
    assert {alive for _, _, alive, name in rows if name == "NET_AT_X"} == {"in-2"}
    assert "NET_ARENA + NET_AT_X" in code
    assert not re.search(r"NET_ARENA \+ \d", code)


def test_names_that_capitals_make_equal() -> None:
    module = generate_c(two_layers(layer="H"), "net")
    found = re.findall(r"(NET_AT_\w+) = ", module.files["net_internal.h"])
    assert len(found) == len(set(found)) == 5


def test_packed_words_are_hexadecimal_and_weights_signed() -> None:
    assert list(rows_of(np.array([1, 0xFFFFFFFF], np.uint32))) == ["0x00000001u, 0xffffffffu,"]
    assert list(rows_of(np.array([-128, 5], np.int8))) == ["-128,   5,"]


_ONES = ["cortex-m4", *map(nightly, ("host", "cortex-m0plus", "cortex-m55"))]


_SOME, _ALL = 2, 10_000
_EACH = pytest.mark.parametrize(
    ("level", "each"), [("speed", _SOME), nightly("speed", _ALL), nightly("size", _ALL)]
)
"""Cases of each operator and type."""


@cache
def _sources(core: str, level: str, each: int) -> tuple[tuple[str, tuple[str, ...]], ...]:
    target = Target(HOST if core == "host" else CORES[core], level)
    cases = few(all_cases(), lambda case: [(type(case.op), case.sig.y.dtype)], each)
    return tuple((case.name, tuple(_lines(case.graph(), target))) for case in cases)


@_EACH
@pytest.mark.parametrize("core", _ONES)
def test_no_loop_of_one_turn_and_no_term_that_does_nothing(core: str, level: str, each: int) -> None:
    found = [
        (name, line.strip())
        for name, lines in _sources(core, level, each)
        for line in lines
        if _turns(line) < 2 or _IDLE.search(line)
    ]
    assert not found


@_EACH
@pytest.mark.parametrize("core", _ONES)
def test_blocks_end_where_their_first_lines_begin(core: str, level: str, each: int) -> None:
    """What rewrites them relies on it: a brace in the first column ends a function."""
    wrong = set[str]()
    for name, lines in _sources(core, level, each):
        depth = 0
        for line in lines:
            depth += line.count("{") - line.count("}")
            if line in ("}", "};") and depth:
                wrong.add(name)
    assert not wrong


def _lines(graph: Graph, target: Target) -> Iterator[str]:
    module = generate_c(make_plan(graph, select(graph, target)), "net")
    for name, text in module.files.items():
        if name.endswith(".c"):
            yield from re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).splitlines()


def _turns(line: str) -> int:
    match = _TURNS.search(line)
    return len(range(int(match[2]), int(match[3]), int(match[4] or 1))) if match else 2


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("    x += 0 * 8 + 4 * 1;", "    x += 4;"),
        ("    x = y[(0 * 2 + 0) * 8 + 1];", "    x = y[1];"),
        ("    x = f(0) * 10 + 0.5f - 1.0f * 0.25f;", "    x = f(0) * 10 + 0.5f - 1.0f * 0.25f;"),
        ("    x = (int32_t)(0) + 10 * 1 + a % 1;", "    x = (int32_t)(0) + 10;"),
        ("    x = ring + (first) % 1 * 28;", "    x = ring;"),
        ("    x = a + 0 * b[1] - 0x10;", "    x = a + 0 * b[1] - 0x10;"),
        ("    (void)memset(to, -11, 0 * sizeof *to);",) * 2,
        ("    for (int32_t i = 0; i < 1; i++) {\n        x[i * 2] = 3;\n    }", "    x[0] = 3;"),
        ("    for (int32_t i = 0; i < 4; i += 4)\n    {\n        x[i] = 3;\n    }", "    x[0] = 3;"),
        ("    a();\n    for (int32_t i = 1; i < 1; i++) {\n        x[i] = 3;\n    }", "    a();"),
        ("    for (int32_t i = 0; i < 2; i++) {\n        x[i] = 3;\n    }",) * 2,
        ("    for (int32_t i = 0; i < 1; i++) {\n        break;\n    }",) * 2,
        (
            "    for (int32_t i = 0; i < 1; i++) {\n        int32_t a = i;\n    }\n    a = 3;",
            "    {\n        int32_t a = 0;\n    }\n    a = 3;",
        ),
    ],
)
def test_what_is_tidied(body: str, wanted: str) -> None:
    assert tidy(f"void f(void)\n{{\n{body}\n}}\n") == f"void f(void)\n{{\n{wanted}\n}}\n"
