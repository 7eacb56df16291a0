"""Do the tests see a fault? Changes one token of crtgen's Python or C at a time and runs the tests near it.

    python -m ci.mutants --count 200 --seed 7

A change is killed where a test fails or takes too long. It is made in a copy of the checkout. What
survives is printed with its place: some of it changes nothing that can be seen, the rest wants a test.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from compileall import compile_dir
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from random import Random
from shutil import copytree, ignore_patterns

ROOT = Path(__file__).resolve().parent.parent
_SECONDS = 1200
_CODE = (".py", ".c", ".c.j2")
_WORDS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "+": "-",
    "-": "+",
    "*": "+",
    "//": "*",
    "%": "+",
    "<<": ">>",
    ">>": "<<",
    "&": "|",
    "|": "&",
    "&&": "||",
    "||": "&&",
    "and": "or",
    "or": "and",
    "min": "max",
    "max": "min",
    "True": "False",
    "False": "True",
}
_C_TOKEN = re.compile(r"(?<= )(<=|>=|==|!=|&&|\|\||<<|>>|[<>+*%&|-])(?= )|\b\d+(?=u?\b)")
_PYTHON_TOKEN = re.compile(
    r"(?<= )(<=|>=|==|!=|//|<<|>>|and|or|[<>+*%&|-])(?= )|\b(min|max)(?=\()"
    r"|(?<!strict=)\bTrue\b|\bFalse\b|(?<!\.)\b\d+\b(?!\.)"
)


@dataclass(frozen=True)
class Mutant:
    """A change of the token at a place of a file, counted from 0."""

    file: Path
    line: int
    column: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line + 1}:{self.column + 1} {self.old} -> {self.new}"

    def apply(self, text: str) -> str:
        """The text of the file with the change."""
        lines = text.splitlines(keepends=True)
        line = lines[self.line]
        assert line[self.column :].startswith(self.old)
        lines[self.line] = line[: self.column] + self.new + line[self.column + len(self.old) :]
        return "".join(lines)


def mutants(file: Path, text: str) -> Iterator[Mutant]:
    """Every change of a file's code; comments, strings and what is said of types are left alone."""
    spared = _spared_of_python(text) if file.suffix == ".py" else _spared_of_c(text)
    token = _PYTHON_TOKEN if file.suffix == ".py" else _C_TOKEN
    for number, line in enumerate(text.splitlines()):
        if line.lstrip().startswith(("#", "import ", "from ", "def ", "class ", "@", "assert ")):
            continue
        for found in token.finditer(line):
            old = found[0]
            new = str(int(old) + 1) if old.isdigit() else _WORDS[old]
            if not any(start <= (number, found.start()) < end for start, end in spared):
                yield Mutant(file, number, found.start(), old, new)


Place = tuple[int, int]


def _spared_of_python(text: str) -> list[tuple[Place, Place]]:
    """From where to where there are strings and annotations, and cases that tests run."""
    tree, parts = ast.parse(text), list[ast.expr | ast.stmt]()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        ):
            parts.append(node)
        elif isinstance(node, ast.AnnAssign):
            parts.append(node.annotation)
        elif isinstance(node, ast.FunctionDef) and node.name.endswith("cases"):
            parts.append(node)
    return [
        ((part.lineno - 1, part.col_offset), (part.end_lineno - 1, part.end_col_offset))
        for part in parts
        if part.end_lineno is not None and part.end_col_offset is not None
    ]


def _spared_of_c(text: str) -> list[tuple[Place, Place]]:
    """The same for comments and strings of C."""

    def place(at: int) -> Place:
        before = text[:at]
        return before.count("\n"), at - (before.rfind("\n") + 1)

    pattern = r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\])+'"
    return [(place(m.start()), place(m.end())) for m in re.finditer(pattern, text, re.DOTALL)]


_OF_CORE = ("algebra", "core")
_NEAR_CORE = "instructions monotone reals fields memory tried recognise core flow attacks claims rules"
"""Tests of single instructions and words. The rest of the checker's are proofs of networks."""


def near(file: Path) -> list[str]:
    """The tests that are run for a change of a file."""
    if file.parts[0] == "crtproof":
        return ["tests/crtproof", "tests/proof/checker/test_attacks.py"]
    if file.parts[:3] == ("crtgen", "proof", "checker") and file.parts[3] in _OF_CORE:
        return [f"tests/proof/checker/test_{name}.py" for name in _NEAR_CORE.split()]
    wing, *rest = file.with_suffix("").parts[1:]
    room = rest[0] if rest else wing
    more = {
        "kernels": ["tests/network/ops"],
        "ops": ["tests/compiler/kernels/test_cases.py", "tests/compiler/plan"],
        "codegen": ["tests/compiler/kernels/test_cases.py", "tests/network/pipeline"],
        "runtime": ["tests/api/slot", "tests/lab/measure/test_drift.py"],
    }
    if wing == "kernels":  # templates of kernels
        wing, room = "compiler", "kernels"
    places = [f"tests/{wing}/{room}", f"tests/{wing}/test_{room}.py"]
    found = [*places, *more.get(room, [])] if rest else [f"tests/{wing}", *more.get(wing, [])]
    return [path for path in found if (ROOT / path).exists()] or ["tests/api/test_api.py", "tests/cli"]


def draw(count: int, seed: int, under: Sequence[str]) -> list[Mutant]:
    """So many changes, each place as likely as any other."""
    files = [f for part in under for f in sorted((ROOT / part).rglob("*")) if f.name.endswith(_CODE)]
    every = [m for f in files for m in mutants(f.relative_to(ROOT), f.read_text(encoding="utf-8"))]
    return Random(seed).sample(every, min(count, len(every)))


def is_killed(mutant: Mutant, copy: Path, tests: Sequence[str]) -> bool:
    """Whether a test fails with the change, or none ends in time."""
    file = copy / mutant.file
    text = file.read_text(encoding="utf-8")
    file.write_text(mutant.apply(text), encoding="utf-8")
    try:
        return not passes(copy, tests)
    finally:
        file.write_text(text, encoding="utf-8")


def passes(copy: Path, tests: Sequence[str]) -> bool:
    """Whether all tests pass, and in time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "-p", "no:cacheprovider", *tests]
    models = os.environ.get("CRTGEN_MODELS", str(ROOT.parent / "shared" / "models"))
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CRTGEN_MODELS": models,
    }
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> None:
    """Draw, run, and print what survives."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time() // 86_400), help="another one each day")
    parser.add_argument(
        "under",
        nargs="*",
        default=["crtgen", "crtproof", "templates"],
        help="folders whose files are changed",
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder) / "crtgen"
        copytree(
            ROOT, copy, ignore=ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", "node_modules")
        )
        # By digests of sources: a file that is changed and changed back within a second is compiled anew.
        compile_dir(copy / "crtgen", quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        chosen = draw(given.count, given.seed, given.under)
        for tests in {tuple(near(mutant.file)) for mutant in chosen}:
            if not passes(copy, tests):
                sys.exit(f"without any change, tests fail: {' '.join(tests)}")
        killed = 0
        for number, mutant in enumerate(chosen, start=1):
            dead = is_killed(mutant, copy, near(mutant.file))
            killed += dead
            print(f"{number} {'killed  ' if dead else 'SURVIVED'} {mutant}", flush=True)
    print(f"{killed} of {len(chosen)} killed (seed {given.seed})")


if __name__ == "__main__":
    main()
