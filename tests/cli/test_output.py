"""What is printed: names and paths as they are."""

from io import StringIO

import pytest
from rich.console import Console

from crtgen.base.errors import UsageError
from crtgen.base.text import printable
from crtgen.cli.output import Output, Rows, on_log, report, table

ODD = "a[/b] :x: [exact].npz"


def test_results_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    def render(console: Console) -> None:
        console.print(f"read {ODD}")
        rows = table("", "file")
        rows.add_row("1", ODD)
        console.print(rows)

    Output(as_json=False).result({}, render)
    first, _, last = capsys.readouterr().out.splitlines()
    assert first == f"read {ODD}"
    assert last.split(maxsplit=1) == ["1", ODD]


def test_errors_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    report(UsageError("no such file", where=ODD, hint=f"name {ODD}", log=f"> {ODD}"), as_json=False)
    assert capsys.readouterr().err.splitlines() == [
        f"  | > {ODD}",
        f"error: {ODD}: no such file",
        f"hint:  name {ODD}",
    ]


def test_control_characters_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;owned\x07\x1b[2Ja\rb\x9b31m\u202e\udc80\x00"
    shown = r"\x1b]0;owned\x07\x1b[2Ja\rb\x9b31m\u202e\udc80\x00"

    def render(console: Console) -> None:
        console.print(evil)
        rows = table(evil, "file")
        rows.add_row(evil, "x")
        console.print(rows)

    Output(as_json=False).result({}, render)
    report(UsageError(evil, where=evil, hint=evil, log=evil), as_json=False)
    on_log(evil)
    report(UsageError(evil), as_json=True)
    printed = capsys.readouterr()
    assert not [c for c in printed.out + printed.err if not c.isprintable() and c != "\n"]
    assert printed.out.count(shown) == 3
    assert printed.err.count(shown) == 4  # the log is split where its lines end
    assert printable("Größe 3 µs\n\tλ") == "Größe 3 µs\n\tλ"


def printed(rows: Rows, width: int) -> list[str]:
    console = Console(width=width, soft_wrap=True, record=True, file=StringIO())
    console.print(rows)
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_a_table_that_is_too_wide_becomes_lines_and_nothing_is_cut() -> None:
    rows = table("board", "core", "instructions", "", right=("instructions",))
    rows.add_row("mps2_an386", "cortex-m4", "2,375,960", "a Cortex-M4 with FPU")
    rows.add_row("a_board_with_a_very_long_name", "", "7", "x" * 50)
    assert printed(rows, 110) == [
        "board                          core       instructions",
        "mps2_an386                     cortex-m4     2,375,960  a Cortex-M4 with FPU",
        f"a_board_with_a_very_long_name                        7  {'x' * 50}",
    ]
    assert printed(rows, 40) == [
        "mps2_an386",
        "  core cortex-m4  instructions 2,375,960",
        "  a Cortex-M4 with FPU",
        "a_board_with_a_very_long_name",
        "  instructions 7",
        f"  {'x' * 50}",
    ]
