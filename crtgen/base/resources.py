"""Locations of crtgen's data files, in a checkout as well as in an installed wheel."""

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from crtgen.base.version import __version__

__all__ = [
    "all_files",
    "boards_dir",
    "code_digest",
    "costs_file",
    "demo_dir",
    "footprints_file",
    "license_file",
    "microtvm_dir",
    "misra_file",
    "rp2040_script",
    "runtime_dir",
    "templates_dir",
    "zephyr_app_dir",
]

_PACKAGE = Path(__file__).resolve().parents[1]


def _data(name: str) -> Path:
    installed = _PACKAGE / "_data" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


def all_files() -> Iterator[tuple[str, Path]]:
    """Yield every file of crtgen that can change its output, with its name in a checkout."""
    folders = {"crtgen": _PACKAGE} | {name: _data(name) for name in ("templates", "boards", "zephyr_app")}
    for name, folder in folders.items():
        for path in folder.rglob("*"):
            parts = path.relative_to(folder).parts
            if parts[0] != "_data" and "__pycache__" not in parts and path.is_file():
                yield "/".join((name, *parts)), path


@cache
def code_digest() -> str:
    """Return crtgen's version, followed by the start of a digest of all its files."""
    sha = hashlib.sha256()
    for name, path in sorted(all_files()):
        data = path.read_bytes()
        sha.update(f"{name}\0{len(data)}\0".encode())
        sha.update(data)
    return f"{__version__} {sha.hexdigest()[:16]}"


def templates_dir() -> Path:
    return _data("templates")


def microtvm_dir() -> Path:
    """Directory from which TVM's micro host makes projects: a template for its project API."""
    return _data("templates") / "microtvm"


def boards_dir() -> Path:
    return _data("boards")


def demo_dir() -> Path:
    """Directory of the demonstration model, which recognises handwritten digits, with test cases."""
    return _data("demo")


def costs_file() -> Path:
    """Cost of C blocks in kernels on each core, measured by ``python -m benchmarks.fit_costs``."""
    return _PACKAGE / "compiler" / "kernels" / "engine" / "costs.csv"


def footprints_file() -> Path:
    """Size of an image without its models on each core, measured by ``python -m
    benchmarks.fit_footprints``.
    """
    return _PACKAGE / "firmware" / "project" / "footprints.csv"


def misra_file() -> Path:
    installed = _PACKAGE / "_data" / "misra.md"
    return installed if installed.is_file() else _PACKAGE.parent / "docs" / "misra.md"


def runtime_dir() -> Path:
    """Directory of the C runtime: ``include/``, ``src/``, ``port/``."""
    return _PACKAGE / "runtime"


def license_file() -> Path:
    installed = _PACKAGE / "_data" / "LICENSE"
    return installed if installed.is_file() else _PACKAGE.parent / "LICENSE"


def zephyr_app_dir() -> Path:
    return _data("zephyr_app")


def rp2040_script() -> Path:
    """Node script that runs the simulator rp2040js with a serial port."""
    return _PACKAGE / "device" / "run" / "rp2040.cjs"
