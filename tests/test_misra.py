"""MISRA C:2012 in what is generated and in the runtime: no rule is broken but those of docs/misra.md."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import crtgen
from crtgen.base.resources import runtime_dir
from tests.runtime.build import zig
from tests.support import ROOT, nightly, require_tool

pytestmark = pytest.mark.cc

_RULE = re.compile(r"misra-c2012-(\d+\.\d+)")
_OF_ONE_VERSION = {"11.8", "12.1"}
"""Rules that only cppcheck 2.10 (Debian 12) or only 2.17 (Debian 13) reports."""
_ROW = re.compile(r"^\| (\d+\.\d+) \| (\w+) \| \S.* \| \S.* \|$", re.MULTILINE)


def test_rules_that_are_broken_are_those_of_the_list(tmp_path: Path) -> None:
    cppcheck = require_tool("cppcheck", "apt install cppcheck")
    model = crtgen.load(ROOT / "demo" / "digits.tflite")
    model.compile("mps2_an386").generate().extract(tmp_path)
    options = [
        "--addon=misra",
        "--enable=style",  # without it, cppcheck 2.17 leaves MISRA's rules out
        "-q",
        "--std=c11",
        "--platform=unix32",
        "-D__ARM_ARCH=7",
        "-D__ARM_FEATURE_DSP=1",
    ]
    folders = ["-Imodel", "-Iruntime/include", "-Iplatform", "model", "runtime/src", "platform"]
    done = subprocess.run(
        [cppcheck, *options, *folders], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True
    )
    assert "(error)" not in done.stderr
    found = set(_RULE.findall(done.stderr))
    listed = dict(_ROW.findall((ROOT / "docs" / "misra.md").read_text()))
    assert len(found) > 10
    assert found ^ set(listed) <= _OF_ONE_VERSION
    assert set(listed.values()) <= {"required", "advisory"}


_SOUND = """[pipeline]
name = "heard"
sensor = { kind = "audio", rate = 16000, type = "int16" }
[features]
preset = "microwakeword"
[decision]
above = 20.0
average = 4
least = 2
vote = 5
quiet = 0.2
quiet_of = "label"
top_k = 3
"""
_PICTURES = """[pipeline]
name = "seen"
sensor = { kind = "image", width = 12, height = 9, format = "rgb888" }
[features]
preset = "image"
width = 12
height = 9
[decision]
boxes = "fomo"
"""


@pytest.mark.parametrize("text", [pytest.param(_SOUND, id="votes"), nightly(_PICTURES)])
def test_what_is_around_a_pipeline_breaks_no_other_rule(tmp_path: Path, text: str) -> None:
    cppcheck = require_tool("cppcheck", "apt install cppcheck")
    file = tmp_path / "pipeline.toml"
    file.write_text(text)
    crtgen.load(file).compile("mps2_an386").generate("library").extract(tmp_path / "library")
    folders = ["-Imodel", "-Iruntime/include", "example/main.c"]
    sources = [f"model/{path.name}" for path in (tmp_path / "library" / "model").glob("*_pipeline.c")]
    command = [
        cppcheck,
        "--addon=misra",
        "--enable=style",
        "-q",
        "--std=c11",
        "--platform=unix32",
        *folders,
        *sources,
    ]
    done = subprocess.run(
        command, cwd=tmp_path / "library", capture_output=True, text=True, timeout=300, check=True
    )
    assert "(error)" not in done.stderr
    found = set(_RULE.findall(done.stderr))
    assert found
    assert found <= set(dict(_ROW.findall((ROOT / "docs" / "misra.md").read_text())))


_SOURCES = sorted(file for folder in ("src", "npu") for file in (runtime_dir() / folder).glob("*.c"))
_IN_CI = ("crt_npu", "crt_server")
_ARM = ROOT / "tests" / "compiler" / "byoc" / "ethos_u"
"""The folder of Arm's header, which crt_npu_arm.c includes."""


@pytest.mark.parametrize("name", [n if n in _IN_CI else nightly(n) for n in (s.stem for s in _SOURCES)])
def test_analyzers_find_nothing_in_the_runtime(tmp_path: Path, name: str) -> None:
    zig()
    source = next(source for source in _SOURCES if source.stem == name)
    include = [
        f"-I{runtime_dir() / 'include'}",
        f"-I{source.parent}",
        f"-I{_ARM}",
        "-std=c11",
        "-DCRT_PROFILE",
    ]
    gcc = ["-O2", "-Wall", "-Wextra", "-Wconversion", "-Wmaybe-uninitialized", "-Werror"]
    command = [require_tool("gcc"), *gcc, *include, "-c", str(source), "-o", str(tmp_path / "x.o")]
    subprocess.run(command, check=True, timeout=120)
    analyze = ["--analyze", "-Xclang", "-analyzer-output=text"]
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", *analyze, *include, str(source)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert not [line for line in done.stderr.splitlines() if source.name in line and "warning:" in line]
