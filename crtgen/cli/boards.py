"""``crtgen boards``: what there is to run on."""

from rich.console import Console

from crtgen.boards import all_boards, size_text
from crtgen.cli.output import Debug, Json, guarded, table

__all__ = ["command"]


def command(as_json: Json = False, debug: Debug = False) -> None:
    """List the boards."""
    with guarded(as_json, debug) as out:
        boards = all_boards()
        data = {
            "boards": [
                {
                    "name": b.name,
                    "summary": b.summary,
                    "core": b.core.name,
                    "flash_bytes": b.flash,
                    "ram_bytes": b.ram,
                    "qemu": b.qemu.machine if b.qemu else None,
                }
                for b in boards
            ]
        }

        def render(console: Console) -> None:
            rows = table("board", "core", "flash", "RAM", "QEMU", "", right=("flash", "RAM"))
            for b in boards:
                sizes = ("", "") if b.is_host else (size_text(b.flash), size_text(b.ram))
                rows.add_row(b.name, b.core.name, *sizes, b.qemu.machine if b.qemu else "", b.summary)
            console.print(rows)

        out.result(data, render)
