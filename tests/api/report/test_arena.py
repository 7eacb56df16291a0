"""The map of the arena, as it is shown."""

from crtgen.api.report import arena_map, reports_of
from crtgen.boards import find_board
from crtgen.compiler.codegen.info import model_info
from crtgen.compiler.codegen.module import LayerInfo
from crtgen.compiler.kernels.engine.kernel import InPlace
from crtgen.compiler.plan import make_plan
from tests.compiler.plan.fakes import Net, kernel, node


def test_the_map() -> None:
    net = Net(
        {"x": 32},
        "z",
        node("conv", "x", {"y": 64}, kernel(scratch=16)),
        node("reshape", "y", {"flat": 64}, kernel(alias=True)),
        node("relu", "flat", {"z": 64}, kernel(InPlace())),
    )
    plan = make_plan(net.graph, net.kernels)
    layers = [LayerInfo(step.name, "fake", "fake") for step in plan.steps]
    (report,) = reports_of([model_info(plan, "net", layers)], find_board("host"), "speed", [plan])
    assert arena_map(report) == (
        "arena 112 bytes, the least possible\n"
        "    offset      bytes  alive     value           one column per step\n"
        "         0         64  1-3       y               .###.\n"
        "         0         64  3-out     z               ...##\n"
        "        64         32  in-1      x               ##...\n"
        "        96         16  1-1       conv (scratch)  .#...\n"
    )
