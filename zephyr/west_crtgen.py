"""``west crtgen``: crtgen's command line, for the workspace that west is in."""

import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from west.commands import WestCommand

_WITH_PLATFORM = ("run", "verify", "generate", "eval", "replay")


class Crtgen(WestCommand):
    """Hands its arguments to crtgen; commands that build do so for Zephyr."""

    def __init__(self) -> None:
        super().__init__(
            "crtgen",
            "run crtgen for this workspace",
            "Runs `crtgen ARGUMENTS`, with --platform zephyr where that is an option.",
            accepts_unknown_args=True,
        )

    def do_add_parser(self, parser_adder: Any) -> ArgumentParser:
        parser: ArgumentParser = parser_adder.add_parser(
            self.name, help=self.help, description=self.description, add_help=False
        )
        return parser

    def do_run(self, args: Namespace, unknown: list[str]) -> None:
        program = shutil.which("crtgen") or shutil.which("crtgen", path=str(Path(sys.executable).parent))
        if program is None:
            self.die("crtgen is not installed: pip install crtgen")
        command = [program, *unknown]
        if unknown and unknown[0] in _WITH_PLATFORM and "--platform" not in unknown:
            command += ["--platform", "zephyr"]
        status = subprocess.run(command, check=False).returncode
        if status:
            sys.exit(status)
