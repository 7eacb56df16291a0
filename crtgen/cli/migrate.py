"""``crtgen migrate``: finds the network that a TVM archive was made from."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen.api.tvm.migrate import migrate
from crtgen.cli.output import Debug, Json, guarded, table

__all__ = ["command"]


def command(
    archive: Annotated[Path, typer.Argument(help="An archive of TVM (.tar).", show_default=False)],
    source: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="The network that TVM compiled; repeat it for an archive of several models."
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Find the network of an archive of TVM, to run it on crtgen's kernels.

    Without --source, print what the archive lacks. With it, compare inputs, parameters and scales of
    tensors.
    """
    with guarded(as_json, debug) as out:
        found = migrate(archive, source or ())

        def render(console: Console) -> None:
            rows = table("model", "network", "parameters", "scales", right=("parameters", "scales"))
            for one in found:
                rows.add_row(one.model, one.source, str(one.parameters), str(one.scales))
            console.print(rows)
            console.print(f"next: crtgen run {found[0].source} --board BOARD")

        out.result({"archive": str(archive), "models": [one.to_dict() for one in found]}, render)
