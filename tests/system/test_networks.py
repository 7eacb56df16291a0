"""Random whole networks, compiled and run, against TFLite Micro's interpreter.

``pytest -m nightly tests/system/test_networks.py`` runs more than three hundred, on the host and on boards.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

import crtgen
from crtgen.frontends import load_tflite
from crtgen.ir import Array
from crtgen.measure.cases import compare, random_inputs
from crtgen.session import Session
from tests.support import require_tool
from tests.system.networks import expected, network

_PER_IMAGE = 8
_RUNS = 2


@dataclass(frozen=True)
class _Build:
    """How an image is made: where it runs and what may change its code but not its results."""

    board: str
    toolchain: str | None = None
    optimize: str = "balanced"
    keep_inputs: bool = False
    exact: bool | None = None
    executor: str = "aot"

    def __str__(self) -> str:
        kept = "-kept" if self.keep_inputs else ""
        exact = {None: "", True: "-exact", False: "-quick"}[self.exact]
        return f"{self.board}-{self.toolchain or 'default'}-{self.optimize}-{self.executor}{kept}{exact}"


_IN_CI = (
    _Build("host"),
    _Build("mps2_an386", optimize="speed"),
    _Build("mps3_an547", keep_inputs=True),
)
_NIGHTLY = (
    _Build("host", optimize="speed"),
    _Build("host", optimize="size", keep_inputs=True),
    _Build("host", toolchain="zig", exact=False),
    _Build("host", exact=True),
    _Build("host", executor="graph"),
    _Build("mps2_an385"),
    _Build("mps2_an385", toolchain="zig", optimize="speed"),
    _Build("mps2_an386", exact=True),
    _Build("mps2_an386", optimize="size", keep_inputs=True),
    _Build("mps2_an386", toolchain="zig", optimize="speed"),
    _Build("mps2_an505", exact=False),
    _Build("mps3_an547", optimize="speed"),
    _Build("mps3_an547", optimize="size", keep_inputs=True),
    _Build("mps3_an547", toolchain="zig"),
)


@pytest.mark.cc
@pytest.mark.qemu
@pytest.mark.parametrize("build", _IN_CI, ids=str)
def test_networks(build: _Build) -> None:
    _check(build, range(_PER_IMAGE))


@pytest.mark.nightly
@pytest.mark.parametrize("build", _NIGHTLY, ids=str)
@pytest.mark.parametrize("block", range(1, 4))
def test_many_more_networks(build: _Build, block: int) -> None:
    first = 1000 * _NIGHTLY.index(build) + block * _PER_IMAGE
    _check(build, range(first, first + _PER_IMAGE))


def _check(build: _Build, seeds: Sequence[int]) -> None:
    """Build one image of the networks of all seeds and compare each of its outputs."""
    if build.board != "host":
        require_tool("qemu-system-arm")
    files = {f"net{seed}": network(seed).to_bytes() for seed in seeds}
    compiled = crtgen.compile(
        [crtgen.Model(load_tflite(data, name)) for name, data in files.items()],
        build.board,
        optimize=build.optimize,
        keep_inputs=build.keep_inputs,
        exact=build.exact,
        executor=build.executor,
    )
    project = compiled.generate()
    image = project.build(toolchain=build.toolchain)
    with image.run(counting=False) as session:
        wrong = [text for name, data in files.items() for text in _differences(session, name, data, build)]
    assert wrong == []


def _differences(session: Session, name: str, data: bytes, build: _Build) -> list[str]:
    info = session.model(name)
    inputs = [random_inputs(info.inputs, seed) for seed in range(_RUNS)]
    wanted = [expected(data, arrays, len(info.outputs)) for arrays in inputs]
    largest = [max(float(np.abs(w[i]).max()) for w in wanted) for i in range(len(info.outputs))]
    found = []
    for arrays, want in zip(inputs, wanted, strict=True):
        answers = [session.infer(*arrays, model=name)]
        if build.keep_inputs:
            answers.append(_again(session, name))
        found += [compare(info.outputs, want, answer, largest) for answer in answers]
    return [f"{name} on {build}: {difference}" for difference in found if difference]


def _again(session: Session, name: str) -> tuple[Array, ...]:
    """The outputs of one more run on the inputs that the model has kept."""
    executor = session.client.aot_executor(name)
    executor.run()
    return tuple(executor.get_output(i) for i in range(len(session.model(name).outputs)))
