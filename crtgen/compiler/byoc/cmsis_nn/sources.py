"""A copy of CMSIS-NN: which of its files a function needs, and how much memory its functions require.

The sizes come from CMSIS-NN itself: its ``*_get_buffer_size_dsp`` and ``_mve`` functions are intended for a
host, so they are compiled for this computer and called.
"""

import ctypes
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from crtgen.base.child import run_to_end
from crtgen.base.errors import BuildError, ToolMissingError, UsageError
from crtgen.base.temporary import TemporaryFolder
from crtgen.compiler.kernels.engine.sources import SourceLibrary

__all__ = ["CmsisSources", "find_sources"]

VARIABLE = "CMSIS_NN_PATH"
_HEADER = "Include/arm_nnfunctions.h"
_DEFINITION = re.compile(r"^(?!static|__STATIC)[A-Za-z_][\w *]*?\b(arm_\w+)\s*\(", re.MULTILINE)
_INLINE = re.compile(r"^__STATIC\w*INLINE\b[^;{(]*?\b(arm_\w+)\s*\(", re.MULTILINE)
_CALL = re.compile(r"\b(arm_\w+)\s*\(")
_TABLE = re.compile(r"^const \w+ (\w+)\[", re.MULTILINE)
_NAME = re.compile(r"\b[A-Za-z_]\w+")
_TIME_LIMIT = 120.0


def find_sources(path: str = "") -> Path:
    """Return the folder of CMSIS-NN: ``path``, or else ``CMSIS_NN_PATH``, or else the module of the west
    workspace.
    """
    if path or os.environ.get(VARIABLE):
        chosen = Path(path or os.environ[VARIABLE])
        if not (chosen / _HEADER).is_file():
            raise UsageError(
                f"the folder has no {_HEADER}", where=str(chosen), hint="name a checkout of CMSIS-NN"
            )
        return chosen
    base = os.environ.get("ZEPHYR_BASE")
    workspace = Path(base).parent if base else Path.home() / "zephyrproject"
    module = workspace / "modules" / "lib" / "cmsis-nn"
    if (module / _HEADER).is_file():
        return module
    raise UsageError(
        "the sources of CMSIS-NN are needed", hint=f"--cmsis-nn PATH, {VARIABLE}, or a west workspace with it"
    )


class CmsisSources:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._temporary: TemporaryFolder | None = None

    def digest(self) -> str:
        """Return the SHA-256 of the names and contents of all sources and headers."""
        sha = hashlib.sha256()
        for folder in ("Include", "Source"):
            for path in sorted((self.root / folder).rglob("*.[ch]")):
                sha.update(f"{path.relative_to(self.root)}\0{path.stat().st_size}\0".encode())
                sha.update(path.read_bytes())
        return sha.hexdigest()

    @cached_property
    def _texts(self) -> Mapping[Path, str]:
        return {p: p.read_text("utf-8", "replace") for p in sorted((self.root / "Source").rglob("*.c"))}

    @cached_property
    def _definitions(self) -> Mapping[str, Path]:
        return {
            name: path
            for path, text in self._texts.items()
            for pattern in (_TABLE, _DEFINITION)
            for name in pattern.findall(text)
        }

    def has_header(self, name: str) -> bool:
        return (self.root / "Include" / name).is_file()

    def defines(self, function: str) -> bool:
        return function in self._definitions

    def called_in(self, code: str) -> list[str]:
        """Return the functions of CMSIS-NN that C code calls, without those that headers define inline."""
        headers = " ".join(p.read_text("utf-8", "replace") for p in (self.root / "Include").rglob("*.h"))
        inline = set(_INLINE.findall(headers))
        return [name for name in dict.fromkeys(_CALL.findall(code)) if name not in inline]

    def library(self, functions: Sequence[str]) -> SourceLibrary:
        waiting, files = list(functions), set[Path]()
        for name in functions:
            if name not in self._definitions:
                raise UsageError(
                    f"this CMSIS-NN has no function {name}",
                    where=str(self.root),
                    hint="use CMSIS-NN 4.1 or later",
                )
        while waiting:
            path = self._definitions.get(waiting.pop())
            if path is not None and path not in files:
                files.add(path)
                waiting += self._definitions.keys() & set(_NAME.findall(self._texts[path]))
        headers = list((self.root / "Include").rglob("*.h"))
        headers += [p for f in files for p in f.parent.glob("*.h")]
        licence = [p for p in (self.root / "LICENSE", self.root / "LICENSE.txt") if p.is_file()]
        chosen = sorted({*files, *headers, *licence})
        contents = tuple((p.relative_to(self.root).as_posix(), p.read_bytes()) for p in chosen)
        return SourceLibrary("cmsis-nn", contents, ("Include",))

    def size(self, function: str, *arguments: ctypes.Structure | int) -> int:
        """Call a ``get_buffer_size`` function and return its result; structures are passed by reference."""
        try:
            call = getattr(self._compiled, function)
        except AttributeError as error:
            raise UsageError(
                f"this CMSIS-NN has no function {function}",
                where=str(self.root),
                hint="CMSIS_NN_PATH names a checkout that is too old: take a newer one",
            ) from error
        given = [ctypes.byref(a) if isinstance(a, ctypes.Structure) else ctypes.c_int(a) for a in arguments]
        call.restype = ctypes.c_int32
        return int(call(*given))

    @cached_property
    def _compiled(self) -> ctypes.CDLL:
        sources = [str(p) for p in self._texts if "_get_buffer_sizes_s" in p.name]
        self._temporary = TemporaryFolder()
        library = self._temporary.path / "sizes.so"
        flags = ["-shared", "-fPIC", "-O1", "-w", "-include", "stdint.h"]  # which 4.1 includes on Arm only
        command = [*_compiler(), *flags, f"-I{self.root / 'Include'}", *sources]
        code, output = run_to_end([*command, "-o", str(library)], time_limit=_TIME_LIMIT)
        if code != 0:
            raise BuildError(
                "the sizes of its structures cannot be computed: the compiler refuses this CMSIS-NN",
                where=str(self.root),
                log=output,
            )
        return ctypes.CDLL(str(library))


def _compiler() -> list[str]:
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is not None:
        return [found]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-P", "-m", "ziglang", "cc"]
    raise ToolMissingError(
        "no C compiler for this computer: CMSIS-NN's buffers are computed with one",
        hint="pip install ziglang",
    )
