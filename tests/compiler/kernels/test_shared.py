"""What layers share where size matters: C of the runtime, functions, and a table for each layer."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from crtgen.api import Model
from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Kernel, Target, applicable
from crtgen.compiler.kernels.shared.tables import places_in, table
from crtgen.network.ir import Graph, Node, Op, Quant
from crtgen.network.ops import Case, Conv2d, FullyConnected, Padding
from crtgen.network.ops.case import in_four_bits, int8s, int16s, make, weights_and_bias
from tests.compiler.kernels.harness import Job, guarded, run_jobs

_SAME = Padding(1, 1, 1, 1)
_SHAPES: tuple[tuple[Op, tuple[int, ...], tuple[int, ...]], ...] = (
    (Conv2d((1, 1), _SAME), (1, 7, 6, 12), (9, 3, 3, 12)),
    (Conv2d((2, 2), Padding(4, 5, 1, 1)), (1, 19, 10, 1), (8, 10, 4, 1)),
    (Conv2d(), (2, 5, 5, 7), (6, 1, 1, 7)),
    (Conv2d((1, 1), Padding(2, 2, 0, 0), (2, 3)), (1, 9, 9, 3), (5, 3, 2, 3)),
    (FullyConnected(), (5, 33), (3, 33)),
)


def _case(kind: str, op: Op, shape: tuple[int, ...], weights: tuple[int, ...]) -> Case:
    x = int16s("x", shape, 0.0004) if kind == "int16" else int8s("x", shape, 0.04, -5)
    constants = weights_and_bias(str(weights), x, weights, 0, isinstance(op, Conv2d))
    case = make(f"{kind}_{weights[0]}", op, [x, *constants], Quant.tensor(0.02 if kind == "int16" else 1.5))
    return in_four_bits(case) if kind == "int4" else case


def _kernel(case: Case) -> Kernel:
    found = applicable(case.op, case.sig, Target(find_core("cortex-m4"), "size"))
    return next(kernel for kernel in found if kernel.design == "dsp_matrix_shared")


def _side_by_side(cases: Sequence[Case]) -> Graph:
    """A network of layers that have nothing to do with each other."""
    values, nodes = [], []
    for n, case in enumerate(cases):
        *given, y = (replace(v, name=f"{v.name}{n}") for v in (*case.sig.inputs, case.sig.y))
        values += [*given, y]
        nodes.append(Node(f"layer{n}", case.op, tuple(v.name for v in given), (y.name,)))
    inputs, outputs = ([f"{name}{n}" for n in range(len(cases))] for name in ("x", "y"))
    return Graph.build("several", values, nodes, inputs, outputs)


@pytest.mark.qemu
@pytest.mark.parametrize("kind", ["int8", "int16", "int4"])
def test_layers_of_a_type_share_a_function(tmp_path: Path, kind: str) -> None:
    cases = [_case(kind, *shapes) for shapes in _SHAPES]
    kernels = [_kernel(case) for case in cases]
    assert len({k.function for k in kernels}) <= 2  # with one shift for all channels, or with several
    jobs = [Job(case, kernel) for case, kernel in zip(cases, kernels, strict=True)]
    results = run_jobs(jobs, tmp_path, guarded("cortex-m4"), "-Os")
    assert [(c.name, r.wrong) for c, r in zip(cases, results, strict=True) if r.wrong] == []


@pytest.mark.qemu
def test_the_stack_of_what_is_shared_is_known() -> None:
    """Layers of three types have three groups in assembly, which one function in C calls by pointers."""
    kinds = ("int8", "int16", "int4")
    graph = _side_by_side([_case(kind, *shapes) for kind in kinds for shapes in _SHAPES[:3]])
    image = Model(graph).compile("mps2_an386", optimize="size").generate().build()
    report = image.reports[0].image
    assert report is not None
    assert report.stack is not None
    names = [symbol.name for symbol in report.sizes.symbols]
    groups = {name for name in names if name.startswith("several_group")}
    assert (names.count("crt_dsp_conv"), len(groups)) == (1, 3)
    assert groups < {frame.name for frame in report.stack.frames}
    assert report.stack.proven


def test_tables_are_what_the_runtime_reads() -> None:
    places = places_in("mve_depthwise")
    assert [places[name] for name in ("channels", "taps", "places", "advance")] == [0, 32, 48, 64]
    numbers = dict.fromkeys(places_in("dsp_conv"), 7)
    made = table("dsp_conv", {**numbers, "rest": [1, -1]})
    assert made.data[-3:].tolist() == [7, 1, -1]
    assert len(table("dsp_conv", numbers, "window_rows").data) == 19
    del numbers["rest"]
    with pytest.raises(ValueError, match=r"crt/dsp_conv.h: \['rest'\]"):
        table("dsp_conv", numbers)
