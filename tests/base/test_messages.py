"""Error messages have a subject and a next step; docstrings begin with what they mean."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from crtgen.base.errors import CorruptModelError, UnsupportedError, UsageError
from tests.support import ROOT


@dataclass
class Found:
    """Texts of errors and docstrings by place, and files with a ``UsageError`` that has no hint."""

    messages: list[tuple[str, str]] = field(default_factory=list)
    docstrings: list[tuple[str, str]] = field(default_factory=list)
    without_hint: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def found() -> Found:
    """All files are parsed once."""
    made = Found()
    for path in sorted((ROOT / "crtgen").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise):
                made.messages += ((f"{name}:{node.lineno}", text) for text in _message(node))
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "UsageError":
                if "hint" not in {keyword.arg for keyword in node.keywords}:
                    made.without_hint.append(name)
            elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                place = f"{name}: {getattr(node, 'name', 'module')}"
                made.docstrings += [(place, text)] if (text := ast.get_docstring(node)) else []
    return made


def _message(node: ast.Raise) -> Iterator[str]:
    if isinstance(node.exc, ast.Call) and node.exc.args:
        message = node.exc.args[0]
        if isinstance(message, ast.Constant | ast.JoinedStr):
            yield ast.unparse(message).removeprefix("f").strip("\"'")


def test_messages_do_not_begin_with_a_pronoun(found: Found) -> None:
    """``it`` makes the reader look for a subject; the file, the option or the layer is named."""
    assert len(found.messages) > 600
    assert [each for each in found.messages if re.match(r"(it|its|they|their)\b", each[1])] == []


def test_a_class_of_errors_has_its_usual_hint() -> None:
    assert CorruptModelError("x").hint == "the file may be damaged: copy or export it again"
    assert CorruptModelError("x", hint="y").hint == "y"
    assert "docs/operators.md" in UnsupportedError("x").hint
    assert UsageError("x").hint == ""


def test_what_a_user_did_wrong_comes_with_a_next_step(found: Found) -> None:
    """Corrupt and unsupported files have a usual hint; each ``UsageError`` needs one of its own.

    Exempt are two that pass on a message of which the words say what is expected.
    """
    assert found.without_hint == ["crtgen/base/toml.py", "crtgen/cli/app.py"]


_RIDDLES = re.compile(r"(What|How|Whether|Of|By|For|Where|As|The same|So many|In place of)\b")


def test_docstrings_do_not_begin_with_a_riddle(found: Found) -> None:
    """A verb or a noun phrase says more: ``Return ...``, ``Bytes of ...``."""
    assert [place for place, text in found.docstrings if _RIDDLES.match(text)] == []


def test_there_are_few_docstrings(found: Found) -> None:
    """One that restates the name and the signature of a class or a function is deleted."""
    assert sum(not place.endswith(": module") for place, _ in found.docstrings) <= 3000
