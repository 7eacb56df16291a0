"""What crtgen depends on: bounded above, and locked for CI within the bounds."""

import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement

from crtgen.base.version import __version__
from tests.support import ROOT

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_EXTRAS = [line for lines in _PROJECT["optional-dependencies"].values() for line in lines]
_REQUIREMENTS = [Requirement(line) for line in [*_PROJECT["dependencies"], *_EXTRAS]]
_UNBOUNDED = {"crtgen", "tflite-micro"}
"""Itself, and what has dates for versions."""

_LOCK = {
    requirement.name.lower().replace("_", "-"): next(iter(requirement.specifier)).version
    for line in (ROOT / "ci" / "requirements.lock").read_text().splitlines()
    if not line.startswith("#")
    for requirement in [Requirement(line.partition(" --hash=")[0])]
}


@pytest.mark.parametrize("requirement", _REQUIREMENTS, ids=str)
def test_dependencies_have_upper_bounds_and_are_locked_within_them(requirement: Requirement) -> None:
    if requirement.name not in _UNBOUNDED:
        assert any(bound.operator == "<" for bound in requirement.specifier)
    if requirement.name != "crtgen":
        assert requirement.specifier.contains(_LOCK[requirement.name], prereleases=True)


def test_a_release_is_built_by_what_is_locked() -> None:
    """Otherwise pip would fetch the newest build backend, whatever its digest."""
    text = (ROOT / "ci" / "release").read_text()
    assert "-m build --wheel --no-isolation" in text
    (backend,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert Requirement(backend).name in _LOCK


def test_every_file_of_the_lock_has_its_digest() -> None:
    lines = (ROOT / "ci" / "requirements.lock").read_text().splitlines()[1:]
    assert len(lines) > 150
    for line in lines:
        assert re.fullmatch(r"[\w.-]+==\S+ --hash=sha256:[0-9a-f]{64}", line)


def test_the_recipe_for_conda_needs_the_same() -> None:
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == __version__
    assert recipe["build"]["python"]["entry_points"] == [f"crtgen = {_PROJECT['scripts']['crtgen']}"]
    (backend,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    python = f"python {_PROJECT['requires-python']}"
    assert recipe["requirements"]["host"] == [python, "pip", backend]
    needs = [re.sub(r"(?=[<>])", " ", line, count=1) for line in _PROJECT["dependencies"]]
    assert recipe["requirements"]["run"] == [python, *needs]
