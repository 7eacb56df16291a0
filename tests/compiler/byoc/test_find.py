"""Generators by entry points."""

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from crtgen.base.errors import UsageError
from crtgen.compiler.byoc import CCompiler, ExampleJson, find, find_generator, generator_names


def installed(monkeypatch: pytest.MonkeyPatch, *pairs: tuple[str, str]) -> None:
    made = EntryPoints(EntryPoint(name, value, find.GROUP) for name, value in pairs)
    monkeypatch.setattr(find, "entry_points", lambda **chosen: made.select(**chosen))


def test_shipped() -> None:
    assert {"ccompiler", "examplejson", "cmsis-nn"} <= set(generator_names())
    assert isinstance(find_generator("ccompiler"), CCompiler)
    assert isinstance(find_generator("examplejson"), ExampleJson)


def test_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, ("mine", "tests.compiler.byoc.test_partition:OwnConstants"))
    assert generator_names() == ("mine",)
    assert find_generator("mine").name == "own"


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("absent", "unknown code generator absent", "installed: broken, number, twice"),
        ("broken", "cannot be loaded: No module named 'no_such_module'", ""),
        ("number", "is not a subclass of crtgen.compiler.byoc.Generator", ""),
        ("twice", "several packages bring a code generator twice", ""),
    ],
)
def test_refused(monkeypatch: pytest.MonkeyPatch, name: str, message: str, hint: str) -> None:
    installed(monkeypatch, ("broken", "no_such_module:X"), ("number", "math:pi"),
              ("twice", "crtgen.byoc:CCompiler"), ("twice", "crtgen.byoc:ExampleJson"))  # fmt: skip
    with pytest.raises(UsageError, match=message) as caught:
        find_generator(name)
    assert hint in caught.value.hint


def test_unknown_option() -> None:
    with pytest.raises(UsageError, match="ccompiler has no option speed"):
        find_generator("ccompiler", {"speed": "9"})
