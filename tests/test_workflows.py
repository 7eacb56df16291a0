"""The workflows of the public CI run scripts of this repository, with bounds in time."""

import os
from fnmatch import fnmatch
from typing import Any

import pytest
import yaml

from tests.support import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def jobs(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())
    found: dict[str, Any] = content["jobs"]
    return found


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda p: p.name)
def test_every_script_exists_and_every_job_ends(workflow: Any) -> None:
    for job in jobs(workflow.name).values():
        assert job["timeout-minutes"] <= 60
        scripts = [step["run"].split()[0] for step in job["steps"] if step.get("run", "").startswith("ci/")]
        assert scripts
        assert all(os.access(ROOT / script, os.X_OK) for script in scripts)


def test_the_two_commands_of_the_readme_are_run() -> None:
    steps = [step for job in jobs("ci.yml").values() for step in job["steps"]]
    runs = [step["run"].split()[0] for step in steps if "run" in step]
    assert runs == ["ci/demo", "ci/test"]
    text = (ROOT / "README.md").read_text()
    assert all(f"./{run} " in text for run in runs)


def test_each_test_is_in_one_job() -> None:
    """By its marks: of Python only, with a C compiler of the host, with QEMU."""
    marks = [each["marks"] for each in jobs("ci.yml")["test"]["strategy"]["matrix"]["include"]]
    for names in ((), ("cc",), ("qemu",), ("cc", "qemu")):
        known = {name: name in names for name in ("cc", "qemu")}
        assert sum(eval(each, {}, known) for each in marks) == 1, names


def test_no_folder_of_tests_is_left_out(request: pytest.FixtureRequest) -> None:
    """By default, pytest does not look into folders that are called build."""
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    ignored = request.config.getini("norecursedirs")
    assert [f for f in folders if any(fnmatch(f.name, pattern) for pattern in ignored)] == []
