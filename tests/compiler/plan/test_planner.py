"""Plans of small networks whose least arena is known by hand."""

import pytest

from crtgen.base.errors import UnsupportedError, UsageError
from crtgen.compiler.kernels.engine.kernel import InPlace
from crtgen.compiler.plan import ArenaSlot, make_plan
from tests.compiler.plan.fakes import Net, kernel, node


def chain(*sizes: int) -> Net:
    specs = [node(f"n{i}", f"v{i}", {f"v{i + 1}": size}) for i, size in enumerate(sizes[1:])]
    return Net({"v0": sizes[0]}, f"v{len(sizes) - 1}", *specs)


@pytest.mark.parametrize(
    ("sizes", "peak"),
    [
        ((640, 128, 128, 128, 8, 128, 128, 128, 640), 768),  # the tensors of ad01
        ((490, 8000, 8000, 8000, 64, 12, 12), 16000),  # of kws
        ((27648, 18432, 18432, 36864, 9216, 18432), 55296),  # of vww, where the memory is short
        ((3, 5, 7), 12),
        ((100,), 100),
    ],
)
def test_a_chain_needs_its_largest_neighbours(sizes: tuple[int, ...], peak: int) -> None:
    net = chain(*sizes)
    plan = make_plan(net.graph, net.kernels, align=1)
    assert (plan.arena, plan.lower_bound, plan.optimal) == (peak, peak, True)


def test_residual_of_ic01() -> None:
    net = Net(
        {"x": 3072},
        "z",
        node("stem", "x", {"a": 16384}),
        node("conv1", "a", {"b": 16384}),
        node("conv2", "b", {"c": 16384}),
        node("add", "a c", {"d": 16384}),
        node("head", "d", {"z": 10}),
    )
    assert make_plan(net.graph, net.kernels).arena == 49152


def test_residual_with_an_addition_in_place_is_no_smaller_but_one_more_free_tensor_is() -> None:
    over = kernel(InPlace(0), InPlace(1))
    net = Net(
        {"a": 1600},
        "d",
        node("conv", "a", {"c": 1600}),
        node("add", "a c", {"d": 1600}, over),
    )
    plan = make_plan(net.graph, net.kernels)
    assert plan.arena == plan.lower_bound == 3200
    assert plan.slots["d"].offset in (plan.slots["a"].offset, plan.slots["c"].offset)


def test_an_output_over_its_input_at_the_same_address() -> None:
    net = Net({"x": 64}, "y", node("relu", "x", {"y": 64}, kernel(InPlace())))
    plan = make_plan(net.graph, net.kernels)
    assert plan.arena == 64
    assert plan.slots["x"] == plan.slots["y"] == ArenaSlot(0, 64)


def test_an_output_before_its_input_by_the_lead() -> None:
    net = Net({"x": 100}, "y", node("conv", "x", {"y": 92}, kernel(InPlace(lead=24))))
    plan = make_plan(net.graph, net.kernels, align=8)
    assert plan.slots["y"].offset + 24 == plan.slots["x"].offset
    assert plan.arena == plan.lower_bound == 124


def test_a_lead_is_rounded_up_to_the_alignment() -> None:
    net = Net({"x": 64}, "y", node("conv", "x", {"y": 64}, kernel(InPlace(lead=1))))
    plan = make_plan(net.graph, net.kernels, align=16)
    assert (plan.slots["y"].offset, plan.slots["x"].offset, plan.arena) == (0, 16, 80)


def test_not_over_an_input_that_is_read_later() -> None:
    over = kernel(InPlace(0))
    net = Net({"x": 64}, "z", node("relu", "x", {"y": 64}, over), node("add", "x y", {"z": 64}, over))
    plan = make_plan(net.graph, net.kernels)
    assert plan.arena == 128
    assert plan.slots["y"].offset != plan.slots["x"].offset == plan.slots["z"].offset


def test_not_over_an_input_that_is_kept() -> None:
    net = Net({"x": 64}, "y", node("relu", "x", {"y": 64}, kernel(InPlace())))
    plan = make_plan(net.graph, net.kernels, keep_inputs=True)
    assert plan.arena == 128
    assert plan.kept_inputs


def test_an_operand_that_is_read_twice_must_be_overwritable_through_both() -> None:
    once = Net({"x": 64}, "y", node("add", "x x", {"y": 64}, kernel(InPlace(0))))
    both = Net({"x": 64}, "y", node("add", "x x", {"y": 64}, kernel(InPlace(0), InPlace(1))))
    assert make_plan(once.graph, once.kernels).arena == 128
    assert make_plan(both.graph, both.kernels).arena == 64


def test_scratch_is_shared_between_steps_and_apart_from_what_is_alive() -> None:
    net = Net(
        {"x": 32},
        "z",
        node("a", "x", {"y": 32}, kernel(scratch=100)),
        node("b", "y", {"z": 32}, kernel(scratch=100)),
    )
    plan = make_plan(net.graph, net.kernels, align=4)
    assert plan.arena == 164
    assert all(step.scratch and step.scratch.size == 100 for step in plan.steps)


def test_a_chain_of_aliases_is_one_place() -> None:
    alias = kernel(alias=True)
    net = Net(
        {"x": 48},
        "z y1",
        node("r1", "x", {"y1": 48}, alias),
        node("r2", "y1", {"y2": 48}, alias),
        node("conv", "y2", {"z": 16}),
    )
    plan = make_plan(net.graph, net.kernels)
    assert plan.slots["x"] == plan.slots["y1"] == plan.slots["y2"]
    assert plan.arena == 64  # y1 is an output, so it is still there when z is


def test_an_input_that_is_an_output() -> None:
    net = Net({"x": 16}, "x y", node("conv", "x", {"y": 16}, kernel(InPlace())))
    plan = make_plan(net.graph, net.kernels)
    assert plan.arena == 32


def test_no_nodes() -> None:
    net = Net({"x": 16, "unused": 5}, "x")
    assert make_plan(net.graph, net.kernels).arena == 21


def test_the_order_with_the_least_peak() -> None:
    """Two branches: the model computes both wide values first; one branch after the other needs less."""
    net = Net(
        {"x": 16},
        "z",
        node("wide1", "x", {"a": 400}),
        node("wide2", "x", {"b": 400}),
        node("narrow1", "a", {"c": 16}),
        node("narrow2", "b", {"d": 16}),
        node("join", "c d", {"z": 16}),
    )
    plan = make_plan(net.graph, net.kernels)
    assert [step.name for step in plan.steps] == ["wide1", "narrow1", "wide2", "narrow2", "join"]
    assert plan.arena == 432


def test_the_models_own_order_where_nothing_is_gained() -> None:
    net = Net({"x": 16}, "a b", node("one", "x", {"a": 16}), node("two", "x", {"b": 16}))
    assert [s.name for s in make_plan(net.graph, net.kernels).steps] == ["one", "two"]


def test_a_wide_graph_is_planned_in_bounded_time() -> None:
    """24 branches have 3**24 ideals: the beam keeps the search small, and still runs a branch at a time."""
    specs = [node(f"w{i}", "x", {f"a{i}": 320}) for i in range(24)]
    specs += [node(f"n{i}", f"a{i}", {f"b{i}": 16}) for i in range(24)]
    net = Net({"x": 16}, "z", *specs, node("join", " ".join(f"b{i}" for i in range(24)), {"z": 16}))
    plan = make_plan(net.graph, net.kernels)
    assert plan.arena <= 16 * 23 + 320 + 16


def test_a_constant_output_is_refused() -> None:
    net = Net({"x": 4}, "c y", node("n", "x", {"y": 4}), constants=["c"])
    with pytest.raises(UnsupportedError, match="c is a constant"):
        make_plan(net.graph, net.kernels)


def test_an_alias_of_a_constant_is_refused() -> None:
    net = Net(
        {"x": 4},
        "y z",
        node("r", "c", {"y": 4}, kernel(alias=True)),
        node("n", "x", {"z": 4}),
        constants=["c"],
    )
    with pytest.raises(UnsupportedError, match="y is the constant c"):
        make_plan(net.graph, net.kernels)


def test_a_node_without_a_kernel_is_refused() -> None:
    net = chain(4, 4)
    with pytest.raises(UnsupportedError, match="no kernel computes n0"):
        make_plan(net.graph, {})


def test_an_alignment_that_is_no_power_of_two_is_refused() -> None:
    net = chain(4, 4)
    with pytest.raises(UsageError, match="12"):
        make_plan(net.graph, net.kernels, align=12)


def drifting_chain() -> Net:
    """Each output lies 10 before its input: three steps need 130 although no step needs more than 110."""
    lead = kernel(InPlace(lead=10))
    specs = [node(f"n{i}", f"v{i}", {f"v{i + 1}": 100}, lead) for i in range(3)]
    return Net({"v0": 100}, "v3", *specs)


def test_a_gap_above_the_bound_is_proven() -> None:
    net = drifting_chain()
    plan = make_plan(net.graph, net.kernels, align=1)
    assert (plan.arena, plan.lower_bound, plan.optimal) == (130, 110, True)
