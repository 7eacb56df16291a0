"""Requests of the page as arguments of commands.

A request is a JSON object: the drop, its file, the board, the level, and more for some commands. Nothing in
it becomes an argument unchecked: a board must be a plain name, so it can be neither an option nor a file.
"""

import re
import secrets
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.compiler.level import LEVELS
from crtgen.lab.view.drops import Drop

__all__ = ["COMMANDS", "PAGE", "PROJECT", "Asked"]

PAGE, PROJECT = "page.html", "project"
"""Names of what commands write: the drawings, and the generated project."""

_BOARD = re.compile(r"[a-z][a-z0-9_]{0,63}")
_TYPES = ("server", "standalone", "library")


class Asked:
    # A checked request about the files of a drop. The checks raise ``UsageError``.

    def __init__(self, request: Mapping[str, Any], drop: Drop) -> None:
        self._request = request
        self.drop = drop
        self.folder = drop.folder / f"made-{secrets.token_hex(4)}"
        files.make_directory(self.folder)

    def __contains__(self, key: str) -> bool:
        return key in self._request

    def file(self, key: str = "file") -> Path:
        return self.drop.file(self._request.get(key))

    @property
    def board(self) -> str:
        name = self._request.get("board", "host")
        if not isinstance(name, str) or not _BOARD.fullmatch(name):
            raise UsageError(f"{name!r} is not the name of a board", hint="choose one on the page")
        return name

    def choice(self, key: str, known: Collection[str], usual: str) -> str:
        value = self._request.get(key, usual)
        if not isinstance(value, str) or value not in known:
            raise UsageError(f"{value!r} is not a {key}", hint=f"known: {', '.join(known)}")
        return value

    @property
    def level(self) -> str:
        return self.choice("optimize", LEVELS, "balanced")

    def option(self, name: str) -> list[str]:
        # Return a file of the drop as an option; nothing if none is named.
        return [f"--{name}", str(self.file(name))] if name in self else []

    @property
    def compiled(self) -> list[str]:
        # The model and the choices that decide its code.
        return [str(self.file()), "--board", self.board, "--optimize", self.level]

    @property
    def simulated(self) -> list[str]:
        # On this computer or in a simulator: the page writes to no board that is connected.
        return [*self.compiled, *(["--simulate"] if self.board != "host" else [])]


def _fit(asked: Asked) -> list[str]:
    model, _, _, *level = asked.compiled
    return ["fit", *asked.compiled] if "board" in asked else ["fit", model, *level]


def _eval(asked: Asked) -> list[str]:
    model, *choices = asked.simulated
    return ["eval", model, str(asked.file("data")), *choices, *asked.option("labels")]


def _generate(asked: Asked) -> list[str]:
    model, *choices = asked.compiled
    kind = asked.choice("type", _TYPES, "standalone")
    return ["generate", model, str(asked.folder / PROJECT), *choices, "--type", kind]


COMMANDS: Mapping[str, Callable[[Asked], list[str]]] = {
    "inspect": lambda asked: ["inspect", *asked.compiled, "--page", str(asked.folder / PAGE)],
    "fit": _fit,
    "eval": _eval,
    "verify": lambda asked: ["verify", *asked.simulated, *asked.option("expect")],
    "prove": lambda asked: ["prove", *asked.compiled],
    "generate": _generate,
}
"""Arguments of each command that the page calls, without ``--json``."""
