"""What is printed: names and paths as they are."""

import pytest
from rich.console import Console

from crtgen.cli.output import Output, report, table
from crtgen.errors import UsageError

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
