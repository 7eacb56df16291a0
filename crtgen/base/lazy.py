"""Packages that import a name when it is first used, so that a command only loads what it needs."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["on_demand"]


def on_demand(package: str, file: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package. Its names are those that ``__init__.py`` imports for type
    checkers.

    A package that exports a function must not have a module of the same name, because the module would
    replace the function.
    """
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0]
    modules = {alias.name: node.module or "" for node in imports for alias in node.names}

    def load(name: str) -> Any:
        if not modules.get(name, "").startswith(f"{package}."):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
