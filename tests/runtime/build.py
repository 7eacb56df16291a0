"""Compile the runtime, with the toy image, for the machine that runs the tests."""

import json
from importlib.util import find_spec
from pathlib import Path

from tests.support import ROOT, absent, compile_each, require_tool

__all__ = [
    "RUNTIME",
    "SANITIZE",
    "TRAPPED",
    "WARNINGS",
    "compile_program",
    "runtime_sources",
    "vectors_header",
    "zig",
]

RUNTIME = ROOT / "crtgen" / "runtime"
C_DIR = Path(__file__).parent / "c"
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")
TRAPPED = ("-O1", "-fsanitize=undefined", "-fsanitize-trap=undefined")
"""Of Clang, also in the package ziglang: what is undefined ends the program."""
SANITIZE = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def runtime_sources() -> list[Path]:
    """Every source of the runtime."""
    return sorted((RUNTIME / "src").glob("*.c"))


def zig() -> tuple[str, ...]:
    """The command of the C compiler in the package ziglang, or skip (fail in CI)."""
    spec = find_spec("ziglang")
    if spec is None:
        absent("the package ziglang", "pip install ziglang")
    return (str(Path(str(spec.origin)).with_name("zig")), "cc")


def compile_program(
    out: Path, *names: str, compiler: tuple[str, ...] = (), flags: tuple[str, ...] = ()
) -> Path:
    """The runtime, the toy image and ``names`` of the C folder as a program, under the sanitizers."""
    sources = [*runtime_sources(), C_DIR / "toy.c", *(C_DIR / name for name in names)]
    command = [
        *(compiler or (require_tool("gcc"),)),
        *WARNINGS,
        *(flags or SANITIZE),
        "-D_POSIX_C_SOURCE=200809L",
        *(f"-I{folder}" for folder in (RUNTIME / "include", RUNTIME / "src", out.parent)),
    ]
    return compile_each(command, sources, out)


def _literal(data: str) -> str:
    escaped = "".join(f"\\x{data[i : i + 2]}" for i in range(0, len(data), 2))
    return f'(const uint8_t *)"{escaped}", {len(data) // 2}'


def vectors_header() -> str:
    """The golden vectors of the RPC as a C header."""
    vectors = json.loads((ROOT / "tests" / "device" / "rpc" / "vectors.json").read_text())
    rows = "".join(f"    {{{_literal(v['payload'])}, {_literal(v['wire'])}}},\n" for v in vectors)
    return (
        "#include <stddef.h>\n#include <stdint.h>\n\n"
        "struct vector {\n    const uint8_t *payload;\n    size_t payload_size;\n"
        "    const uint8_t *wire;\n    size_t wire_size;\n};\n\n"
        f"static const struct vector vectors[] = {{\n{rows}}};\n"
    )
