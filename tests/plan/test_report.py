"""The map of the arena, as it is shown."""

from crtgen.kernels.kernel import InPlace
from crtgen.plan import arena_map, make_plan
from tests.plan.fakes import Net, kernel, node


def test_the_map() -> None:
    net = Net(
        {"x": 32},
        "z",
        node("conv", "x", {"y": 64}, kernel(scratch=16)),
        node("reshape", "y", {"flat": 64}, kernel(alias=True)),
        node("relu", "flat", {"z": 64}, kernel(InPlace())),
    )
    assert arena_map(make_plan(net.graph, net.kernels)) == (
        "arena 112 bytes, the least possible\n"
        "    offset      bytes  alive     value           1 step(s) per column\n"
        "         0         64  1-3       y               .###.\n"
        "         0         64  3-out     z               ...##\n"
        "        64         32  in-1      x               ##...\n"
        "        96         16  1-1       conv (scratch)  .#...\n"
    )
