"""The compilers with which a project can be built, and the programs that run the build."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from crtgen.base.child import run_to_end
from crtgen.base.errors import ToolMissingError, UsageError
from crtgen.base.installing import how_to_install

__all__ = ["TOOLCHAINS", "Recipe", "Toolchain", "detect_toolchains", "find_program", "find_toolchain"]


@dataclass(frozen=True, slots=True)
class Toolchain:
    """An installed compiler.

    ``name`` is the stem of the project's ``cmake/<name>.cmake``; ``program`` is the compiler's path,
    ``version`` the first line of its version text. ``variables`` are the environment variables with which
    those CMake files find the program.
    """

    name: str
    program: Path
    version: str
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """Ways to find a toolchain: programs in order of preference, and the package that installs them.

    ``variables`` are environment variables that name the program, or its prefix if they end in ``_PREFIX``.
    ``package`` is an alternative on PyPI. ``libc`` is a C library that a specs file selects.
    """

    programs: tuple[str, ...]
    version: str
    install: str
    variables: tuple[str, ...] = ()
    package: str = ""
    libc: str = ""


_PREFIX = "_PREFIX"

TOOLCHAINS: Mapping[str, Recipe] = {
    "gcc": Recipe(
        ("arm-none-eabi-gcc",),
        "--version",
        f"{how_to_install('arm-none-eabi-gcc')}, or use --toolchain zig",
        ("ARM_GCC_PREFIX",),
    ),
    "zig": Recipe(("zig",), "version", "pip install ziglang", ("ZIG",), "ziglang"),
    "picolibc": Recipe(
        ("arm-none-eabi-gcc",),
        "--version",
        "apt install gcc-arm-none-eabi picolibc-arm-none-eabi",
        ("ARM_GCC_PREFIX",),
        libc="picolibc",
    ),
    "cc": Recipe(("cc", "gcc", "clang"), "--version", how_to_install("cc"), ("CC",)),
}
"""Toolchains by name.

``gcc`` (arm-none-eabi), ``zig`` and ``picolibc`` (GCC with that C library) compile for Cortex-M, ``cc`` for
this computer.
"""


def find_toolchain(name: str) -> Toolchain:
    """Find a toolchain by name. Raises ``ToolMissingError``, which says how to install it."""
    if name not in TOOLCHAINS:
        raise UsageError(f"unknown toolchain {name}", hint=f"known: {', '.join(TOOLCHAINS)}")
    recipe = TOOLCHAINS[name]
    for candidate in _candidates(recipe):
        program = _which(candidate, recipe.package)
        if program is not None:
            named = tuple(v for v in recipe.variables if not v.endswith(_PREFIX))
            return Toolchain(name, program, _version(program, recipe), named)
    raise ToolMissingError(
        f"{recipe.programs[0]} is not installed: the toolchain {name} needs it", hint=recipe.install
    )


def detect_toolchains() -> dict[str, Toolchain | ToolMissingError]:
    """Return every toolchain that crtgen supports, or the reason why it cannot be used."""

    def attempt(name: str) -> Toolchain | ToolMissingError:
        try:
            return find_toolchain(name)
        except ToolMissingError as error:
            return error

    return {name: attempt(name) for name in TOOLCHAINS}


def find_program(name: str, install: str) -> Path:
    """Return ``cmake`` or ``ninja`` from the PATH, from beside the interpreter, or from its PyPI package."""
    path = _which(name, name)
    if path is None:
        raise ToolMissingError(f"{name} is not installed", hint=install)
    return path


def _candidates(recipe: Recipe) -> tuple[str, ...]:
    # The programs to look for: what a variable names is the only one.
    for variable in recipe.variables:
        value = os.environ.get(variable)
        if value:
            return (value + recipe.programs[0].rpartition("-")[2] if variable.endswith(_PREFIX) else value,)
    return recipe.programs


def _which(program: str, package: str) -> Path | None:
    beside = str(Path(sys.executable).parent)
    found = shutil.which(program) or shutil.which(program, path=beside)
    if found is None and package and find_spec(package) is not None:
        found = _PACKAGES[package]()
    return Path(found) if found else None


def _in_cmake() -> str | None:
    import cmake

    return shutil.which("cmake", path=cmake.CMAKE_BIN_DIR)


def _in_ninja() -> str | None:
    import ninja

    return shutil.which("ninja", path=ninja.BIN_DIR)


def _in_ziglang() -> str | None:
    spec = find_spec("ziglang")
    return shutil.which("zig", path=str(Path(str(spec.origin)).parent)) if spec else None


_PACKAGES: Mapping[str, Callable[[], str | None]] = {
    "cmake": _in_cmake,
    "ninja": _in_ninja,
    "ziglang": _in_ziglang,
}


def _version(program: Path, recipe: Recipe) -> str:
    specs = [f"--specs={recipe.libc}.specs"] if recipe.libc else []
    try:
        code, output = run_to_end([program, *specs, recipe.version], time_limit=30)
    except OSError as error:
        code, output = -1, str(error)
    if code != 0:
        raise ToolMissingError(
            f"{program} does not run: {output.strip() or f'code {code}'}",
            hint=recipe.install if recipe.libc else "reinstall it or remove it from the PATH",
        )
    return output.strip().partition("\n")[0] + (f" with {recipe.libc}" if recipe.libc else "")
