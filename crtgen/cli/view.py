"""``crtgen view``: a local page on which to try models."""

import sys
import webbrowser
from pathlib import Path
from threading import Thread
from typing import Annotated

import typer

from crtgen.base.errors import UsageError
from crtgen.base.temporary import TemporaryFolder
from crtgen.cli.output import Debug, guarded, note
from crtgen.lab.html import require_charts
from crtgen.lab.view import Jobs, ViewServer

__all__ = ["command"]


def command(
    model: Annotated[
        Path | None, typer.Argument(help="A model, pipeline or archive to begin with.", show_default=False)
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page, or only print its address.")
    ] = True,
    debug: Debug = False,
) -> None:
    """Open a local page to try a model on.

    It shows network, boards, memory, levels, accuracy, verification and proof, as the other commands do, and
    runs the model on live inputs. Only this computer can open it; Ctrl-C ends it.
    """
    with guarded(as_json=False, debug=debug), TemporaryFolder() as folder:
        require_charts()
        if model is not None and not model.is_file():
            raise UsageError("there is no such file", where=str(model), hint="check the path")
        jobs = Jobs((sys.executable, "-P", "-m", "crtgen.cli.viewed"))
        with ViewServer(folder, jobs, model) as server:
            try:
                jobs.prepare()
                typer.echo(server.address)
                note("the address works once; Ctrl-C ends the page")
                if browser:  # some browsers return when they are closed
                    Thread(target=webbrowser.open, args=(server.address,), daemon=True).start()
                server.serve_forever()
            finally:
                jobs.close()
