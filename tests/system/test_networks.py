"""Random whole networks, compiled and run, against TFLite Micro's interpreter.

``pytest -m nightly tests/system/test_networks.py`` runs a thousand on the host, and more than three hundred
on boards and as other toolchains compile them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

import crtgen
from crtgen.base.errors import UnsupportedError
from crtgen.compiler.codegen.module import Interface
from crtgen.compiler.request import RequestFields
from crtgen.device.session import Session
from crtgen.lab.measure.cases import Difference, compare, random_inputs
from crtgen.network.frontends import load_tflite
from crtgen.network.ir import Array, Graph
from tests.support import nightly, require_tool
from tests.system.grown import expected, network

_PER_IMAGE = 8
_SEQUENCES, _STEPS = 2, 3


@dataclass(frozen=True)
class _Build:
    """How an image is made: where it runs and what may change its code but not its results."""

    board: str
    toolchain: str | None = None
    optimize: str = "balanced"
    keep_inputs: bool = False
    executor: str = "aot"
    cores: int = 1

    def __str__(self) -> str:
        kept = "-kept" if self.keep_inputs else ""
        kept += f"-{self.cores}-cores" if self.cores > 1 else ""
        return (
            f"{self.board}-{self.toolchain or 'default'}-{self.optimize}-{self.executor}{kept}"
            + f"-{self.cores}-cores" * (self.cores > 1)
        )


_IN_CI = (
    _Build("host"),
    _Build("mps2_an386", optimize="speed"),
    _Build("mps3_an547", keep_inputs=True),
)
_NIGHTLY = (
    _Build("host", optimize="speed"),
    _Build("host", optimize="size", keep_inputs=True),
    _Build("host", toolchain="zig"),
    _Build("host", executor="graph"),
    _Build("mps2_an385"),
    _Build("mps2_an385", toolchain="zig", optimize="speed"),
    _Build("mps2_an386"),
    _Build("mps2_an386", optimize="size", keep_inputs=True),
    _Build("mps2_an386", toolchain="zig", optimize="speed"),
    _Build("mps2_an505"),
    _Build("mps3_an547", optimize="speed"),
    _Build("mps3_an547", optimize="size", keep_inputs=True),
    _Build("mps3_an547", toolchain="zig"),
    _Build("musca_b1", cores=2),
    _Build("musca_b1", optimize="ram", cores=2),
)


@pytest.mark.cc
@pytest.mark.qemu
@pytest.mark.parametrize("build", _IN_CI, ids=str)
def test_networks(build: _Build) -> None:
    _check(build, range(_PER_IMAGE))


@pytest.mark.parametrize("seeds", [range(60), nightly(range(60, 2000))], ids=len)
def test_references(seeds: Sequence[int]) -> None:
    """The networks in numpy, as they are read."""
    wrong = []
    for seed in seeds:
        data = network(seed).to_bytes()
        graph = load_tflite(data, f"net{seed}")
        inputs, outputs = _interfaces(graph, graph.inputs), _interfaces(graph, graph.outputs)
        runs = [random_inputs(inputs, step) for step in range(_STEPS)]
        wanted = expected(data, runs, len(graph.outputs))
        wrong += [f"net{seed}: {d}" for d in _compared(outputs, [wanted], [list(graph.run(runs))])]
    assert wrong == []


_CROSSED: tuple[tuple[str, RequestFields], ...] = (
    ("musca_b1", {"cores": 2}),
    ("rpi_pico", {"cores": 2, "optimize": "speed"}),
    ("mps2_an386", {"optimize": "ram"}),
    ("mps3_an547", {"optimize": "ram"}),
    ("nucleo_l4r5zi", {"feed": "rows", "optimize": "ram"}),
    ("musca_b1", {"cores": 2, "optimize": "size"}),
)


@pytest.mark.parametrize("seeds", [range(24), nightly(range(24, 3000))], ids=len)
def test_options_cross(seeds: Sequence[int]) -> None:
    """Every network compiles with every option, or is refused by name; what that computes others compare."""
    compiled = 0
    for seed in seeds:
        board, options = _CROSSED[seed % len(_CROSSED)]
        model = crtgen.Model(load_tflite(network(seed).to_bytes(), f"net{seed}"))
        try:
            crtgen.compile([model], board, **options)
            compiled += 1
        except UnsupportedError:
            assert "feed" in options, f"net{seed} on {board}: {options}"
    assert compiled > len(seeds) * 0.8


def _interfaces(graph: Graph, names: Sequence[str]) -> list[Interface]:
    values = [graph.values[name] for name in names]
    return [Interface(v.name, v.name, v.shape, v.dtype, v.quant, v.nbytes) for v in values]


@pytest.mark.cc
@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, 1000, _PER_IMAGE))
def test_a_thousand_networks(first: int) -> None:
    _check(_Build("host"), range(first, first + _PER_IMAGE))


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
    plain = build.executor == "graph"
    files = {f"net{seed}": network(seed, plain).to_bytes() for seed in seeds}
    compiled = crtgen.compile(
        [crtgen.Model(load_tflite(data, name)) for name, data in files.items()],
        build.board,
        optimize=build.optimize,
        keep_inputs=build.keep_inputs,
        executor=build.executor,
        cores=build.cores,
    )
    project = compiled.generate(stack=1 << 15)
    image = project.build(toolchain=build.toolchain)
    with image.run(counting=False) as session:
        wrong = [text for name, data in files.items() for text in _differences(session, name, data, build)]
    assert wrong == []


def _differences(session: Session, name: str, data: bytes, build: _Build) -> list[str]:
    """Of sequences of runs, which begin anew; with kept inputs, also of a run that repeats the last one."""
    info = session.model(name)
    found, wanted = [], []
    for sequence in range(_SEQUENCES):
        runs = [random_inputs(info.inputs, _STEPS * sequence + step) for step in range(_STEPS)]
        if build.keep_inputs:
            runs.append(runs[-1])
        wanted.append(expected(data, runs, len(info.outputs)))
        session.reset(name)
        answers = [session.infer(*arrays, model=name) for arrays in runs[:_STEPS]]
        found.append([*answers, _again(session, name)] if build.keep_inputs else answers)
    return [f"{name} on {build}: {difference}" for difference in _compared(info.outputs, wanted, found)]


_Runs = Sequence[Sequence[Array]]


def _compared(
    outputs: Sequence[Interface], wanted: Sequence[_Runs], found: Sequence[_Runs]
) -> list[Difference]:
    """What differs in sequences of runs; floats may by 1e-5 of the largest of any."""
    both = [pair for w, f in zip(wanted, found, strict=True) for pair in zip(w, f, strict=True)]
    largest = [max(float(np.abs(w[i]).max()) for w, _ in both) for i in range(len(outputs))]
    return [d for want, have in both if (d := compare(outputs, want, have, largest))]


def _again(session: Session, name: str) -> tuple[Array, ...]:
    """The outputs of one more run on the inputs that the model has kept."""
    executor = session.client.aot_executor(name)
    executor.run()
    return tuple(executor.get_output(i) for i in range(len(session.model(name).outputs)))
