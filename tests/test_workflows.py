"""The workflows of the public CI run scripts of this repository, with bounds in time."""

import os
import re
from fnmatch import fnmatch
from typing import Any

import pytest
import yaml

from crtgen.compiler.codegen.render import render
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


def test_the_other_ci_runs_the_same_command() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec ci/test"


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


def test_actions_are_those_of_a_commit_and_tokens_read() -> None:
    """Also in what ``init --ci`` writes: a tag may be moved, a commit may not."""
    template = ROOT / "templates" / "settings" / "github.yml.j2"
    for file in (*WORKFLOWS, template):
        text = file.read_text()
        uses = re.findall(r"uses: (\S+)(.*)", text)
        assert uses
        for action, comment in uses:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), f"{file.name}: {action}"
            assert re.fullmatch(r"  # v\d+\.\d+\.\d+", comment)
        wanted = "write" if file.name == "release.yml" else "read"  # which makes a release
        assert f"\npermissions:\n  contents: {wanted}\n" in text


def test_a_ci_of_a_person_has_the_version_that_wrote_it() -> None:
    for name in ("github", "gitlab"):
        text = render(f"settings/{name}.yml.j2", version="1.2.3")
        assert 'pip install "crtgen==1.2.3"' in text
        assert "crtgen check --prove-again" in text
