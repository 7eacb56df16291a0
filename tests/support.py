"""What the tests share: where the reference models are, and what to do when a tool is absent."""

import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest
from click.testing import CliRunner
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent

INT8_MODELS = ("ad01_int8", "hello_world_int8", "ic01_int8", "kws_int8", "vww_int8")
FLOAT_MODELS = ("ad01_float32", "hello_world_float", "ic01_float32")

WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror")
CHECKED = ("-O0", *WARNINGS, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
"""How gcc compiles generated code for this computer; what is optimised runs on QEMU."""
BRIEF = ("-fsanitize-undefined-trap-on-error", "--param", "asan-instrumentation-with-call-threshold=0")
"""The same checks in less code, compiled in half of the time: what is undefined just ends the program."""


def absent(what: str, hint: str) -> NoReturn:
    """Skip on a user's machine; fail where CI says that everything has to be there."""
    message = f"{what} is not there: {hint}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def require_rp2040js() -> None:
    """The simulator of the Pico, or ``absent``."""
    from crtgen.base.errors import ToolMissingError
    from crtgen.device.run.rp2040 import find_rp2040js

    try:
        find_rp2040js()
    except ToolMissingError as error:
        absent(str(error), error.hint or "")


def require_tool(program: str, hint: str = "see the README") -> str:
    """Path of a program, or skip (fail in CI)."""
    path = shutil.which(program)
    if path is None:
        absent(program, hint)
    return str(path)


@cache
def qemu_version() -> tuple[int, int]:
    """Major and minor version of the emulator, whose machines change: before 8.0 some have other memories."""
    text = subprocess.run(
        [require_tool("qemu-system-arm"), "--version"], capture_output=True, text=True
    ).stdout
    found = re.search(r"version (\d+)\.(\d+)", text)
    assert found, text
    return int(found[1]), int(found[2])


def copy_checkout(folder: Path) -> None:
    """Copy what a checkout of crtgen runs from into ``folder``, which becomes the root of a repository."""
    for name in ("crtgen", "boards", "templates", "demo", "zephyr", "zephyr_app"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("LICENSE", "docs/misra.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / ".git").mkdir()


def cached(command: Sequence[str]) -> list[str]:
    """The command that compiles one source; gcc's asks the cache first, where there is one."""
    return ["ccache", *command] if "gcc" in Path(command[0]).name and shutil.which("ccache") else [*command]


def compile_each(
    command: Sequence[str], sources: Iterable[Path], program: Path, link: Sequence[str] = ()
) -> Path:
    """A program of C sources, each from the cache where one is asked; ``link`` is what only the linker takes.

    Raises ``AssertionError`` with what the compiler says.
    """
    parts = [*map(str, sources)]
    if (compiler := cached(command)) != [*command]:
        for number, source in enumerate(parts):
            parts[number] = f"{program}{number}.o"
            _run([*compiler, "-c", source, "-o", parts[number]], program.parent)
    _run([*command, *parts, *link, "-o", str(program)], program.parent)
    return program


def _run(command: Sequence[str], folder: Path) -> None:
    """From the folder to which the cache takes paths to be relative."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def check_schema(name: str, *files: Path) -> None:
    """Hold files against a schema that check-jsonschema brings along."""
    checker = pytest.importorskip("check_jsonschema")
    done = CliRunner().invoke(checker.main, ["--builtin-schema", name, *map(str, files)])
    assert done.exit_code == 0, done.output


def nightly(*values: object) -> Any:
    """A row of parameters that the nightly run has, and CI has not."""
    return pytest.param(*values, marks=pytest.mark.nightly)


def few(items: Iterable[T], keys: Callable[[T], Iterable[Hashable]], count: int) -> list[T]:
    """The items with a key that fewer than ``count`` of them before had: some of each, in their order."""
    seen, found = Counter[Hashable](), []
    for item in items:
        own = set(keys(item))
        if any(seen[key] < count for key in own):
            found.append(item)
            seen.update(own)
    return found


def night_seed() -> int:
    """What random tests of the nightly run begin with: another one each day, or ``CRTGEN_RANDOM_SEED``."""
    return int(os.environ.get("CRTGEN_RANDOM_SEED", int(time.time() // 86_400) * 100_000))


def is_gone(pid: int) -> bool:
    """Whether the process ends; a minute is for busy machines."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.01)
    return False


def models_dir() -> Path:
    """The directory of reference models with their expected outputs, or skip (fail in CI)."""
    path = Path(os.environ.get("CRTGEN_MODELS", ROOT.parent / "shared" / "models"))
    if not path.is_dir():
        absent("the directory of reference models", "set CRTGEN_MODELS")
    return path


def exporter_file(name: str) -> Path:
    """A file that an exporter wrote, kept beside the reference models, or skip (fail in CI)."""
    path = models_dir().parent / "exporters" / name
    if not path.is_file():
        absent(str(path), "set CRTGEN_MODELS to a folder beside exporters/")
    return path


def model_path(name: str) -> Path:
    """The `.tflite` file of a reference model."""
    return models_dir() / f"{name}.tflite"


def symbol_table(elf: ELFFile) -> SymbolTableSection:
    """The symbols of an object or an image."""
    table = elf.get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)
    return table
