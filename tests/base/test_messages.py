"""Error messages have a subject and a next step; docstrings begin with what they mean."""

import ast
import re
from collections.abc import Iterator

from crtgen.base.errors import CorruptModelError, UnsupportedError, UsageError
from tests.support import ROOT


def _messages() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each message of an error that is raised."""
    for path in sorted((ROOT / "crtgen").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call) or not node.exc.args:
                continue
            message = node.exc.args[0]
            if isinstance(message, ast.Constant | ast.JoinedStr):
                text = ast.unparse(message).removeprefix("f").strip("\"'")
                yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def test_messages_do_not_begin_with_a_pronoun() -> None:
    """``it`` makes the reader look for a subject; the file, the option or the layer is named."""
    messages = list(_messages())
    assert len(messages) > 600
    assert [each for each in messages if re.match(r"(it|its|they|their)\b", each[1])] == []


def test_a_class_of_errors_has_its_usual_hint() -> None:
    assert CorruptModelError("x").hint == "the file may be damaged: copy or export it again"
    assert CorruptModelError("x", hint="y").hint == "y"
    assert "docs/operators.md" in UnsupportedError("x").hint
    assert UsageError("x").hint == ""


def test_what_a_user_did_wrong_comes_with_a_next_step() -> None:
    """Corrupt and unsupported files have a usual hint; each ``UsageError`` needs one of its own.

    Exempt are two that pass on a message of which the words say what is expected.
    """
    found = []
    for path in sorted((ROOT / "crtgen").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", "") != "UsageError":
                continue
            if "hint" not in {keyword.arg for keyword in node.keywords}:
                found.append(str(path.relative_to(ROOT)))
    assert found == ["crtgen/base/toml.py", "crtgen/cli/app.py"]


_RIDDLES = re.compile(r"(What|How|Whether|Of|By|For|Where|As|The same|So many|In place of)\b")


def test_docstrings_do_not_begin_with_a_riddle() -> None:
    """A verb or a noun phrase says more: ``Return ...``, ``Bytes of ...``."""
    found = []
    for path in sorted((ROOT / "crtgen").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                continue
            if _RIDDLES.match(ast.get_docstring(node) or ""):
                found.append(f"{path.relative_to(ROOT)}: {getattr(node, 'name', 'module')}")
    assert found == []


def test_there_are_few_docstrings() -> None:
    """One that restates the name and the signature of a class or a function is deleted."""
    found = 0
    for path in sorted((ROOT / "crtgen").rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text()))
        found += sum(
            isinstance(n, ast.ClassDef | ast.FunctionDef) and bool(ast.get_docstring(n)) for n in nodes
        )
    assert found <= 3400
